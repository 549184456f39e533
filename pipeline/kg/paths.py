"""Relation paths between entities: found, followed and judged by the gold answers they reach (methods.md §7.1).

Only offline work and the oracle ask for these; no method does.
"""

from __future__ import annotations

import asyncio
from collections import Counter, defaultdict
from collections.abc import Collection, Container, Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise, product
from random import Random
from typing import TypeAlias

from pipeline.kg.port import GraphLookups, Neighbours, node_order
from pipeline.text import normalise
from pipeline.types import Direction, EntityId, GoldAnswer, LiteralNode, Node, Relation

RelationPath: TypeAlias = tuple[Relation, ...]

_HUB = 200
"""A search does not go through a hop that leads to more nodes than this."""
_FRONTIER = 2000
"""Nodes that a layer of a search, or of following a path, goes on from."""
_NEIGHBOURS = 500
"""Nodes that one hop contributes when a path is followed."""
_NAMESAKES = 50
"""Entities that one gold name may stand for."""
_DIRECTIONS: tuple[Direction, Direction] = ("out", "in")
_SAMPLE = 50
"""Nodes of a layer that decide whether it is one of mediators."""
_CANDIDATES = 16
"""Shortest paths that are followed to see how good they are: those with the most support."""


async def gold_paths(
    kg: GraphLookups,
    topic: EntityId,
    known: Sequence[RelationPath],
    answers: Sequence[GoldAnswer],
    *,
    max_hops: int = 4,
) -> list[RelationPath]:
    """Relation paths from `topic` that reach a gold answer in this graph, the best first; may be empty.

    Those that the dataset knows, if they do; else their relations in other directions, which not every dataset
    records; else the shortest that there are. No search is made for an answer that `leading_paths` explains.
    """
    short = [path for path in known if len(path) <= max_hops]
    reaching = await rank_paths(kg, topic, short, answers) or await rank_paths(kg, topic, _turned(short), answers)
    if reaching or await leading_paths(kg, topic, short, answers):
        return reaching
    return await find_paths(kg, topic, answers, max_hops=max_hops)


async def leading_paths(
    kg: GraphLookups, topic: EntityId, known: Sequence[RelationPath], answers: Sequence[GoldAnswer]
) -> list[RelationPath]:
    """Those of the dataset's paths that lead anywhere, if no gold answer is an entity of this graph; else none.

    They lead to what the answer is made of: the things of which a count is the number, for one.
    """
    gold = await _Targets.resolve(kg, answers)
    if not known or any((await kg.relations(sorted(gold.ids))).values()):
        return []
    ends = await asyncio.gather(*(instantiate(kg, topic, path) for path in known))
    return [path for path, end in zip(known, ends, strict=True) if end.nodes]


async def find_paths(
    kg: GraphLookups, topic: EntityId, answers: Sequence[GoldAnswer], *, max_hops: int = 4
) -> list[RelationPath]:
    """The shortest relation paths from `topic` to any gold answer, verified, the best first; may be empty.

    Searches from both ends, two batched lookups per layer, around hubs. Order as in `rank_paths`.
    """
    gold = await _Targets.resolve(kg, answers)
    forward, backward = _Side([topic]), _Side(gold.ids - {topic})
    found: list[RelationPath] = []
    while not found and forward.depth < max_hops and not _exhausted(forward, backward, max_hops):
        for node in await forward.grow(kg):
            if isinstance(node, LiteralNode) and node in gold:
                backward.paths[node] = {()}
        found = _meet(forward, backward, max_hops)
        if not found and forward.depth + backward.depth < max_hops and backward.depth < max_hops // 2:
            await backward.grow(kg)
            found = _meet(forward, backward, max_hops)
    return await _rank(kg, topic, found, gold)


async def rank_paths(
    kg: GraphLookups, topic: EntityId, paths: Iterable[RelationPath], answers: Sequence[GoldAnswer]
) -> list[RelationPath]:
    """Those of `paths` that reach a gold answer: most gold first, then fewest other nodes, shortest, as given."""
    distinct = [path for path in dict.fromkeys(paths) if path]
    return await _rank(kg, topic, distinct, await _Targets.resolve(kg, answers)) if distinct else []


async def instantiate(
    kg: GraphLookups, topic: EntityId, path: Sequence[Relation], *, limit: int = _NEIGHBOURS
) -> Neighbours:
    """The nodes that a path ends in, each hop contributing at most `limit` nodes; one batched lookup per layer."""
    nodes: Collection[Node] = [topic]
    truncated = False
    for relation in path:
        sources = [node for node in nodes if isinstance(node, str)]
        reached = await kg.neighbours([(source, relation) for source in sources[:_FRONTIER]], limit)
        truncated |= len(sources) > _FRONTIER or any(hop.truncated for hop in reached.values())
        nodes = sorted({node for hop in reached.values() for node in hop.nodes}, key=node_order)
    return Neighbours(tuple(nodes), truncated)


async def waypoints(kg: GraphLookups, topic: EntityId, path: Sequence[Relation], goals: Container[Node]) -> set[Node]:
    """The nodes between `topic` and the end of a path from which it goes on to a goal; lookups as `instantiate`."""
    _, *inner = await _leading(kg, topic, path, goals)
    return set().union(*inner)


async def draw_walk(
    kg: GraphLookups, topic: EntityId, path: Sequence[Relation], goals: Container[Node], random: Random
) -> tuple[Node, ...] | None:
    """The nodes that a path leads through from `topic` to a goal, drawn at random; None where there is no such walk.

    No node is come to twice, unless goals can only be reached so. Lookups as `instantiate`.
    """
    ahead = await _leading(kg, topic, path, goals)
    return _drawn((topic,), ahead, random, returning=False) or _drawn((topic,), ahead, random, returning=True)


def _drawn(
    walk: tuple[Node, ...], ahead: Sequence[Mapping[Node, Sequence[Node]]], random: Random, *, returning: bool
) -> tuple[Node, ...] | None:
    if not ahead:
        return walk[1:]
    onwards = [node for node in ahead[0].get(walk[-1], ()) if returning or node not in walk]
    tries = (
        _drawn((*walk, node), ahead[1:], random, returning=returning) for node in random.sample(onwards, len(onwards))
    )
    return next(filter(None, tries), None)


async def _leading(
    kg: GraphLookups, topic: EntityId, path: Sequence[Relation], goals: Container[Node]
) -> list[dict[Node, list[Node]]]:
    """Per hop of a path, the nodes from which it leads to a goal, each with those that it leads there by."""
    layers: list[dict[Node, tuple[Node, ...]]] = []
    nodes: Collection[Node] = [topic]
    for relation in path:
        sources = [node for node in nodes if isinstance(node, str)][:_FRONTIER]
        reached = await kg.neighbours([(source, relation) for source in sources], _NEIGHBOURS)
        layers.append({source: hop.nodes for (source, _), hop in reached.items()})
        nodes = sorted({node for hop in reached.values() for node in hop.nodes}, key=node_order)
    found: list[dict[Node, list[Node]]] = []
    ahead: Container[Node] = goals
    for layer in reversed(layers):
        kept = {source: [end for end in ends if end in ahead] for source, ends in layer.items()}
        ahead = {source: ends for source, ends in kept.items() if ends}
        found.append(ahead)
    return found[::-1]


async def answer_nodes(kg: GraphLookups, answers: Sequence[GoldAnswer]) -> Container[Node]:
    """The nodes of this graph that are gold answers: entities by id or name, literals by their text."""
    return await _Targets.resolve(kg, answers)


@dataclass(frozen=True, slots=True)
class Leg:
    """A stretch of a relation path that a speaker would call one step: between named nodes, through any mediators."""

    starts: frozenset[Node]
    """Where it sets out from."""
    relations: RelationPath
    """One relation, or several through mediators."""
    nodes: frozenset[Node]
    """Where it leads."""
    leading: frozenset[Node]
    """Those of them that lie on the way to a gold answer."""


async def legs(kg: GraphLookups, topic: EntityId, path: RelationPath, answers: Sequence[GoldAnswer]) -> tuple[Leg, ...]:
    """Cut a path from `topic` at its named nodes, and say where each leg leads.

    No node is come to twice, unless gold answers can only be reached so. Costs one batched lookup per layer (twice that
    in the latter case), one for names, and one for gold answers that have no id.
    """
    gold = await _Targets.resolve(kg, answers)
    chains = await _chains(kg, topic, path, returning=False)
    leading = [chain for chain in chains if chain[-1] in gold]
    if not leading:
        returning = await _chains(kg, topic, path, returning=True)
        leading = [chain for chain in returning if chain[-1] in gold]
        chains = returning if leading else chains
    if not chains:
        return ()
    return tuple(
        Leg(
            starts=frozenset(chain[start] for chain in chains),
            relations=path[start:end],
            nodes=frozenset(chain[end] for chain in chains),
            leading=frozenset(chain[end] for chain in leading),
        )
        for start, end in await _cuts(kg, chains, len(path))
    )


async def _chains(kg: GraphLookups, topic: EntityId, path: RelationPath, *, returning: bool) -> list[tuple[Node, ...]]:
    """The nodes along a path, chain by chain, at most so many; `returning` ones come to a node twice."""
    chains: list[tuple[Node, ...]] = [(topic,)]
    for relation in path:
        sources = sorted({chain[-1] for chain in chains if isinstance(chain[-1], str)})
        reached = await kg.neighbours([(source, relation) for source in sources], _NEIGHBOURS) if sources else {}
        chains = [
            (*chain, node)
            for chain in chains
            if isinstance(chain[-1], str)
            for node in reached[chain[-1], relation].nodes
            if returning or node not in chain
        ][:_FRONTIER]
    return chains


async def _cuts(kg: GraphLookups, chains: Sequence[tuple[Node, ...]], length: int) -> list[tuple[int, int]]:
    """Where each leg starts and ends on the chains: at the layers that have a named node or a literal."""
    layers = [sorted({chain[at] for chain in chains}, key=node_order)[:_SAMPLE] for at in range(1, length)]
    entities = sorted({node for layer in layers for node in layer if isinstance(node, str)})
    names = await kg.labels(entities) if entities else {}
    unnamed = {id for id, name in names.items() if name is None}
    stops = [0, *(at for at, layer in enumerate(layers, start=1) if not unnamed.issuperset(layer)), length]
    return list(pairwise(stops))


async def _rank(kg: GraphLookups, topic: EntityId, paths: Sequence[RelationPath], gold: _Targets) -> list[RelationPath]:
    ends = await asyncio.gather(*(instantiate(kg, topic, path) for path in paths))
    hits = [sum(node in gold for node in end.nodes) for end in ends]
    order = sorted(
        (position for position in range(len(paths)) if hits[position]),
        key=lambda at: (-hits[at], len(ends[at].nodes) - hits[at], len(paths[at])),
    )
    return [paths[position] for position in order]


@dataclass(frozen=True, slots=True)
class _Targets:
    """The nodes of a graph that are gold answers."""

    ids: frozenset[EntityId]
    names: frozenset[str]
    """Normal forms; they decide for literals."""

    @classmethod
    async def resolve(cls, kg: GraphLookups, answers: Sequence[GoldAnswer]) -> _Targets:
        """Entities by id; an answer without an id by its names."""
        unnumbered = sorted({name for answer in answers if not answer.id for name in (answer.name, *answer.aliases)})
        named = await kg.find_by_name(unnumbered, _NAMESAKES) if unnumbered else {}
        ids = {answer.id for answer in answers if answer.id}.union(*named.values())
        names = {normalise(name) for answer in answers for name in (answer.name, *answer.aliases)}
        return cls(frozenset(ids), frozenset(names))

    def __contains__(self, node: object) -> bool:
        return normalise(node.value) in self.names if isinstance(node, LiteralNode) else node in self.ids


class _Side:
    """One end of a search: every node reached so far, with the shortest relation paths from the start to it."""

    def __init__(self, starts: Iterable[EntityId]) -> None:
        self._frontier = sorted(starts)
        self.paths: dict[Node, set[RelationPath]] = {start: {()} for start in self._frontier}
        self.depth = 0
        self.complete = bool(self._frontier)
        """False when there was nowhere to start, and once a hub or a cut layer hid part of the graph."""

    async def grow(self, kg: GraphLookups) -> Collection[Node]:
        """Go one layer further and return the nodes that are new."""
        self.depth += 1
        relations = await kg.relations(self._frontier) if self._frontier else {}
        hops = [(entity, relation) for entity in self._frontier for relation in relations[entity]]
        new: defaultdict[Node, set[RelationPath]] = defaultdict(set)
        for (entity, relation), reached in (await kg.neighbours(hops, _HUB) if hops else {}).items():
            fresh = [] if reached.truncated else [node for node in reached.nodes if node not in self.paths]
            longer = [(*path, relation) for path in self.paths[entity]] if fresh else []
            for node in fresh:
                new[node].update(longer)
            self.complete &= not reached.truncated
        self.paths.update(new)
        entities = sorted(node for node in new if isinstance(node, str))
        self.complete &= len(entities) <= _FRONTIER
        self._frontier = entities[:_FRONTIER]
        return new.keys()


def _exhausted(forward: _Side, backward: _Side, max_hops: int) -> bool:
    """Whether going on could find nothing: the ends would have met, for all of the far end's surroundings is known."""
    return backward.complete and forward.depth + backward.depth >= max_hops


def _meet(forward: _Side, backward: _Side, max_hops: int) -> list[RelationPath]:
    """The shortest paths through the nodes that both ends have reached, those through most nodes first."""
    lengths = {
        node: len(next(iter(forward.paths[node]))) + len(next(iter(backward.paths[node])))
        for node in forward.paths.keys() & backward.paths.keys()
    }
    shortest = min(lengths.values(), default=max_hops + 1)
    if shortest > max_hops:
        return []
    support = Counter(
        (*there, *_reverse(back))
        for node, length in lengths.items()
        if length == shortest
        for there in forward.paths[node]
        for back in backward.paths[node]
    )
    return sorted(support, key=lambda path: (-support[path], path))[:_CANDIDATES]


def _turned(paths: Iterable[RelationPath]) -> list[RelationPath]:
    """Every way of directing the relations of each path."""
    return [
        tuple(Relation(relation.name, direction) for relation, direction in zip(path, directions, strict=True))
        for path in paths
        for directions in product(_DIRECTIONS, repeat=len(path))
    ]


def _reverse(path: RelationPath) -> RelationPath:
    return tuple(Relation(name, "out" if direction == "in" else "in") for name, direction in reversed(path))
