"""Early stopping of a sweep's hopeless points: successive halving across the questions, with a guarantee.

The points ask the questions in an order that makes every beginning of it a fair sample. After the first so many, after
twice as many, and so on, points of the worse half are dropped if they are behind the leader beyond doubt: by the exact
sign test over the questions that only one of the two gets right, at a level so low that, with a probability of at least
95 %, the point that is best over all questions is not dropped at any time.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import count, islice

import numpy as np
import numpy.typing as npt
import polars as pl

from pipeline.datasets.port import Reject
from pipeline.datasets.sampled import fair_order
from pipeline.engine.shard import BARRIER, Barrier, Part, Shard
from pipeline.traces.folder import RunFolder
from pipeline.traces.reader import read_shards

DOUBT = 0.05
"""How probable it may be that the best point of some dataset is dropped."""
_COLUMNS = ["point", "question_id", "status", "hits_at_1"]


@dataclass(frozen=True)
class Halving:
    """When and where points are dropped."""

    folder: RunFolder
    """The run, whose finished shards decide."""
    first: int
    """Questions after which points are dropped for the first time."""
    on_drop: Callable[[str, int], None]
    """Told of each drop, and how many rows fewer there will be."""

    def shards(self, parts: Sequence[Part], reject: Reject, *, size: int) -> Iterator[Shard | Barrier]:
        """Slice the questions of each part, of fewer and fewer points; a barrier stands before each decision."""
        index = count()
        for part in parts:
            examples = fair_order(list(islice(part.dataset.examples(reject), part.limit)))
            chunks = [examples[at : at + size] for at in range(0, len(examples), size)]
            rungs = self._rungs(len(chunks), size)
            points = part.points
            done: list[int] = []
            for place, chunk in enumerate(chunks):
                if place in rungs:
                    yield BARRIER
                    kept = self._survivors(
                        points, done, level=DOUBT / (len(parts) * max(1, len(part.points) - 1) * len(rungs))
                    )
                    if len(kept) < len(points):
                        asked, dropped = place * size, len(points) - len(kept)
                        line = f"after {asked:,} questions {dropped} of {len(points)} points are dropped"
                        self.on_drop(line, dropped * (len(examples) - asked))
                    points = kept
                done.append(next(index))
                yield Shard(done[-1], tuple(chunk), points)

    def _rungs(self, shards: int, size: int) -> set[int]:
        """After how many shards points are dropped: each time twice as many as before."""
        first = -(-self.first // size)
        return {first << power for power in range(shards.bit_length()) if first << power < shards}

    def _survivors(self, points: tuple[int, ...], done: Sequence[int], *, level: float) -> tuple[int, ...]:
        rows = pl.concat(read_shards(self.folder, _COLUMNS, indices=done))
        # A question that met an outage, or has no gold answer, says nothing of the points.
        rows = rows.filter(pl.col("point").is_in(points), pl.col("status") != "failed").drop_nulls("hits_at_1")
        wide = rows.pivot("point", index="question_id", values="hits_at_1").drop_nulls()
        if any(str(point) not in wide.columns for point in points) or wide.is_empty():
            return points
        hits = {point: wide[str(point)].to_numpy() > 0 for point in points}
        return tuple(survivors(hits, level=level))


def survivors(hits: Mapping[int, npt.NDArray[np.bool_]], *, level: float) -> list[int]:
    """The points that go on: the better half, and those of the worse half that the leader does not beat at `level`.

    `hits` holds per point which of the same questions it gets right, in the same order.
    """
    from scipy.stats import binom  # slow to import, and most runs never drop a point

    ranking = sorted(hits, key=lambda point: (-hits[point].mean(), point))
    leader, worse = hits[ranking[0]], ranking[(len(ranking) + 1) // 2 :]
    dropped = set()
    for point in worse:
        won, lost = int((hits[point] & ~leader).sum()), int((leader & ~hits[point]).sum())
        if binom.cdf(won, won + lost, 0.5) <= level:
            dropped.add(point)
    return [point for point in hits if point not in dropped]
