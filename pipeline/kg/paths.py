"""Finds, follows and ranks relation paths that lead to gold answers (specification §7.1).

For building references, collecting training data and the oracle. Methods do not use it: they see no gold answers.
"""

from __future__ import annotations

import asyncio
from collections import Counter, defaultdict
from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass
from itertools import product

from pipeline.kg.interface import GraphLookups, Neighbours, node_order
from pipeline.kg.inverses import path_as_offered
from pipeline.normalisation import normalise
from pipeline.types import Direction, EntityId, GoldAnswer, LiteralNode, Node, Relation, RelationPath

MAX_FRONTIER = 2000
"""The most nodes of a layer from which a search, or the following of a path, goes on."""
MAX_NEIGHBOURS = 500
"""The most nodes that one hop contributes when a path is followed."""
_HUB = 200
"""A search does not follow hops that lead to more nodes than this."""
_MAX_NAMESAKES = 50
"""Entities that one gold name may refer to."""
_MAX_CANDIDATES = 16
"""Shortest paths that are followed to rank them: those through the most meeting points."""
_DIRECTIONS: tuple[Direction, Direction] = ("out", "in")


async def gold_paths(
    kg: GraphLookups,
    topic: EntityId,
    known: Sequence[RelationPath],
    answers: Sequence[GoldAnswer],
    *,
    max_hops: int = 4,
) -> list[RelationPath]:
    """Return relation paths from `topic` that reach a gold answer in this graph, best first; may be empty.

    They consist of relations that entities offer (`path_as_offered`). Try in this order: the `known` paths of the
    dataset; the same relations in other directions, because not every dataset records directions; the shortest paths in
    the graph, unless `leading_paths` explains the answer.
    """
    inverses = await kg.inverses()
    short = [path_as_offered(path, inverses) for path in known if len(path) <= max_hops]
    reaching = await rank_paths(kg, topic, short, answers)
    if not reaching:
        redirected = (path_as_offered(path, inverses) for path in _redirected(short))
        reaching = await rank_paths(kg, topic, redirected, answers)
    if reaching or await leading_paths(kg, topic, short, answers):
        return reaching
    return await find_paths(kg, topic, answers, max_hops=max_hops)


async def leading_paths(
    kg: GraphLookups, topic: EntityId, known: Sequence[RelationPath], answers: Sequence[GoldAnswer]
) -> list[RelationPath]:
    """Return the `known` paths that reach any node, if no gold answer is an entity of this graph; else none.

    The answer is then computed from the nodes that they reach: a count is their number, for example. If none reaches
    a node, the same relations in other directions are tried, because not every dataset records directions.
    """
    gold = await GoldNodes.resolve(kg, answers)
    if not known or any((await kg.relations(sorted(gold.ids))).values()):
        return []
    for paths in (known, _redirected(known)):
        ends = await asyncio.gather(*(instantiate(kg, topic, path) for path in paths))
        if leading := [path for path, end in zip(paths, ends, strict=True) if end.nodes]:
            return leading
    return []


async def find_paths(
    kg: GraphLookups, topic: EntityId, answers: Sequence[GoldAnswer], *, max_hops: int = 4
) -> list[RelationPath]:
    """Return the shortest relation paths from `topic` to any gold answer, in the order of `rank_paths`; may be empty.

    Search from both ends and avoid hubs. Costs two batched lookups per layer.
    """
    gold = await GoldNodes.resolve(kg, answers)
    forward, backward = _SearchSide([topic]), _SearchSide(gold.ids - {topic})
    found: list[RelationPath] = []
    while not found and forward.depth < max_hops and not _is_exhausted(forward, backward, max_hops):
        for node in await forward.grow(kg):
            if isinstance(node, LiteralNode) and node in gold:
                backward.paths[node] = {()}
        found = _meeting_paths(forward, backward, max_hops)
        if not found and forward.depth + backward.depth < max_hops and backward.depth < max_hops // 2:
            await backward.grow(kg)
            found = _meeting_paths(forward, backward, max_hops)
    inverses = await kg.inverses()
    offered = dict.fromkeys(path_as_offered(path, inverses) for path in found)
    return await _rank(kg, topic, list(offered), gold)


async def rank_paths(
    kg: GraphLookups, topic: EntityId, paths: Iterable[RelationPath], answers: Sequence[GoldAnswer]
) -> list[RelationPath]:
    """Return the paths that reach a gold answer, by most gold answers, fewest other nodes, length, and position."""
    distinct = [path for path in dict.fromkeys(paths) if path]
    return await _rank(kg, topic, distinct, await GoldNodes.resolve(kg, answers)) if distinct else []


async def instantiate(kg: GraphLookups, topic: EntityId, path: Sequence[Relation]) -> Neighbours:
    """Return the nodes at the end of a path, at most `MAX_NEIGHBOURS` from each hop. One batched lookup per layer."""
    nodes: Collection[Node] = [topic]
    truncated = False
    for relation in path:
        sources = [node for node in nodes if isinstance(node, str)]
        reached = await kg.neighbours([(source, relation) for source in sources[:MAX_FRONTIER]], MAX_NEIGHBOURS)
        truncated |= len(sources) > MAX_FRONTIER or any(hop.truncated for hop in reached.values())
        nodes = sorted({node for hop in reached.values() for node in hop.nodes}, key=node_order)
    return Neighbours(tuple(nodes), truncated)


async def _rank(
    kg: GraphLookups, topic: EntityId, paths: Sequence[RelationPath], gold: GoldNodes
) -> list[RelationPath]:
    ends = await asyncio.gather(*(instantiate(kg, topic, path) for path in paths))
    hits = [sum(node in gold for node in end.nodes) for end in ends]
    order = sorted(
        (position for position in range(len(paths)) if hits[position]),
        key=lambda at: (-hits[at], len(ends[at].nodes) - hits[at], len(paths[at])),
    )
    return [paths[position] for position in order]


@dataclass(frozen=True, slots=True)
class GoldNodes:
    """The nodes of a graph that are gold answers. `node in gold_nodes` tests one."""

    ids: frozenset[EntityId]
    names: frozenset[str]
    """Normal forms of the names, which literals are compared with."""

    @classmethod
    async def resolve(cls, kg: GraphLookups, answers: Sequence[GoldAnswer]) -> GoldNodes:
        """Look up the gold answers: by id, and by name if an answer has no id."""
        names_without_id = sorted(
            {name for answer in answers if not answer.id for name in (answer.name, *answer.aliases)}
        )
        named = await kg.find_by_name(names_without_id, _MAX_NAMESAKES) if names_without_id else {}
        ids = {answer.id for answer in answers if answer.id}.union(*named.values())
        names = {normalise(name) for answer in answers for name in (answer.name, *answer.aliases)}
        return cls(frozenset(ids), frozenset(names))

    def __contains__(self, node: object) -> bool:
        return normalise(node.value) in self.names if isinstance(node, LiteralNode) else node in self.ids


class _SearchSide:
    """One end of a search from both ends: the nodes reached so far, with the shortest relation paths to each."""

    def __init__(self, starts: Iterable[EntityId]) -> None:
        self._frontier = sorted(starts)
        self.paths: dict[Node, set[RelationPath]] = {start: {()} for start in self._frontier}
        self.depth = 0
        self.complete = bool(self._frontier)
        """False if there is no start node, or if part of the graph was skipped at a hub or in a large layer."""

    async def grow(self, kg: GraphLookups) -> Collection[Node]:
        """Search one layer further and return the new nodes."""
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
        self.complete &= len(entities) <= MAX_FRONTIER
        self._frontier = entities[:MAX_FRONTIER]
        return new.keys()


def _is_exhausted(forward: _SearchSide, backward: _SearchSide, max_hops: int) -> bool:
    """Return whether no path is left: all surroundings of the gold answers are known, and the ends did not meet."""
    return backward.complete and forward.depth + backward.depth >= max_hops


def _meeting_paths(forward: _SearchSide, backward: _SearchSide, max_hops: int) -> list[RelationPath]:
    """Return the shortest paths through nodes that both ends have reached, those through the most such nodes first."""
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
    return sorted(support, key=lambda path: (-support[path], path))[:_MAX_CANDIDATES]


def _redirected(paths: Iterable[RelationPath]) -> list[RelationPath]:
    """Return each path with its relations in every combination of directions."""
    return [
        tuple(Relation(relation.name, direction) for relation, direction in zip(path, directions, strict=True))
        for path in paths
        for directions in product(_DIRECTIONS, repeat=len(path))
    ]


def _reverse(path: RelationPath) -> RelationPath:
    return tuple(Relation(name, "out" if direction == "in" else "in") for name, direction in reversed(path))
