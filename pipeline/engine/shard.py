"""The shard: a small fixed slice of the questions, and the unit of leasing, retrying and committing.

A finished shard is one Parquet file named after its index: it exists or it does not. So a resume needs one directory
listing, and a shard that is done twice overwrites itself.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import chain, count, islice
from math import ceil
from typing import TypeAlias

from pipeline.datasets.interface import Dataset, Reject
from pipeline.datasets.selection import Selection
from pipeline.types import Example


@dataclass(frozen=True, slots=True)
class Shard:
    """A slice of the questions: the unit that a worker leases."""

    index: int
    examples: tuple[Example, ...]
    configurations: tuple[int, ...] = (0,)
    """The configurations of the run that ask these questions."""
    run: str = ""
    """The `id` of the run, which the file of the shard will name."""


Order: TypeAlias = Callable[[Iterable[Example]], Iterator[Example]]

Rounds: TypeAlias = Iterator[Iterable[Shard]]
"""The shards of a run. All shards of a round are committed before the next round is requested."""


@dataclass(frozen=True)
class Part:
    """The configurations of a run that ask the same questions."""

    configurations: tuple[int, ...]
    dataset: Dataset
    selection: Selection
    """Which questions of the dataset are asked."""


def shards(parts: Sequence[Part], reject: Reject, *, size: int, order: Order = iter) -> Iterator[Shard]:
    """Slice the questions of each part in `order`. By default it is their own, and they are not all held in memory."""
    index = count()
    for part in parts:
        examples = order(part.selection.select(part.dataset.examples(reject)))
        while chunk := tuple(islice(examples, size)):
            yield Shard(next(index), chunk, part.configurations)


class UnfinishedRounds(Iterator[Iterator[Shard]]):
    """The rounds of a run without the finished shards. Counts the questions of all shards as they are read."""

    def __init__(self, rounds: Rounds, finished: Collection[int], run: str) -> None:
        """Take the rounds of all shards, the indices of the finished ones, and the `id` of the run."""
        self._rounds = rounds
        self._finished = finished
        self._run = run
        self._begun: Iterator[Shard] | None = None
        self.questions: Counter[int] = Counter()
        """The number of questions that each configuration asks, in the shards read so far."""

    def find_first(self) -> bool:
        """Read up to the first unfinished shard, which stays in its round. Returns False if every shard is finished."""
        for round in self:
            if (first := next(round, None)) is not None:
                self._begun = chain([first], round)
                return True
        return False

    def __next__(self) -> Iterator[Shard]:
        if self._begun is not None:
            begun, self._begun = self._begun, None
            return begun
        return self._unfinished(next(self._rounds))

    def _unfinished(self, round: Iterable[Shard]) -> Iterator[Shard]:
        for shard in round:
            self.questions.update(dict.fromkeys(shard.configurations, len(shard.examples)))
            if shard.index not in self._finished:
                yield replace(shard, run=self._run)


def count_rows(parts: Sequence[Part], *, size: int, finished: Collection[int]) -> tuple[int, int]:
    """Count all rows, and those that are in a finished shard of `size` questions."""
    rows, done, first = 0, 0, 0
    for part in parts:
        total = part.selection.count(part.dataset)
        sizes = {first + number: min(size, total - number * size) for number in range(ceil(total / size))}
        rows += len(part.configurations) * total
        done += len(part.configurations) * sum(sizes[index] for index in sizes.keys() & set(finished))
        first += len(sizes)
    return rows, done
