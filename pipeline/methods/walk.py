"""Walks along relations in the graph, one layer at a time, as several methods do (specification §3.6, §16.2)."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import groupby, islice
from typing import NamedTuple

from pipeline.kg.interface import GraphLookups
from pipeline.methods.grounded_path import GroundedPath
from pipeline.methods.rendering import Names, node_name
from pipeline.types import Direction, EntityId, LiteralNode, Node, Relation


class CostedChain(NamedTuple):
    """A chain of the current layer."""

    cost: int
    """The distance of its relations from the predicted ones: the sum of their ranks in the bindings."""
    chain: GroundedPath
    plan: int = 0
    """The number of the relation path that it follows, if several are walked together."""


class Move(NamedTuple):
    """A relation to follow from a chain of the current layer."""

    cost: int
    chain: GroundedPath
    relation: Relation
    plan: int = 0

    @property
    def hop(self) -> tuple[EntityId, Relation]:
        """The lookup that the move needs."""
        return self.chain.entity, self.relation


@dataclass(frozen=True, slots=True)
class Layer:
    """The chains that are one hop longer."""

    chains: tuple[CostedChain, ...]
    """The closest relations first; of equally close ones, those of all moves in turn."""
    moved: frozenset[GroundedPath]
    """The chains from which a move leads to a node, or from which no move was tried because of the limit."""
    truncated: bool
    """Whether a limit cut the layer."""
    dropped: frozenset[Node]
    """The nodes that were reached and not kept, because the layer was full."""

    @property
    def ended(self) -> list[CostedChain]:
        """The chains that end in a literal."""
        return [costed for costed in self.chains if isinstance(costed.chain.end, LiteralNode)]

    @property
    def open(self) -> list[CostedChain]:
        """The chains that can be extended."""
        return [costed for costed in self.chains if not isinstance(costed.chain.end, LiteralNode)]


async def follow(moves: Sequence[Move], kg: GraphLookups, *, frontier: int, tried: int | None = None) -> Layer:
    """Make one hop along each move, those of the lowest cost first, with one lookup. Keep at most `frontier` chains.

    At most `tried` moves are tried. None tries as many as can be kept, which is enough if each of them reaches a node.
    """
    moves = sorted(moves, key=lambda move: move.cost)
    taken = moves[: frontier if tried is None else tried]
    found = await kg.neighbours(list(dict.fromkeys(move.hop for move in taken)), frontier)
    reached = _each_edge_once((move, found[move.hop].nodes) for move in taken)
    moved = {move.chain for move, nodes in reached if nodes}
    moved.update(move.chain for move in moves[len(taken) :])
    kept = tuple(islice(_in_turn(reached), frontier))
    cut = len(moves) > len(taken) or sum(len(nodes) for _, nodes in reached) > len(kept)
    return Layer(
        chains=kept,
        moved=frozenset(moved),
        truncated=cut or any(neighbours.truncated for neighbours in found.values()),
        dropped=frozenset(node for _, nodes in reached for node in nodes).difference(each.chain.end for each in kept),
    )


def _each_edge_once(reached: Iterable[tuple[Move, Sequence[Node]]]) -> list[tuple[Move, Sequence[Node]]]:
    """Drop a move against an earlier one of the same chain to the same nodes: it takes the same edges by their inverse.

    The earlier one is closer to the predicted relation (§3.6).
    """
    kept = []
    taken: set[tuple[int, GroundedPath, Direction, tuple[Node, ...]]] = set()
    for move, nodes in reached:
        inverse = move.relation.reversed.direction
        if not nodes or (move.plan, move.chain, inverse, tuple(nodes)) not in taken:
            taken.add((move.plan, move.chain, move.relation.direction, tuple(nodes)))
            kept.append((move, nodes))
    return kept


def _in_turn(reached: Iterable[tuple[Move, Sequence[Node]]]) -> Iterator[CostedChain]:
    """Yield the chains one hop longer, by cost. Moves of equal cost take turns, one node at a time.

    So one hub never fills a whole layer, or the judge's sample of it.
    """
    for cost, group in groupby(reached, key=lambda pair: pair[0].cost):
        moves = list(group)
        for index in range(max(len(nodes) for _, nodes in moves)):
            for move, nodes in moves:
                if index < len(nodes):
                    yield CostedChain(cost, move.chain.then(move.relation, nodes[index]), move.plan)


def entities(chains: Iterable[CostedChain]) -> set[EntityId]:
    """Return all entities of some chains."""
    return {node for costed in chains for node in costed.chain.nodes if isinstance(node, str)}


def first_u_turn(chain: GroundedPath, names: Names) -> int | None:
    """Return the number of hops to the first unnamed node that is left by the same edge by which it was reached."""
    unnamed = [hops for hops in range(1, chain.length) if node_name(chain.steps[hops - 1].node, names) is None]
    if not unnamed:  # the usual case, in which the facts are not needed
        return None
    facts = chain.triples
    return next((hops for hops in unnamed if facts[hops - 1] == facts[hops]), None)


def returns(chain: GroundedPath, names: Names) -> bool:
    """Return whether an unnamed node of the chain leads back to the node before it, by any relation."""
    nodes = chain.nodes
    unnamed = (at for at in range(1, len(nodes) - 1) if node_name(nodes[at], names) is None)
    return any(nodes[at - 1] == nodes[at + 1] for at in unnamed)
