"""Offers each edge of a graph once where the graph declares inverse relations (specification §8.4)."""

from __future__ import annotations

from collections.abc import Iterable

from pipeline.datasets.inverses import Inverses
from pipeline.types import Relation, RelationPath


def without_inverses(relations: Iterable[Relation], inverses: Inverses) -> list[Relation]:
    """Return the relations at an entity, sorted. An incoming one is dropped if its outgoing inverse is among them."""
    offered = set(relations)
    return sorted(
        relation for relation in offered if (same := as_offered(relation, inverses)) == relation or same not in offered
    )


def as_offered(relation: Relation, inverses: Inverses) -> Relation:
    """Return the outgoing inverse of an incoming relation that has one, else the relation itself."""
    if relation.direction == "in" and (inverse := inverses.get(relation.name)) is not None:
        return Relation(inverse, "out")
    return relation


def path_as_offered(path: RelationPath, inverses: Inverses) -> RelationPath:
    """Return the same path in the relations that the entities on it offer."""
    return tuple(as_offered(relation, inverses) for relation in path)
