"""What the oracle finds out about a question that names no topic entity: the nodes it mentions, and a way to its gold.

GRBench stores neither entities nor paths (methods.md §10.6). A mention is a node whose text stands in the question; a
path leads by edges that a node lists to a feature whose value is gold, or to as many neighbours as gold says.
"""

from __future__ import annotations

import asyncio
import re
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, Protocol

from pipeline.kg.paths import RelationPath
from pipeline.kg.port import AttributedGraph, Batch, Hop, Neighbours
from pipeline.types import Entity, EntityId, Gold, GoldAnswer, Relation

_WORD = re.compile(r"\S+")
_MARKS = "\"'.,;:?!“”‘’"
_COUNT = re.compile(r"\b(?:how many|number|count)\b", re.IGNORECASE)
_LONGEST = 40
"""Words of a mention."""
_MOST_WORDS = 400
"""Words of a question that are looked at."""
_NAMESAKES = 3
_TOPICS = 4
_HOPS = 3
_HUB = 200
_FRONTIER = 500


class MentionedGraph(AttributedGraph, Protocol):
    """What grounding asks of a graph."""

    async def neighbours(self, hops: list[Hop], limit: int) -> Batch[Hop, Neighbours]: ...
    async def find_by_name(self, names: list[str], limit: int) -> Batch[str, list[EntityId]]: ...


@dataclass(frozen=True, slots=True)
class Grounded:
    """What was found out; all empty when no way to gold is known."""

    topics: tuple[Entity, ...] = ()
    paths: Mapping[EntityId, tuple[RelationPath, ...]] = field(default_factory=dict)
    features: frozenset[str] = frozenset()
    """Names in `paths` that are features."""
    gold: Gold = field(default_factory=Gold)
    """Gold with the items of the one text apart."""


async def ground(text: str, gold: Gold, kg: MentionedGraph) -> Grounded:
    """Find the mentioned nodes from which gold can be reached."""
    topics = await _mentioned(text, kg)
    sought = ", ".join(answer.name for answer in gold.answers)
    ways = await asyncio.gather(*(_explore(topic.id, sought, kg) for topic in topics))
    if sought.isdigit() and _COUNT.search(text):
        for topic, way in zip(topics, ways, strict=True):
            if way.degree:
                return Grounded((topic,), {topic.id: (way.degree,)}, gold=gold)
    reaching = [(topic, way) for topic, way in zip(topics, ways, strict=True) if way.items]
    paths = {topic.id: way.best for topic, way in reaching}
    found = {item for _, way in reaching for path in way.best[:1] for item in way.items[path]}
    answers = tuple(GoldAnswer(item) for item in sorted(found, key=sought.find))
    features = frozenset(path[-1].name for best in paths.values() for path in best)
    return Grounded(tuple(topic for topic, _ in reaching), paths, features, Gold(answers) if answers else gold)


@dataclass(slots=True)
class _Ways:
    """What can be reached from a topic."""

    items: dict[RelationPath, set[str]] = field(default_factory=lambda: defaultdict(set))
    """Per path that ends in a feature the values that stand in gold."""
    degree: RelationPath | None = None
    """The first path to as many neighbours of one node as gold says."""

    @property
    def best(self) -> tuple[RelationPath, ...]:
        """The paths, those to most of gold first, then the shortest."""
        covered = {path: sum(map(len, items)) for path, items in self.items.items()}
        return tuple(sorted(self.items, key=lambda path: (-covered[path], len(path), path)))


async def _mentioned(text: str, kg: MentionedGraph) -> list[Entity]:
    """The longest parts of the text that are the whole text of a node, without overlap, the longest first."""
    words = [match.span() for match in _WORD.finditer(text)][:_MOST_WORDS]
    spans = [(a, b) for at, (a, _) in enumerate(words) for _, b in words[at : at + _LONGEST]]
    named = {name: (a, b) for a, b in reversed(spans) for name in _spellings(text[a:b])}
    found = await kg.find_by_name(sorted(named), _NAMESAKES)
    topics: list[Entity] = []
    taken: list[tuple[int, int]] = []
    for name in sorted((name for name in named if found[name]), key=lambda name: (-len(name), name)):
        start, end = named[name]
        if all(end <= a or b <= start for a, b in taken):
            taken.append((start, end))
            topics += [Entity(id, name) for id in found[name]]
    return topics[:_TOPICS]


def _spellings(part: str) -> Iterable[str]:
    """A part of a question as it stands, and without the marks around it; a title may end in a mark of its own."""
    bare = [part.strip(marks) for marks in ("", "?.,!", _MARKS, f"{_MARKS}()[]")]
    owned = [text.removesuffix(ending) for text in bare for ending in ("", "'s", "’s")]
    return {text for text in owned if len(text) > 1}


async def _explore(topic: EntityId, sought: str, kg: MentionedGraph) -> _Ways:
    """Every feature within some hops whose value stands in gold, and the first degree that is gold."""
    ways = _Ways()
    layer: dict[RelationPath, list[EntityId]] = {(): [topic]}
    for hop in range(_HOPS + 1):
        nodes = sorted({node for ends in layer.values() for node in ends})
        features, degrees = await kg.features(nodes), await kg.degrees(nodes)
        for path, ends in layer.items():
            for end in ends:
                _collect(ways, path, features[end], sought)
            if len(ends) == 1 and ways.degree is None:
                ways.degree = _degree(path, degrees[ends[0]], sought)
        if ways.items or hop == _HOPS:
            break
        layer = await _further(layer, degrees, kg)
    return ways


async def _further(
    layer: Mapping[RelationPath, list[EntityId]], degrees: Mapping[EntityId, Any], kg: MentionedGraph
) -> dict[RelationPath, list[EntityId]]:
    """One hop along every edge that is listed, around hubs."""
    hops = [
        (path, (end, Relation(edge, "out")))
        for path, ends in layer.items()
        for end in ends
        for edge, count in (degrees[end] or {}).items()
        if 0 < count <= _HUB
    ][:_FRONTIER]
    found = await kg.neighbours([hop for _, hop in hops], _HUB)
    longer: dict[RelationPath, dict[EntityId, None]] = {}
    for path, hop in hops:
        ends = longer.setdefault((*path, hop[1]), {})
        ends.update(dict.fromkeys(node for node in found[hop].nodes if isinstance(node, str)))
    return {path: list(ends) for path, ends in longer.items()}


def _collect(ways: _Ways, path: RelationPath, features: Mapping[str, Any] | None, sought: str) -> None:
    for name, value in (features or {}).items():
        for text in _texts(value):
            if f", {text}, " in f", {sought}, ":
                ways.items[*path, Relation(name, "out")].add(text)


def _degree(path: RelationPath, degrees: Mapping[str, int] | None, sought: str) -> RelationPath | None:
    edges = (edge for edge, count in (degrees or {}).items() if str(count) == sought)
    return next(((*path, Relation(edge, "out")) for edge in edges), None)


def _texts(value: Any) -> Iterator[str]:
    for item in value if isinstance(value, list) else [value]:
        if item is not None and (text := str(item).strip()):
            yield text
