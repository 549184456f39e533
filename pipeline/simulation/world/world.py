"""The synthetic world: a seeded graph of any size and its questions, both generated as a stream."""

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

from pipeline.datasets.interface import Reject
from pipeline.errors import UserError
from pipeline.simulation.world.facts import Facts
from pipeline.simulation.world.hubs import build_hubs
from pipeline.simulation.world.questions import DECKS, QUESTION_TYPES, GeneratedQuestion, QuestionType, RegionView
from pipeline.simulation.world.region import REGION_TRIPLES, build_region
from pipeline.simulation.world.stream import Stream
from pipeline.types import Entity, Example, Gold, GoldAnswer, Node, Question, Triple

SPLITS = ("train", "dev", "test")

_BLOCK = 10 * len(QUESTION_TYPES)
"""Consecutive questions about one region, so that each region is built once for many questions."""
_CACHED_REGIONS = 3
"""Regions kept in memory while questions are drawn: all regions of a world of the default size."""
_REGION_SHIFT = 104_729
"""Shifts the first draw of each region in the deck, so that regions start with different forms."""


@dataclass(frozen=True, kw_only=True, config=ConfigDict(extra="forbid", populate_by_name=True))
class SyntheticWorld:
    """A generated Freebase-like graph with questions of eight types, each with gold answers, paths and SPARQL.

    The keys are described in `conf/dataset/synthetic.yaml`.

    `seed` and `triples` determine everything. Question i of a split does not depend on `questions`. Types alternate.
    The three splits share the graph but no question.
    """

    name: str
    split: Literal["train", "dev", "test"]
    size: int = Field(alias="triples", ge=1_000, le=10_000_000)
    """Size of the graph in triples within 10 % (configuration key `triples`)."""
    questions: int = Field(ge=1)
    seed: int
    types: Annotated[tuple[QuestionType, ...], Field(min_length=1)] | None
    """Question types to keep; None keeps all eight."""
    path: Path | None
    """Folder in which the world is stored at first use; None generates it each time."""

    def triples(self) -> Iterator[Triple]:
        """Yield the whole graph, in constant memory. Raises UserError if `path` cannot be written."""
        return self._graph.read(self.path) if self.path else self._graph.items()

    def examples(self, reject: Reject) -> Iterator[Example]:
        """Yield the questions; none is rejected. Raises UserError if a small world has no question of some type."""
        return self._asked.read(self.path) if self.path else self._asked.items()

    def count(self) -> int:
        """Return the number of questions."""
        return self.questions

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
        """Yield questions without end.

        Blocks of questions go round the regions. Each block continues where the last block of its region ended.
        """
        hubs = build_hubs(self.seed)
        regions = self._regions(hubs)
        drawn: defaultdict[tuple[int, QuestionType], int] = defaultdict(int)
        view_of = lru_cache(_CACHED_REGIONS)(lambda region: RegionView(hubs, self._region(hubs, region), region))
        for number in count():
            type = QUESTION_TYPES[number % len(QUESTION_TYPES)]
            if self.types is None or type in self.types:
                region = number // _BLOCK % regions
                rng = Random(f"sample/{self.seed}/{self.split}/{number}")
                generated, drawn[region, type] = self._draw(view_of(region), type, drawn[region, type], rng)
                yield self._example(number, type, generated, view_of(region))

    def _draw(self, view: RegionView, type: QuestionType, position: int, rng: Random) -> tuple[GeneratedQuestion, int]:
        """Return the next question of a type about a region, and the position after it in the deck."""
        deck = DECKS[type]
        size = deck.size(view)
        stride = _stride(size)
        own = range(SPLITS.index(self.split), size, len(SPLITS))
        for index in range(position, position + len(own)):
            form, topic = deck.pair(view, (own[index % len(own)] * stride + view.number * _REGION_SHIFT) % size)
            generated = form.generate(view, topic, rng)
            if generated is not None:
                return generated, index + 1
        raise UserError(
            f"the synthetic world of dataset.triples={self.size} with dataset.seed={self.seed} has no {type} "
            f"question for dataset.split={self.split}: choose more triples, another seed or fewer dataset.types"
        )

    def _example(self, number: int, type: QuestionType, generated: GeneratedQuestion, view: RegionView) -> Example:
        routes = [route for _, route in generated.topics]
        question = Question(
            id=f"sample-{self.split}-{number:06}",
            dataset=self.name,
            split=self.split,
            text=generated.text,
            topic_entities=tuple(Entity(topic, view.names[topic]) for topic, _ in generated.topics),
            meta={
                "type": type,
                "hops": max(len(route.relations) for route in routes),
                "mediators": max(route.mediators for route in routes),
            },
        )
        answers = tuple(_answer(node, view) for node in generated.answers)
        paths = {topic: (route.relations,) for topic, route in generated.topics}
        return Example(question, Gold(answers, paths, generated.sparql))

    def _regions(self, hubs: Facts) -> int:
        return max(1, round((self.size - len(hubs.triples)) / REGION_TRIPLES))

    def _region(self, hubs: Facts, number: int) -> Facts:
        budget = (self.size - len(hubs.triples)) // self._regions(hubs)
        return build_region(hubs, self.seed, number, budget)


def _answer(node: Node, view: RegionView) -> GoldAnswer:
    if isinstance(node, str):
        return GoldAnswer(view.names[node], node, view.aliases.get(node, ()))
    return GoldAnswer(node.value)


def _stride(size: int) -> int:
    """Return a stride that visits every number below `size` once, close numbers far apart (near the golden ratio)."""
    stride = max(1, round(size * 0.618034))
    while gcd(stride, size) != 1:
        stride += 1
    return stride
