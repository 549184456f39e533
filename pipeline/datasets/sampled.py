"""A fair sample of another dataset's questions: what a cost is estimated from before all of them are asked."""

from __future__ import annotations

import hashlib
from collections import defaultdict
from collections.abc import Iterator, Sequence
from itertools import islice
from typing import Any

from pydantic import ConfigDict, PositiveInt
from pydantic.dataclasses import dataclass

from pipeline.datasets.port import Reject
from pipeline.types import Example, Triple


@dataclass(kw_only=True, config=ConfigDict(extra="forbid"))
class Sampled:
    """The first questions of another dataset in `fair_order`; the graph is its own."""

    dataset: Any
    questions: PositiveInt
    limit: PositiveInt | None
    """Draw from so many questions at its beginning; None draws from all."""

    @property
    def name(self) -> str:
        """The other one's: its questions are the same ones."""
        return str(self.dataset.name)

    @property
    def split(self) -> str:
        return str(self.dataset.split)

    def examples(self, reject: Reject) -> Iterator[Example]:
        """Read all of the questions, and yield the sample."""
        yield from fair_order(list(islice(self.dataset.examples(reject), self.limit)))[: self.questions]

    def triples(self) -> Iterator[Triple]:
        """The other one's graph."""
        yield from self.dataset.triples()


def fair_order(examples: Sequence[Example]) -> list[Example]:
    """An order that is the same every time, in which each kind of question is spread evenly over the whole.

    The kind is what scores are broken down by: type, level and hops. Within a kind the order is that of a hash.
    """
    kinds: defaultdict[tuple[str, ...], list[tuple[bytes, int]]] = defaultdict(list)
    for place, example in enumerate(examples):
        meta = example.question.meta
        kind = tuple(str(meta.get(name)) for name in ("type", "level", "hops"))
        kinds[kind].append((hashlib.blake2b(example.question.id.encode(), digest_size=8).digest(), place))
    spread = sorted(
        ((rank + 0.5) / len(members), key, place)
        for members in kinds.values()
        for rank, (key, place) in enumerate(sorted(members))
    )
    return [examples[place] for *_, place in spread]
