"""A grounded path: a chain of facts in the graph, in the order in which it was walked from an entity."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import NamedTuple, TypeAlias

from pipeline.types import Chain, EntityId, Node, Relation, Triple

Path: TypeAlias = tuple[str, ...]
"""A relation path: the names of the relations to follow from an entity, without directions."""


class Step(NamedTuple):
    """One hop: the relation that was followed, with its direction, and the node that it led to."""

    relation: Relation
    node: Node


@dataclass(frozen=True, slots=True)
class GroundedPath:
    """A start entity and the hops made from it. Unlike triples, it keeps the direction of each hop."""

    start: EntityId
    steps: tuple[Step, ...] = ()

    @property
    def length(self) -> int:
        """The number of hops."""
        return len(self.steps)

    @property
    def end(self) -> Node:
        """The last node."""
        return self.steps[-1].node if self.steps else self.start

    @property
    def entity(self) -> EntityId:
        """The last node of a path that can be extended, which is never a literal."""
        assert isinstance(self.end, str), "a path that ends in a literal cannot be extended"
        return self.end

    @property
    def nodes(self) -> tuple[Node, ...]:
        """The start and the node of each hop, in order."""
        return (self.start, *(step.node for step in self.steps))

    @property
    def path(self) -> Path:
        """The names of the relations followed."""
        return tuple(step.relation.name for step in self.steps)

    @property
    def triples(self) -> Chain:
        """The facts in the order of the walk, each with the graph's own subject and object (specification §3.6)."""
        return tuple(map(_fact, self.nodes, self.steps))

    def then(self, relation: Relation, node: Node) -> GroundedPath:
        """Return this path extended by one hop."""
        return GroundedPath(self.start, (*self.steps, Step(relation, node)))

    def first(self, length: int) -> GroundedPath:
        """Return the first `length` hops of this path."""
        return self if length >= self.length else GroundedPath(self.start, self.steps[:length])


def within(paths: Iterable[GroundedPath], max_facts: int) -> tuple[GroundedPath, ...]:
    """Return the first paths that together have at most `max_facts` facts, as many as possible."""
    kept: list[GroundedPath] = []
    for path in paths:
        max_facts -= path.length
        if max_facts < 0:
            break
        kept.append(path)
    return tuple(kept)


def _fact(source: Node, step: Step) -> Triple:
    (name, direction), target = step
    return Triple(source, name, target) if direction == "out" else Triple(target, name, source)
