"""What a run will cost, projected from a sample of its questions: each figure with its interval."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from math import sqrt

import numpy as np
import numpy.typing as npt
import polars as pl

from pipeline.evaluation.settings import Evaluation
from pipeline.traces.folder import RunFolder
from pipeline.traces.reader import read_shards

MEASURES = ("logical_calls", "physical_calls", "prompt_tokens", "completion_tokens", "kg_queries", "busy_s")
"""Per question, over all points that ask it. Calls and tokens but for the first are those of calls that were made:
what points share counts once. `busy_s` are the seconds for which the question was in flight."""


@dataclass(frozen=True, slots=True)
class Projection:
    """A figure of the whole run."""

    value: float
    low: float
    high: float

    def __add__(self, other: Projection) -> Projection:
        """Of parts whose errors have nothing to do with each other."""
        value = self.value + other.value
        below = sqrt((self.value - self.low) ** 2 + (other.value - other.low) ** 2)
        above = sqrt((self.high - self.value) ** 2 + (other.high - other.value) ** 2)
        return Projection(value, max(0.0, value - below), value + above)

    def times(self, factor: float) -> Projection:
        """In another unit."""
        return Projection(self.value * factor, self.low * factor, self.high * factor)

    def or_longer(self, other: Projection) -> Projection:
        """Of two things that go on at the same time, when both are done."""
        return Projection(*map(max, (self.value, self.low, self.high), (other.value, other.low, other.high)))


def measure(folder: RunFolder, points: Sequence[int]) -> npt.NDArray[np.float64]:
    """What each sampled question cost at these points together, shape (questions, `MEASURES`)."""
    columns = ("point", "question_id", "llm_calls", "kg_queries", "wall_s", "steps")
    parts = (_per_question(rows.filter(pl.col("point").is_in(points))) for rows in read_shards(folder, columns))
    return pl.concat(parts).select(MEASURES).to_numpy().astype(np.float64)


def _per_question(rows: pl.DataFrame) -> pl.DataFrame:
    """One row per question: a question is in one shard, with all of its points."""
    steps = rows.select("question_id", "steps").explode("steps").unnest("steps")
    made = steps.filter(pl.col("kind") == "llm", pl.col("shared").not_(), pl.col("prompt_tokens").is_not_null())
    physical = made.group_by("question_id").agg(
        pl.len().alias("physical_calls"), pl.col("prompt_tokens", "completion_tokens").sum()
    )
    whole = rows.group_by("question_id", maintain_order=True).agg(
        pl.col("llm_calls").sum().alias("logical_calls"),
        pl.col("kg_queries").sum(),
        pl.col("wall_s").max().alias("busy_s"),  # its points are asked at the same time
    )
    return whole.join(physical, on="question_id", how="left", maintain_order="left").fill_null(0)


def project(sample: npt.NDArray[np.float64], questions: int, settings: Evaluation) -> dict[str, Projection]:
    """Totals over `questions`, of which `sample` was asked.

    The interval is the studentised bootstrap's: costs are skewed, few questions take most of the tokens, and plain
    percentiles of a small sample miss those that it happens not to hold. What was asked is known, so a sample of all
    questions has no interval.
    """
    asked = len(sample)
    means, errors = sample.mean(axis=0), _standard_error(sample)
    low, high = _studentised(sample, settings) * errors * sqrt(1 - asked / questions)
    return {
        name: Projection(questions * mean, questions * max(0.0, mean - above), questions * (mean - below))
        for name, mean, below, above in zip(MEASURES, means, low, high, strict=True)
    }


def _studentised(sample: npt.NDArray[np.float64], settings: Evaluation) -> npt.NDArray[np.float64]:
    """Quantiles of (mean of a resample - mean) / its standard error, shape (2, measures)."""
    draws = np.random.default_rng(settings.bootstrap_seed).integers(
        len(sample), size=(settings.bootstrap_resamples, len(sample))
    )
    drawn = sample[draws]
    errors = _standard_error(drawn)
    distances = drawn.mean(axis=1) - sample.mean(axis=0)
    steps = np.divide(distances, errors, out=np.zeros_like(errors), where=errors > 0)
    tail = (1 - settings.confidence) / 2
    return np.asarray(np.quantile(steps, [tail, 1 - tail], axis=0))


def _standard_error(values: npt.NDArray[np.float64]) -> npt.NDArray[np.float64]:
    """Of the mean over the questions, which are the last axis but one."""
    return np.asarray(values.std(axis=-2, ddof=1) / sqrt(values.shape[-2]))


def together(parts: Sequence[Mapping[str, Projection]]) -> dict[str, Projection]:
    """The totals of parts that ask different questions."""
    first, *others = parts
    total = dict(first)
    for part in others:
        total = {name: total[name] + part[name] for name in MEASURES}
    return total
