"""A concrete chain of facts, as it was walked from an entity."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import NamedTuple, TypeAlias

from pipeline.types import Chain, EntityId, Node, Relation, Triple

Path: TypeAlias = tuple[str, ...]
"""Relation names from an entity on, without directions."""


class Step(NamedTuple):
    """One hop: the relation followed, with its direction, and the node it led to."""

    relation: Relation
    node: Node


@dataclass(frozen=True, slots=True)
class Instance:
    """A start entity and the hops made from it. Remembers the direction of the walk, which triples do not."""

    start: EntityId
    steps: tuple[Step, ...] = ()

    @property
    def length(self) -> int:
        """How many hops."""
        return len(self.steps)

    @property
    def end(self) -> Node:
        """The node that the walk has reached."""
        return self.steps[-1].node if self.steps else self.start

    @property
    def entity(self) -> EntityId:
        """The end of a walk that is to go on, which is no literal."""
        assert isinstance(self.end, str), "no walk goes on from a literal"
        return self.end

    @property
    def nodes(self) -> tuple[Node, ...]:
        """The start and every node reached, in order."""
        return (self.start, *(step.node for step in self.steps))

    @property
    def path(self) -> Path:
        """The names of the relations followed."""
        return tuple(step.relation.name for step in self.steps)

    @property
    def triples(self) -> Chain:
        """The facts in the order of the walk, each in the graph's own order (methods.md §3.6)."""
        return tuple(map(_fact, self.nodes, self.steps))

    def then(self, relation: Relation, node: Node) -> Instance:
        """The instance one hop longer."""
        return Instance(self.start, (*self.steps, Step(relation, node)))

    def first(self, length: int) -> Instance:
        """The instance cut to its first `length` hops."""
        return self if length >= self.length else Instance(self.start, self.steps[:length])


def within(instances: Iterable[Instance], most: int) -> tuple[Instance, ...]:
    """The first instances that have at most `most` facts together."""
    kept: list[Instance] = []
    for instance in instances:
        most -= instance.length
        if most < 0:
            break
        kept.append(instance)
    return tuple(kept)


def _fact(source: Node, step: Step) -> Triple:
    (name, direction), target = step
    return Triple(source, name, target) if direction == "out" else Triple(target, name, source)
