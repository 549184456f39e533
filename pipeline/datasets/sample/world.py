"""The sample world: a seeded graph of any size and its questions, both generated as a stream."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator
from functools import lru_cache
from itertools import count, islice
from math import gcd
from pathlib import Path
from random import Random
from typing import Annotated, Literal

from pydantic import ConfigDict, Field, TypeAdapter
from pydantic.dataclasses import dataclass

from pipeline.datasets.port import Reject
from pipeline.datasets.sample.facts import Facts
from pipeline.datasets.sample.hubs import build_hubs
from pipeline.datasets.sample.questions import DECKS, QUESTION_TYPES, Draft, QuestionType, View
from pipeline.datasets.sample.region import REGION_TRIPLES, build_region
from pipeline.datasets.sample.stream import Stream
from pipeline.errors import UserError
from pipeline.types import Entity, Example, Gold, GoldAnswer, Node, Question, Triple

SPLITS = ("train", "dev", "test")

_BLOCK = 10 * len(QUESTION_TYPES)
"""Consecutive questions about one region, so that a region is built once for many of them."""
_VIEWS = 3
"""Regions kept at hand while questions are drawn: all of them in a world of the default size."""
_REGION_SHIFT = 104_729
"""Moves the first draw of each region elsewhere in the deck, so that regions do not all start with the same forms."""


@dataclass(frozen=True, kw_only=True, config=ConfigDict(extra="forbid", populate_by_name=True))
class SampleWorld:
    """A generated Freebase-like graph with questions of eight types, each with gold answers, paths and SPARQL.

    Everything follows from `seed` and `triples`. Question i of a split does not depend on how many are asked for, types
    alternate, and the three splits share the graph but no question.
    """

    name: str = "sample"
    split: Literal["train", "dev", "test"] = "test"
    size: int = Field(default=20_000, alias="triples", ge=1_000, le=10_000_000)
    """Size of the graph in triples (configuration key `triples`), met within 10 %."""
    questions: int = Field(default=1_000, ge=1)
    seed: int = 7
    types: Annotated[tuple[QuestionType, ...], Field(min_length=1)] | None = None
    """The question types to keep; None keeps all eight."""
    path: Path | None = None
    """A folder to write the world to once and read it from; None generates it each time."""

    def triples(self) -> Iterator[Triple]:
        """The whole graph, in constant memory. Raises UserError when `path` cannot be written."""
        return self._graph.read(self.path) if self.path else self._graph.items()

    def examples(self, reject: Reject) -> Iterator[Example]:
        """The questions; none is ever rejected. Raises UserError when a tiny world has none of some type."""
        return self._asked.read(self.path) if self.path else self._asked.items()

    def count(self) -> int:
        """All of the questions."""
        return self.questions

    def write(self) -> None:
        """Write the graph and the questions of this split under `path`, unless they are there."""
        if self.path is None:
            raise UserError("dataset.path is not set: name the folder that the sample world is to be written to")
        self._graph.write(self.path)
        self._asked.write(self.path)

    @property
    def _graph(self) -> Stream[Triple]:
        return Stream(f"sample-{self.size}-seed{self.seed}.triples.jsonl", TypeAdapter(Triple), self._generate_triples)

    @property
    def _asked(self) -> Stream[Example]:
        kept = "" if self.types is None else "-" + "+".join(self.types)
        name = f"sample-{self.size}-seed{self.seed}-{self.split}-{self.questions}{kept}.questions.jsonl"
        return Stream(name, TypeAdapter(Example), lambda: islice(self._questions(), self.questions))

    def _generate_triples(self) -> Iterator[Triple]:
        hubs = build_hubs(self.seed)
        yield from hubs.triples
        for number in range(self._regions(hubs)):
            yield from self._region(hubs, number).triples

    def _questions(self) -> Iterator[Example]:
        """Questions without end: blocks go round the regions, and each draws on from where the region's last ended."""
        hubs = build_hubs(self.seed)
        regions = self._regions(hubs)
        drawn: defaultdict[tuple[int, QuestionType], int] = defaultdict(int)
        view = lru_cache(_VIEWS)(lambda region: View(hubs, self._region(hubs, region), region))
        for number in count():
            type = QUESTION_TYPES[number % len(QUESTION_TYPES)]
            if self.types is None or type in self.types:
                region = number // _BLOCK % regions
                rng = Random(f"sample/{self.seed}/{self.split}/{number}")
                draft, drawn[region, type] = self._draw(view(region), type, drawn[region, type], rng)
                yield self._example(number, type, draft, view(region))

    def _draw(self, view: View, type: QuestionType, position: int, rng: Random) -> tuple[Draft, int]:
        """The next question of a type about a region, and the position to go on from."""
        deck = DECKS[type]
        size = deck.size(view)
        stride = _stride(size)
        own = range(SPLITS.index(self.split), size, len(SPLITS))
        for place in range(position, position + len(own)):
            form, topic = deck.pair(view, (own[place % len(own)] * stride + view.number * _REGION_SHIFT) % size)
            draft = form.draft(view, topic, rng)
            if draft is not None:
                return draft, place + 1
        raise UserError(
            f"the sample world of dataset.triples={self.size} with dataset.seed={self.seed} has no {type} question for "
            f"dataset.split={self.split}: choose more triples, another seed or fewer dataset.types"
        )

    def _example(self, number: int, type: QuestionType, draft: Draft, view: View) -> Example:
        routes = [route for _, route in draft.topics]
        question = Question(
            id=f"sample-{self.split}-{number:06}",
            dataset=self.name,
            split=self.split,
            text=draft.text,
            topic_entities=tuple(Entity(topic, view.names[topic]) for topic, _ in draft.topics),
            meta={
                "type": type,
                "hops": max(len(route.relations) for route in routes),
                "mediators": max(route.mediators for route in routes),
            },
        )
        answers = tuple(_answer(node, view) for node in draft.answers)
        paths = {topic: (route.relations,) for topic, route in draft.topics}
        return Example(question, Gold(answers, paths, draft.sparql))

    def _regions(self, hubs: Facts) -> int:
        return max(1, round((self.size - len(hubs.triples)) / REGION_TRIPLES))

    def _region(self, hubs: Facts, number: int) -> Facts:
        budget = (self.size - len(hubs.triples)) // self._regions(hubs)
        return build_region(hubs, self.seed, number, budget)


def _answer(node: Node, view: View) -> GoldAnswer:
    if isinstance(node, str):
        return GoldAnswer(view.names[node], node, view.aliases.get(node, ()))
    return GoldAnswer(node.value)


def _stride(size: int) -> int:
    """A step that visits every number below `size` once, neighbours far apart (near the golden section)."""
    stride = max(1, round(size * 0.618034))
    while gcd(stride, size) != 1:
        stride += 1
    return stride
