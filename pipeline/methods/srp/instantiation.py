"""From a predicted relation path to the facts that it has in the graph (methods.md §3.6)."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from itertools import groupby, islice
from typing import NamedTuple

from pipeline.kg.port import GraphLookups
from pipeline.methods.instance import Instance, Path
from pipeline.methods.rendering import Names, node_name
from pipeline.types import Entity, EntityId, LiteralNode, Node, Relation


@dataclass(frozen=True, slots=True)
class Instantiation:
    """What a relation path has become in the graph."""

    path: Path = ()
    complete: tuple[Instance, ...] = ()
    """As long as the path, or ended in a literal before that; those by the closest relations first."""
    partial: tuple[Instance, ...] = ()
    """Ended where no relation matched; the longest first. One without hops stands for an unmatched first relation."""
    grounded: int = 0
    """L, the length of the longest instance."""
    names: Names = field(default_factory=dict)
    """Names of all entities above."""
    known: frozenset[str] = frozenset()
    """Relations that the graph has: those met at the visited nodes, and those that the path was bound to."""
    truncated: bool = False
    """Whether a cap cut the walk."""

    def is_named(self, node: Node) -> bool:
        """Whether the node is a literal or an entity with a name."""
        return node_name(node, self.names) is not None


async def instantiate(
    entity: Entity, path: Path, bound: Sequence[Sequence[str]], kg: GraphLookups, *, frontier: int
) -> Instantiation:
    """Walk from `entity`, layer by layer, along the relations that each relation of `path` is bound to.

    Costs one `relations` and one `neighbours` lookup per layer and one `labels` lookup in the end, whatever the
    fan-out. A layer keeps at most `frontier` chains: those by the closest relations first, hubs and others in turn.
    """
    walk = _Walk(kg, frontier)
    layer = [_Reached(0, Instance(entity.id))]
    for predicted, similar in zip(path, bound, strict=True):
        layer = await walk.step(layer, predicted, similar)
    (walk.complete if path else walk.partial).extend(layer)
    names = await kg.labels(sorted(_entities(walk.complete + walk.partial)))
    known = {**names, entity.id: names.get(entity.id) or entity.name}
    complete, turned_back = _without_turning_back(_closest_first(walk.complete), known)
    partial, turned_earlier = _without_turning_back(_closest_first(walk.partial), known)
    ended = dict.fromkeys([*partial, *turned_back, *turned_earlier])
    return Instantiation(
        path=path,
        complete=complete,
        partial=tuple(sorted(ended, key=lambda instance: -instance.length)),
        grounded=max((instance.length for instance in (*complete, *ended)), default=0),
        names=known,
        known=frozenset(walk.met).union(*bound),
        truncated=walk.truncated,
    )


class _Reached(NamedTuple):
    """A chain of the current layer."""

    cost: int
    """How far its relations are from the predicted ones: the sum of their places in the bindings."""
    instance: Instance


class _Move(NamedTuple):
    """A relation to follow from a chain of the current layer."""

    cost: int
    instance: Instance
    relation: Relation


@dataclass
class _Walk:
    """The state of one breadth-first walk."""

    kg: GraphLookups
    frontier: int
    complete: list[_Reached] = field(default_factory=list)
    partial: list[_Reached] = field(default_factory=list)
    met: set[str] = field(default_factory=set)
    truncated: bool = False

    async def step(self, layer: Sequence[_Reached], predicted: str, similar: Sequence[str]) -> list[_Reached]:
        """Make one hop from every chain; put aside those that end here, and return the next layer."""
        moves = await self._moves(layer, predicted, similar)
        taken = moves[: self.frontier]  # each of them reaches a node, so no more can be needed
        hops = dict.fromkeys((move.instance.entity, move.relation) for move in taken)
        found = await self.kg.neighbours(list(hops), self.frontier)
        reached = [(move, found[move.instance.entity, move.relation].nodes) for move in taken]
        gone_on = {move.instance for move, nodes in reached if nodes}
        gone_on.update(move.instance for move in moves[self.frontier :])
        self.partial += [chain for chain in layer if chain.instance not in gone_on]
        kept = list(islice(_in_turn(reached), self.frontier))
        cut = len(moves) > len(taken) or sum(len(nodes) for _, nodes in reached) > len(kept)
        self.truncated |= cut or any(neighbours.truncated for neighbours in found.values())
        self.complete += [chain for chain in kept if isinstance(chain.instance.end, LiteralNode)]
        return [chain for chain in kept if not isinstance(chain.instance.end, LiteralNode)]

    async def _moves(self, layer: Sequence[_Reached], predicted: str, similar: Sequence[str]) -> list[_Move]:
        """The relations to follow, the closest to the predicted one first, then in the order of the layer."""
        at = await self.kg.relations(list(dict.fromkeys(chain.instance.entity for chain in layer)))
        self.met.update(relation.name for relations in at.values() for relation in relations)
        distance = {name: place for place, name in enumerate(similar, start=1)}
        if predicted in distance:
            distance[predicted] = 0
        moves = [
            _Move(cost + distance[relation.name], instance, relation)
            for cost, instance in layer
            for relation in at[instance.entity]
            if relation.name in distance and (relation.name == predicted or relation.name not in instance.path)
        ]
        return sorted(moves, key=lambda move: move.cost)


def _in_turn(reached: Iterable[tuple[_Move, Sequence[Node]]]) -> Iterator[_Reached]:
    """The chains one hop longer, by cost; among moves of one cost the first node of each, then the second, and so on.

    So no hub fills a layer, or the judge's sample of it, alone.
    """
    for cost, group in groupby(reached, key=lambda pair: pair[0].cost):
        moves = list(group)
        for place in range(max(len(nodes) for _, nodes in moves)):
            for move, nodes in moves:
                if place < len(nodes):
                    yield _Reached(cost, move.instance.then(move.relation, nodes[place]))


def _closest_first(chains: Iterable[_Reached]) -> list[Instance]:
    return [chain.instance for chain in sorted(chains, key=lambda chain: chain.cost)]


def _entities(chains: Iterable[_Reached]) -> set[EntityId]:
    return {node for _, instance in chains for node in instance.nodes if isinstance(node, str)}


def _without_turning_back(
    instances: Iterable[Instance], names: Names
) -> tuple[tuple[Instance, ...], tuple[Instance, ...]]:
    """Part the instances that cross no unnamed node by one edge there and back (§8.4) from those that do.

    The latter come back cut at that node, where they have come to nothing.
    """
    straight: list[Instance] = []
    cut: list[Instance] = []
    for instance in instances:
        turn = _turning_point(instance, names)
        if turn is None:
            straight.append(instance)
        else:
            cut.append(instance.first(turn))
    return tuple(straight), tuple(cut)


def _turning_point(instance: Instance, names: Names) -> int | None:
    """The number of hops to the first unnamed node that is left by the very edge it was reached by."""
    unnamed = [hops for hops in range(1, instance.length) if node_name(instance.steps[hops - 1].node, names) is None]
    if not unnamed:  # nearly always, and then its facts need not be written out
        return None
    facts = instance.triples
    return next((hops for hops in unnamed if facts[hops - 1] == facts[hops]), None)
