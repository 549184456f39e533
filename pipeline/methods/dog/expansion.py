"""Follows relations from all entities of a turn, through mediators where they lead to nothing else (§16.4)."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Literal, TypeAlias

from pipeline.kg.interface import GraphLookups, Hop
from pipeline.methods.exploration import entities_among
from pipeline.methods.grounded_path import GroundedPath
from pipeline.methods.rendering import Names, node_name
from pipeline.types import Relation

Directions: TypeAlias = Literal["out", "both"]


@dataclass(frozen=True, slots=True)
class Expansion:
    """What the relations of one turn lead to."""

    chains: tuple[GroundedPath, ...]
    """One or two hops each, to nodes with a name. In the order of the hops."""
    names: Names
    """The names of all nodes on the way."""
    truncated: bool
    """Whether the limit cut off some nodes."""


def followed(relations: Iterable[Relation], directions: Directions) -> list[Relation]:
    """Return the relations that may be followed, sorted: the outgoing ones, or all."""
    return sorted({relation for relation in relations if directions == "both" or relation.direction == "out"})


async def expand(hops: Sequence[Hop], kg: GraphLookups, *, limit: int, directions: Directions) -> Expansion:
    """Follow each hop to at most `limit` nodes. A relation that leads only to unnamed nodes is followed through them.

    It takes one `neighbours` and one `labels` lookup; with mediators, one more of each and one `relations` lookup.
    """
    found = await kg.neighbours(hops, limit)
    names = dict(await kg.labels(entities_among(found.values())))
    reached = [
        GroundedPath(source).then(relation, node)
        for (source, relation), neighbours in found.items()
        for node in neighbours.nodes
    ]
    leading = {fact.steps[0].relation for fact in reached if node_name(fact.end, names)}
    direct = [fact for fact in reached if node_name(fact.end, names)]
    through = [fact for fact in reached if fact.steps[0].relation not in leading]
    mediators = list(dict.fromkeys(fact.entity for fact in through))
    around = await kg.relations(mediators)
    behind = await kg.neighbours(
        [(mediator, relation) for mediator in mediators for relation in followed(around[mediator], directions)], limit
    )
    names.update(await kg.labels([id for id in entities_among(behind.values()) if id not in names]))
    far = [
        fact.then(relation, node)
        for fact in through
        for relation in followed(around[fact.entity], directions)
        for node in behind[fact.entity, relation].nodes
        if node != fact.start and node_name(node, names)
    ]
    truncated = any(neighbours.truncated for lookup in (found, behind) for neighbours in lookup.values())
    return Expansion((*direct, *far), names, truncated)
