"""A stratified subsample of another dataset's questions, from which the cost of asking all of them is estimated."""

from __future__ import annotations

import hashlib
from collections import defaultdict
from collections.abc import Iterator, Sequence

from pydantic import ConfigDict, PositiveInt
from pydantic.dataclasses import dataclass

from pipeline.datasets.interface import DerivedDataset, Reject
from pipeline.datasets.selection import Selection
from pipeline.types import Example


@dataclass(kw_only=True, config=ConfigDict(extra="forbid"))
class Subsample(DerivedDataset):
    """The first questions of another dataset in `stratified_order`, with that dataset's name, split and graph."""

    questions: PositiveInt
    limit: PositiveInt | None = None
    """With `sample` and `sample_seed`, selects the questions to draw from (`Selection`)."""
    sample: PositiveInt | None = None
    sample_seed: int = 0

    def examples(self, reject: Reject) -> Iterator[Example]:
        """Read all questions and yield the subsample."""
        selection = Selection(self.limit, self.sample, self.sample_seed)
        yield from stratified_order(list(selection.select(self.dataset.examples(reject))))[: self.questions]


def stratified_order(examples: Sequence[Example]) -> list[Example]:
    """Return the examples in a fixed order in which every prefix holds each stratum in its overall proportion.

    A stratum is a combination of type, level and hops. Inside a stratum the order is that of a hash of the id.
    """
    strata: defaultdict[tuple[str, ...], list[tuple[bytes, int]]] = defaultdict(list)
    for index, example in enumerate(examples):
        meta = example.question.meta
        stratum = tuple(str(meta.get(name)) for name in ("type", "level", "hops"))
        strata[stratum].append((hashlib.blake2b(example.question.id.encode(), digest_size=8).digest(), index))
    spread = sorted(
        ((rank + 0.5) / len(members), key, index)
        for members in strata.values()
        for rank, (key, index) in enumerate(sorted(members))
    )
    return [examples[index] for *_, index in spread]
