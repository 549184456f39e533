"""The shard: a small fixed slice of the questions, and the unit of leasing, retrying and committing.

A finished shard is one Parquet file with a name derived from its index: it exists or it does not. So resuming is a
directory listing, and a shard done twice overwrites itself.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import islice

from pipeline.datasets.port import Dataset, Reject
from pipeline.traces.schema import TraceRow
from pipeline.types import Example


@dataclass(frozen=True, slots=True)
class Shard:
    """A slice of the questions: what a worker leases."""

    index: int
    examples: tuple[Example, ...]


@dataclass(frozen=True, slots=True)
class Progress:
    """What a worker tells of rows as they finish."""

    questions: int = 0
    hits: float = 0.0
    scored: int = 0
    """Rows with gold answers: the denominator of `hits`."""
    failed: int = 0
    llm_calls: int = 0
    loop_lag_s: float = 0.0
    """The longest that anything kept the worker's event loop from its work."""

    @classmethod
    def of(cls, row: TraceRow) -> Progress:
        """The progress that one row is."""
        hit = row.scores.hits_at_1
        return cls(1, hit or 0.0, int(hit is not None), int(row.answer.status == "failed"), row.counters.llm_calls)

    def __add__(self, other: Progress) -> Progress:
        return Progress(
            self.questions + other.questions,
            self.hits + other.hits,
            self.scored + other.scored,
            self.failed + other.failed,
            self.llm_calls + other.llm_calls,
            max(self.loop_lag_s, other.loop_lag_s),
        )


def shards(dataset: Dataset, reject: Reject, *, size: int, limit: int | None) -> Iterator[Shard]:
    """Slice the dataset in its own order, without holding it whole."""
    examples = islice(dataset.examples(reject), limit)
    index = 0
    while chunk := tuple(islice(examples, size)):
        yield Shard(index, chunk)
        index += 1
