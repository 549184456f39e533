"""Grounds a question without topic entities: finds the nodes that it mentions and their paths to its gold answers.

GRBench stores neither entities nor paths (specification §10.6). A mention is a node whose text occurs in the question.
A path follows listed edges. It ends in a feature value that is a gold answer, or in neighbours whose count is a gold
answer.
"""

from __future__ import annotations

import asyncio
import re
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, Protocol

from pipeline.kg.interface import AttributedGraph, Batch, Hop, Neighbours
from pipeline.types import Entity, EntityId, Gold, GoldAnswer, Relation, RelationPath

_WORD = re.compile(r"\S+")
_PUNCTUATION = "\"'.,;:?!“”‘’"
_COUNT = re.compile(r"\b(?:how many|number|count)\b", re.IGNORECASE)
_MAX_MENTION_WORDS = 40
_MAX_QUESTION_WORDS = 400
"""Only these first words of a question are searched for mentions."""
_MAX_NAMESAKES = 3
"""Nodes per mentioned name."""
_MAX_TOPICS = 4
_MAX_HOPS = 3
_HUB = 200
"""An edge type with more neighbours than this is not followed."""
_MAX_FRONTIER = 500
"""Lookups per hop."""


class GroundingGraph(AttributedGraph, Protocol):
    """The lookups that grounding needs."""

    async def neighbours(self, hops: list[Hop], limit: int) -> Batch[Hop, Neighbours]: ...
    async def find_by_name(self, names: list[str], limit: int) -> Batch[str, list[EntityId]]: ...


@dataclass(frozen=True, slots=True)
class Grounding:
    """The topics of a question and their paths to gold; all empty if no path is found."""

    topics: tuple[Entity, ...] = ()
    paths: Mapping[EntityId, tuple[RelationPath, ...]] = field(default_factory=dict)
    features: frozenset[str] = frozenset()
    """Names in `paths` that are node features."""
    gold: Gold = field(default_factory=Gold)
    """The gold answers; the one text of GRBench is split into its items."""


async def ground(text: str, gold: Gold, kg: GroundingGraph) -> Grounding:
    """Return the mentioned nodes from which gold can be reached, and their paths."""
    topics = await _mentioned(text, kg)
    sought = ", ".join(answer.name for answer in gold.answers)
    reached = await asyncio.gather(*(_explore(topic.id, sought, kg) for topic in topics))
    if sought.isdigit() and _COUNT.search(text):
        for topic, paths_to_gold in zip(topics, reached, strict=True):
            if paths_to_gold.degree:
                return Grounding((topic,), {topic.id: (paths_to_gold.degree,)}, gold=gold)
    reaching = [(topic, found) for topic, found in zip(topics, reached, strict=True) if found.items]
    paths = {topic.id: found.best for topic, found in reaching}
    items = {item for _, found in reaching for path in found.best[:1] for item in found.items[path]}
    answers = tuple(GoldAnswer(item) for item in sorted(items, key=sought.find))
    features = frozenset(path[-1].name for best in paths.values() for path in best)
    return Grounding(tuple(topic for topic, _ in reaching), paths, features, Gold(answers) if answers else gold)


@dataclass(slots=True)
class _PathsToGold:
    """The paths from one topic to gold."""

    items: dict[RelationPath, set[str]] = field(default_factory=lambda: defaultdict(set))
    """Path that ends in a feature → its values that occur in gold."""
    degree: RelationPath | None = None
    """The first path to as many neighbours of one node as the gold number."""

    @property
    def best(self) -> tuple[RelationPath, ...]:
        """The paths that end in a feature: most gold values first, then shortest."""
        covered = {path: sum(map(len, items)) for path, items in self.items.items()}
        return tuple(sorted(self.items, key=lambda path: (-covered[path], len(path), path)))


async def _mentioned(text: str, kg: GroundingGraph) -> list[Entity]:
    """Return the nodes whose whole text is a part of the question: longest parts first, without overlap."""
    words = [match.span() for match in _WORD.finditer(text)][:_MAX_QUESTION_WORDS]
    spans = [(a, b) for at, (a, _) in enumerate(words) for _, b in words[at : at + _MAX_MENTION_WORDS]]
    named = {name: (a, b) for a, b in reversed(spans) for name in _spellings(text[a:b])}
    found = await kg.find_by_name(sorted(named), _MAX_NAMESAKES)
    topics: list[Entity] = []
    taken: list[tuple[int, int]] = []
    for name in sorted((name for name in named if found[name]), key=lambda name: (-len(name), name)):
        start, end = named[name]
        if all(end <= a or b <= start for a, b in taken):
            taken.append((start, end))
            topics += [Entity(id, name) for id in found[name]]
    return topics[:_MAX_TOPICS]


def _spellings(part: str) -> Iterable[str]:
    """Return a part of a question with and without surrounding punctuation and a possessive ending."""
    stripped = [part.strip(characters) for characters in ("", "?.,!", _PUNCTUATION, f"{_PUNCTUATION}()[]")]
    spellings = [text.removesuffix(ending) for text in stripped for ending in ("", "'s", "’s")]
    return {text for text in spellings if len(text) > 1}


async def _explore(topic: EntityId, sought: str, kg: GroundingGraph) -> _PathsToGold:
    """Search hop by hop for features whose value occurs in gold, and for the first degree that is the gold number."""
    found = _PathsToGold()
    layer: dict[RelationPath, list[EntityId]] = {(): [topic]}
    for hop in range(_MAX_HOPS + 1):
        nodes = sorted({node for ends in layer.values() for node in ends})
        features, degrees = await kg.features(nodes), await kg.degrees(nodes)
        for path, ends in layer.items():
            for end in ends:
                _collect(found, path, features[end], sought)
            if len(ends) == 1 and found.degree is None:
                found.degree = _degree(path, degrees[ends[0]], sought)
        if found.items or hop == _MAX_HOPS:
            break
        layer = await _next_layer(layer, degrees, kg)
    return found


async def _next_layer(
    layer: Mapping[RelationPath, list[EntityId]], degrees: Mapping[EntityId, Any], kg: GroundingGraph
) -> dict[RelationPath, list[EntityId]]:
    """Follow every listed edge type by one hop, except at hubs."""
    hops = [
        (path, (end, Relation(edge, "out")))
        for path, ends in layer.items()
        for end in ends
        for edge, count in (degrees[end] or {}).items()
        if 0 < count <= _HUB
    ][:_MAX_FRONTIER]
    found = await kg.neighbours([hop for _, hop in hops], _HUB)
    longer: dict[RelationPath, dict[EntityId, None]] = {}
    for path, hop in hops:
        ends = longer.setdefault((*path, hop[1]), {})
        ends.update(dict.fromkeys(node for node in found[hop].nodes if isinstance(node, str)))
    return {path: list(ends) for path, ends in longer.items()}


def _collect(found: _PathsToGold, path: RelationPath, features: Mapping[str, Any] | None, sought: str) -> None:
    for name, value in (features or {}).items():
        for text in _texts(value):
            if f", {text}, " in f", {sought}, ":
                found.items[*path, Relation(name, "out")].add(text)


def _degree(path: RelationPath, degrees: Mapping[str, int] | None, sought: str) -> RelationPath | None:
    edges = (edge for edge, count in (degrees or {}).items() if str(count) == sought)
    return next(((*path, Relation(edge, "out")) for edge in edges), None)


def _texts(value: Any) -> Iterator[str]:
    for item in value if isinstance(value, list) else [value]:
        if item is not None and (text := str(item).strip()):
            yield text
