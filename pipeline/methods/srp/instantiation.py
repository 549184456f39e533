"""Finds the instances of a predicted relation path in the graph (specification §3.6)."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field

from pipeline.kg.interface import GraphLookups
from pipeline.methods.grounded_path import GroundedPath, Path
from pipeline.methods.rendering import Names, node_name
from pipeline.methods.walk import CostedChain, Move, entities, first_u_turn, follow, returns
from pipeline.types import Entity, Node


@dataclass(frozen=True, slots=True)
class Instantiation:
    """The instances of a relation path in the graph."""

    path: Path = ()
    complete: tuple[GroundedPath, ...] = ()
    """As long as the path, or ended in a literal before that; those with the closest relations first."""
    partial: tuple[GroundedPath, ...] = ()
    """Ended where no relation matched; the longest first. It has no hops if the first relation did not match."""
    max_length: int = 0
    """L, the length of the longest instance."""
    names: Names = field(default_factory=dict)
    """The names of all entities in the instances."""
    known: frozenset[str] = frozenset()
    """Relations that exist in the graph: those at the visited nodes, and those that the path was bound to."""
    truncated: bool = False
    """Whether a limit cut the walk."""
    dropped: frozenset[Node] = frozenset()
    """Nodes that the walk reached and did not keep, because a layer was full."""

    def is_named(self, node: Node) -> bool:
        """Return whether the node is a literal or an entity with a name."""
        return node_name(node, self.names) is not None


async def instantiate(
    entity: Entity, path: Path, bound: Sequence[Sequence[str]], kg: GraphLookups, *, frontier: int
) -> Instantiation:
    """Walk from `entity`, layer by layer, along the relations that each relation of `path` is bound to.

    Makes one `relations` and one `neighbours` lookup per layer and one `labels` lookup at the end, whatever the
    fan-out. A layer keeps at most `frontier` chains: those with the closest relations first, from all nodes in turn.
    """
    walk = _Walk(kg, frontier)
    layer = [CostedChain(0, GroundedPath(entity.id))]
    for predicted, similar in zip(path, bound, strict=True):
        layer = await walk.step(layer, predicted, similar)
    (walk.complete if path else walk.partial).extend(layer)
    names: Names = await kg.labels(sorted(entities(walk.complete + walk.partial)))
    names = {**names, entity.id: names.get(entity.id) or entity.name}
    complete, cut_complete = _cut_u_turns(_closest_first(walk.complete), names)
    uncut_partial, cut_partial = _cut_u_turns(_closest_first(walk.partial), names)
    complete = _without_loops(complete, names)
    partial = dict.fromkeys([*_without_loops(uncut_partial, names), *cut_complete, *cut_partial])
    return Instantiation(
        path=path,
        complete=complete,
        partial=tuple(sorted(partial, key=lambda chain: -chain.length)),
        max_length=max((chain.length for chain in (*complete, *partial)), default=0),
        names=names,
        known=frozenset(walk.known).union(*bound),
        truncated=walk.truncated,
        dropped=frozenset(walk.dropped),
    )


@dataclass
class _Walk:
    """The state of one breadth-first walk."""

    kg: GraphLookups
    frontier: int
    complete: list[CostedChain] = field(default_factory=list)
    partial: list[CostedChain] = field(default_factory=list)
    known: set[str] = field(default_factory=set)
    truncated: bool = False
    dropped: set[Node] = field(default_factory=set)

    async def step(self, layer: Sequence[CostedChain], predicted: str, similar: Sequence[str]) -> list[CostedChain]:
        """Make one hop from every chain. Store the chains that end here, and return the next layer."""
        found = await follow(await self._moves(layer, predicted, similar), self.kg, frontier=self.frontier)
        self.partial += [costed for costed in layer if costed.chain not in found.moved]
        self.truncated |= found.truncated
        self.dropped |= found.dropped
        self.complete += found.ended
        return found.open

    async def _moves(self, layer: Sequence[CostedChain], predicted: str, similar: Sequence[str]) -> list[Move]:
        """Return the relations to follow, in the order of the layer."""
        at = await self.kg.relations(list(dict.fromkeys(costed.chain.entity for costed in layer)))
        self.known.update(relation.name for relations in at.values() for relation in relations)
        distance = {name: rank for rank, name in enumerate(similar, start=1)}
        if predicted in distance:
            distance[predicted] = 0
        return [
            Move(cost + distance[relation.name], chain, relation)
            for cost, chain, _ in layer
            for relation in at[chain.entity]
            if relation.name in distance and (relation.name == predicted or relation.name not in chain.path)
        ]


def _closest_first(chains: Iterable[CostedChain]) -> list[GroundedPath]:
    return [costed.chain for costed in sorted(chains, key=lambda costed: costed.cost)]


def _cut_u_turns(
    chains: Iterable[GroundedPath], names: Names
) -> tuple[tuple[GroundedPath, ...], tuple[GroundedPath, ...]]:
    """Return the chains without a U-turn at an unnamed node (§8.4), and the others, cut at that node."""
    straight: list[GroundedPath] = []
    cut: list[GroundedPath] = []
    for chain in chains:
        turn = first_u_turn(chain, names)
        if turn is None:
            straight.append(chain)
        else:
            cut.append(chain.first(turn))
    return tuple(straight), tuple(cut)


def _without_loops(chains: Sequence[GroundedPath], names: Names) -> tuple[GroundedPath, ...]:
    """Drop the chains that cross a fact of several parts and come back, unless no other chain is left."""
    return tuple(chain for chain in chains if not _comes_back(chain, names)) or tuple(chains)


def _comes_back(chain: GroundedPath, names: Names) -> bool:
    """Return whether an unnamed node leads back to the node before it, or is reached twice."""
    nodes = chain.nodes
    unnamed = [at for at in range(1, len(nodes)) if node_name(nodes[at], names) is None]
    return len({nodes[at] for at in unnamed}) < len(unnamed) or returns(chain, names)
