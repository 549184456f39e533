"""Drops weak configurations while a sweep runs; the best one is kept with a probability of at least 95 %.

The questions are asked in an order in which every prefix is a fair sample. After the first N questions, after 2N, after
4N, and so on, configurations of the worse half are dropped if the leader is significantly better (successive halving).
The test is the exact sign test over the questions that only one of the two answers correctly. Its level is so low that
all tests of a sweep together drop the configuration that is best over all questions with at most 5 % probability.

Configurations whose score is the oracle's alone, or whose method is told gold answers, are compared among themselves:
they would drop all others.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import count, pairwise

import numpy as np
import numpy.typing as npt
import polars as pl

from pipeline.datasets.interface import Reject
from pipeline.datasets.subsample import stratified_order
from pipeline.engine.shard import Part, Shard
from pipeline.llm.interface import is_closed_book, is_told_gold
from pipeline.text import agreeing, counted
from pipeline.traces.folder import RunFolder
from pipeline.traces.reader import read_shards

MAX_RISK = 0.05
"""The highest probability that the best configuration of any dataset is dropped."""
_COLUMNS = ["point", "question_id", "status", "hits_at_1", "method", "llm_calls", "kg_lookups"]


@dataclass(frozen=True)
class EarlyStopping:
    """Divides the questions into rounds, and drops configurations between two rounds."""

    folder: RunFolder
    """The run whose committed shards decide."""
    first: int
    """The number of questions after which configurations are dropped for the first time."""
    on_drop: Callable[[str, int], None]
    """Called at each drop with a sentence and the number of rows that will not be run."""

    def rounds(self, parts: Sequence[Part], reject: Reject, *, size: int) -> Iterator[list[Shard]]:
        """Yield the shards of each round. All of them must be committed before the next round is requested."""
        index = count()
        for part in parts:
            examples = stratified_order(list(part.selection.select(part.dataset.examples(reject))))
            chunks = [tuple(examples[at : at + size]) for at in range(0, len(examples), size)]
            decisions = self._decisions(len(chunks), size)
            level = MAX_RISK / (len(parts) * max(1, len(part.configurations) - 1) * max(1, len(decisions)))
            remaining = part.configurations
            committed: list[int] = []
            for begin, end in pairwise([0, *decisions, len(chunks)]):
                if committed:
                    kept = self._survivors(remaining, committed, level=level)
                    self._report(len(remaining), len(kept), asked=begin * size, questions=len(examples))
                    remaining = kept
                shards = [Shard(next(index), chunk, remaining) for chunk in chunks[begin:end]]
                yield shards
                committed += [shard.index for shard in shards]

    def _decisions(self, shards: int, size: int) -> list[int]:
        """Return the numbers of shards after which configurations are dropped, each twice the one before."""
        first = -(-self.first // size)
        return [first << power for power in range(shards.bit_length()) if first << power < shards]

    def _survivors(self, remaining: tuple[int, ...], committed: Sequence[int], *, level: float) -> tuple[int, ...]:
        """Return the configurations that go on, by their rows in the committed shards."""
        rows = pl.concat(read_shards(self.folder, _COLUMNS, indices=committed))
        # A question that failed because of an outage, or has no gold answer, cannot rank configurations.
        rows = rows.filter(pl.col("point").is_in(remaining), pl.col("status") != "failed").drop_nulls("hits_at_1")
        wide = rows.pivot("point", index="question_id", values="hits_at_1").drop_nulls()
        if any(str(each) not in wide.columns for each in remaining) or wide.is_empty():
            return remaining
        hits = {each: wide[str(each)].to_numpy() > 0 for each in remaining}
        oracles = self._oracles(rows)
        groups = [[each for each in remaining if (each in oracles) is alike] for alike in (True, False)]
        kept = {each for group in groups for each in survivors({one: hits[one] for one in group}, level=level)}
        return tuple(each for each in remaining if each in kept)

    def _oracles(self, rows: pl.DataFrame) -> set[int]:
        """Return the configurations whose score is the oracle's alone, or whose method is told gold answers."""
        served = self.folder.require_run()["served"]
        totals = rows.group_by("point").agg(pl.first("method"), pl.sum("llm_calls", "kg_lookups"))
        return {
            point
            for point, method, calls, lookups in totals.iter_rows()
            if is_told_gold(method) or is_closed_book(served[point]["label"], calls, lookups)
        }

    def _report(self, before: int, after: int, *, asked: int, questions: int) -> None:
        if dropped := before - after:
            line = f"after {counted(asked, 'question')} {dropped} of {counted(before, 'configuration')}"
            self.on_drop(f"{line} {agreeing('are', dropped)} dropped", dropped * (questions - asked))


def survivors(hits: Mapping[int, npt.NDArray[np.bool_]], *, level: float) -> list[int]:
    """Return the better half of the configurations, and those of the worse half that the leader does not beat.

    Args:
        hits: Per configuration, which of the same questions it answers correctly, in the same order.
        level: Significance level of the sign test against the leader.
    """
    from scipy.stats import binom  # slow to import, and most runs never drop a configuration

    ranking = sorted(hits, key=lambda each: (-hits[each].mean(), each))
    dropped = set()
    for each in ranking[(len(ranking) + 1) // 2 :]:
        leader = hits[ranking[0]]
        won, lost = int((hits[each] & ~leader).sum()), int((leader & ~hits[each]).sum())
        if binom.cdf(won, won + lost, 0.5) <= level:
            dropped.add(each)
    return [each for each in hits if each not in dropped]
