"""Which questions of a dataset a run asks: `run.sample` and `run.limit`."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, fields
from heapq import nsmallest
from itertools import islice
from typing import Any, Self

from pipeline.datasets.interface import Counted, Dataset
from pipeline.types import Example


@dataclass(frozen=True)
class Selection:
    """The questions to ask, in the order of the dataset."""

    limit: int | None = None
    """Take the first questions, this many; None takes all."""
    sample: int | None = None
    """Before that, draw this many at random; None draws none."""
    sample_seed: int = 0
    """Another seed draws other questions."""

    @property
    def is_whole(self) -> bool:
        """Whether all questions are asked."""
        return self.limit is None and self.sample is None

    @property
    def is_first(self) -> bool:
        """Whether the first questions are asked, and not all."""
        return self.limit is not None and self.sample is None

    @classmethod
    def of_run(cls, run: Mapping[str, Any]) -> Self:
        """Read the section `run` of a configuration."""
        return cls(**{each.name: run[each.name] for each in fields(cls)})

    def select(self, examples: Iterator[Example]) -> Iterator[Example]:
        """Yield the selected ones of all questions. For a sample, all are read, and the sample is held in memory."""
        return islice(examples if self.sample is None else self._drawn(examples, self.sample), self.limit)

    def count(self, dataset: Dataset) -> int:
        """Count the selected questions. A dataset that does not know their number is read."""
        counted = dataset.count() if isinstance(dataset, Counted) else None
        if counted is None:
            return sum(1 for _ in self.select(dataset.examples(lambda _: None)))
        return min(each for each in (counted, self.sample, self.limit) if each is not None)

    def _drawn(self, examples: Iterator[Example], size: int) -> Iterator[Example]:
        """Draw by a hash of the id: a question that is added to the dataset replaces one of the sample at most."""
        keyed = ((self._key(example), index, example) for index, example in enumerate(examples))
        drawn = nsmallest(size, keyed, key=lambda each: each[:2])
        return (example for _, _, example in sorted(drawn, key=lambda each: each[1]))

    def _key(self, example: Example) -> bytes:
        return hashlib.blake2b(f"{self.sample_seed}|{example.question.id}".encode(), digest_size=8).digest()
