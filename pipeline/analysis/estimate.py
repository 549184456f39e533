"""Projects the cost of a run from a sample of its questions, with intervals."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from math import sqrt

import numpy as np
import numpy.typing as npt
import polars as pl

from pipeline.evaluation.config import ScoringConfig
from pipeline.evaluation.statistics import wilson
from pipeline.traces.folder import RunFolder
from pipeline.traces.reader import read_shards

MEASURES = (
    "logical_calls",
    "physical_calls",
    "answered_calls",
    "prompt_tokens",
    "completion_tokens",
    "token_usd",
    "kg_queries",
    "busy_s",
)
"""Costs per question, summed over all configurations. `logical_calls` counts calls as if each configuration had run
alone; calls and tokens otherwise count what was sent to the model. `token_usd` is the price of the tokens in US
dollars. `busy_s` is the time the question was in flight."""

_LEAST_ERROR = 0.25
"""The least standard error of a resample, as a share of that of the sample."""
_CALLS = MEASURES.index("physical_calls")
_PER_CALL = ("prompt_tokens", "completion_tokens", "token_usd")


@dataclass(frozen=True, slots=True)
class Projection:
    """A projected total with its interval."""

    value: float
    low: float
    high: float

    def __add__(self, other: Projection) -> Projection:
        """Add two projections with independent errors."""
        value = self.value + other.value
        below = sqrt((self.value - self.low) ** 2 + (other.value - other.low) ** 2)
        above = sqrt((self.high - self.value) ** 2 + (other.high - other.value) ** 2)
        return Projection(value, max(0.0, value - below), value + above)

    def times(self, factor: float) -> Projection:
        """Multiply by a factor, for example to change the unit."""
        return Projection(self.value * factor, self.low * factor, self.high * factor)

    def maximum(self, other: Projection) -> Projection:
        """Return the larger of two projections, for example of the times of two concurrent tasks."""
        return Projection(*map(max, (self.value, self.low, self.high), (other.value, other.low, other.high)))


def measure(folder: RunFolder, configurations: Sequence[int], *, token_prices: Mapping[str, float]) -> pl.DataFrame:
    """Return the cost of each sampled question in these configurations together: `question_id` and `MEASURES`.

    `token_prices` are the US dollars per token of `prompt_tokens` and `completion_tokens`; a missing one is 0.
    """
    columns = ("point", "question_id", "llm_calls", "kg_queries", "wall_s", "steps")
    parts = (_per_question(rows.filter(pl.col("point").is_in(configurations))) for rows in read_shards(folder, columns))
    usd = pl.sum_horizontal(pl.lit(0.0), *(pl.col(kind) * price for kind, price in token_prices.items()))
    costs = pl.concat(parts).with_columns(usd.alias("token_usd"))
    return costs.select("question_id", pl.col(MEASURES).cast(pl.Float64))


def _per_question(rows: pl.DataFrame) -> pl.DataFrame:
    """Aggregate to one row per question. A shard contains all configurations of its questions."""
    steps = rows.select("question_id", "steps").explode("steps").unnest("steps")
    made = steps.filter(pl.col("kind") == "llm", pl.col("shared").not_())  # also those that failed
    physical = made.group_by("question_id").agg(
        pl.len().alias("physical_calls"),
        pl.col("prompt_tokens").count().alias("answered_calls"),
        pl.col("prompt_tokens", "completion_tokens").sum(),
    )
    whole = rows.group_by("question_id", maintain_order=True).agg(
        pl.col("llm_calls").sum().alias("logical_calls"),
        pl.col("kg_queries").sum(),
        pl.col("wall_s").max().alias("busy_s"),  # the configurations of a question run concurrently
    )
    return whole.join(physical, on="question_id", how="left", maintain_order="left").fill_null(0)


def project(sample: pl.DataFrame, questions: int, scoring: ScoringConfig) -> dict[str, Projection]:
    """Project totals over `questions` from the costs of a sample, as `measure` returns them.

    The interval is a studentised bootstrap interval: costs are skewed, a few questions take most of the tokens, and
    percentile intervals of a small sample are too narrow. Where nearly all questions cost the same, no resample knows
    how many others there are: the interval is at least that of their share. With the finite population correction, a
    sample of all questions has an interval of width 0.
    """
    costs = sample.select(MEASURES).to_numpy()
    sampled, means = len(costs), costs.mean(axis=0)
    low, high = -_studentised(costs, scoring)[::-1] * _standard_error(costs)
    for column, values in enumerate(costs.T):
        below, above = _distances_by_share(values, scoring.confidence)
        low[column], high[column] = min(low[column], below), max(high[column], above)
    if means[_CALLS]:  # a call that a question needs besides costs as many tokens as another one
        for column in map(MEASURES.index, _PER_CALL):
            scale = means[column] / means[_CALLS]
            low[column], high[column] = min(low[column], scale * low[_CALLS]), max(high[column], scale * high[_CALLS])
    width = sqrt(1 - sampled / questions)
    return {
        name: Projection(
            questions * mean, questions * max(0.0, mean + width * below), questions * (mean + width * above)
        )
        for name, mean, below, above in zip(MEASURES, means, low, high, strict=True)
    }


def _distances_by_share(costs: npt.NDArray[np.float64], confidence: float) -> tuple[float, float]:
    """Return how far the mean may lie below and above that of a sample, by the share of questions with another cost.

    The others are those that do not cost the most frequent value. If there is none, one would cost twice as much.
    """
    values, counts = np.unique(costs, return_counts=True)
    usual = values[counts.argmax()]
    others = costs[costs != usual]
    excess = float((others - usual).mean()) if len(others) else float(usual)
    share = len(others) / len(costs)
    ends = [excess * (end - share) for end in wilson(share, len(costs), confidence=confidence)]
    return min(ends), max(ends)


def _studentised(sample: npt.NDArray[np.float64], scoring: ScoringConfig) -> npt.NDArray[np.float64]:
    """Return quantiles of (mean of a resample - mean) / standard error of the resample, shape (2, measures)."""
    draws = np.random.default_rng(scoring.bootstrap_seed).integers(
        len(sample), size=(scoring.bootstrap_resamples, len(sample))
    )
    drawn = sample[draws]
    # A resample without the few costly questions hardly varies: divided by its own error, its distance has no end.
    errors = np.maximum(_standard_error(drawn), _LEAST_ERROR * _standard_error(sample))
    distances = drawn.mean(axis=1) - sample.mean(axis=0)
    statistics = np.divide(distances, errors, out=np.zeros_like(errors), where=errors > 0)
    tail = (1 - scoring.confidence) / 2
    return np.asarray(np.quantile(statistics, [tail, 1 - tail], axis=0))


def _standard_error(values: npt.NDArray[np.float64]) -> npt.NDArray[np.float64]:
    """Return the standard error of the mean over questions, the second-to-last axis."""
    questions = values.shape[-2]
    return np.asarray(values.std(axis=-2, ddof=1 if questions > 1 else 0) / sqrt(questions))


def add_projections(parts: Sequence[Mapping[str, Projection]]) -> dict[str, Projection]:
    """Add the projections of parts with different questions."""
    first, *others = parts
    total = dict(first)
    for part in others:
        total = {name: total[name] + part[name] for name in MEASURES}
    return total
