"""The tree that the beam grows: nodes to go on from, leaves with answers (methods.md §4.5)."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field

from pipeline.methods.arg.answers import Answered
from pipeline.methods.instance import Instance
from pipeline.methods.rendering import Names, node_name
from pipeline.types import EntityId, Relation


@dataclass(frozen=True, slots=True)
class Node:
    """A text so far, and where its walks stand in the graph."""

    text: str
    """Up to the retrieval token that comes next."""
    instances: tuple[Instance, ...]
    """The walks to its current entities."""
    hops: tuple[float, ...] = ()
    """k1 · S_rel · S_rat of each hop."""
    score: float = 0.0
    """The path score of the hops."""
    tried: frozenset[Relation] = frozenset()
    """What was followed from the same entities just before, and led to nothing relevant."""
    relations: Mapping[str, float] = field(default_factory=dict)
    """At the relation level: the relevant relations of the group, and how relevant each is."""

    @property
    def at(self) -> dict[EntityId, Instance]:
        """The current entities with the walk to each; a literal leads nowhere."""
        at: dict[EntityId, Instance] = {}
        for instance in self.instances:
            if isinstance(instance.end, str):
                at.setdefault(instance.end, instance)
        return at


@dataclass(frozen=True, slots=True)
class Expansion:
    """One relation to follow from one entity of a relation-level node."""

    node: Node
    source: Instance
    relation: str
    hops: tuple[tuple[EntityId, Relation], ...]
    """The relation in the directions in which it is to be followed."""


@dataclass(frozen=True, slots=True)
class Leaf:
    """A finished text."""

    answered: Answered
    instances: tuple[Instance, ...]
    """The walks that its answers rest on."""
    score: float


def relation_beam(nodes: Iterable[Node], width: int) -> list[Node]:
    """The best relation-level nodes: by the parent's score, ties by the most relevant relation. 0 keeps all."""
    ranked = sorted(nodes, key=lambda node: (-node.score, -max(node.relations.values())))
    return ranked[:width] if width else ranked


def entity_beam(nodes: Iterable[Node], width: int) -> list[Node]:
    """The best entity-level nodes by their path score; equals stay as they were grown. 0 keeps all."""
    ranked = sorted(nodes, key=lambda node: -node.score)
    return ranked[:width] if width else ranked


def best_leaves(leaves: Iterable[Leaf]) -> list[Leaf]:
    """The leaves that answer something, the best first."""
    return sorted((leaf for leaf in leaves if leaf.answered.texts), key=lambda leaf: -leaf.score)


def ways_on(node: Node, around: Mapping[EntityId, Sequence[Relation]], names: Names) -> dict[EntityId, list[Relation]]:
    """Per current entity the relations to take: not the one that led here, nor back out of an unnamed node."""
    return {
        entity: [relation for relation in around.get(entity, ()) if relation not in _barred(node, instance, names)]
        for entity, instance in node.at.items()
    }


def _barred(node: Node, instance: Instance, names: Names) -> frozenset[Relation]:
    """§4.5.1 and, for unnamed nodes, §8.4."""
    if not instance.steps:
        return node.tried
    name, direction = led_here = instance.steps[-1].relation
    if node_name(instance.end, names) is not None:
        return node.tried | {led_here}
    return node.tried | {led_here, Relation(name, "in" if direction == "out" else "out")}
