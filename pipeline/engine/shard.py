"""The shard: a small fixed slice of the questions, and the unit of leasing, retrying and committing.

A finished shard is one Parquet file with a name derived from its index: it exists or it does not. So resuming is a
directory listing, and a shard done twice overwrites itself.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import count, islice
from math import ceil

from pipeline.datasets.port import Counted, Dataset, Reject
from pipeline.traces.schema import TraceRow
from pipeline.types import Example


@dataclass(frozen=True, slots=True)
class Shard:
    """A slice of the questions: what a worker leases."""

    index: int
    examples: tuple[Example, ...]
    points: tuple[int, ...] = (0,)
    """The points of the run that ask these questions."""


class Barrier:
    """Stands among shards: all those before it are done before any after it is handed out."""


BARRIER = Barrier()


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
    of_points: Mapping[int, tuple[float, int]] = field(default_factory=dict)
    """Per point its `hits` and `scored`."""

    @classmethod
    def of(cls, row: TraceRow) -> Progress:
        """The progress that one row is."""
        hit = row.scores.hits_at_1
        scored = (hit or 0.0, int(hit is not None))
        failed = int(row.answer.status == "failed")
        return cls(1, *scored, failed, row.counters.llm_calls, of_points={row.point: scored})

    def __add__(self, other: Progress) -> Progress:
        of_points = dict(self.of_points)
        for point, (hits, scored) in other.of_points.items():
            so_far = of_points.get(point, (0.0, 0))
            of_points[point] = (so_far[0] + hits, so_far[1] + scored)
        return Progress(
            self.questions + other.questions,
            self.hits + other.hits,
            self.scored + other.scored,
            self.failed + other.failed,
            self.llm_calls + other.llm_calls,
            max(self.loop_lag_s, other.loop_lag_s),
            of_points,
        )


@dataclass(frozen=True)
class Part:
    """The points of a run that ask the same questions."""

    points: tuple[int, ...]
    dataset: Dataset
    limit: int | None
    """Take only the first so many."""


def shards(parts: Sequence[Part], reject: Reject, *, size: int) -> Iterator[Shard]:
    """Slice the questions of each part in their own order, without holding them whole."""
    index = count()
    for part in parts:
        examples = islice(part.dataset.examples(reject), part.limit)
        while chunk := tuple(islice(examples, size)):
            yield Shard(next(index), chunk, part.points)


def rows_left(parts: Sequence[Part], *, size: int, finished: Collection[int]) -> int | None:
    """Rows that are in no finished shard of `size` questions; None where only reading the questions would tell."""
    rows, first = 0, 0
    for part in parts:
        counts = [part.limit, part.dataset.count() if isinstance(part.dataset, Counted) else None]
        total = min((each for each in counts if each is not None), default=None)
        if total is None:
            return None
        slices = {first + place: min(size, total - place * size) for place in range(ceil(total / size))}
        rows += len(part.points) * sum(slices[index] for index in slices.keys() - set(finished))
        first += len(slices)
    return rows
