"""Intervals of scores and paired comparisons (methods.md §9.2). Everything random is seeded."""

from __future__ import annotations

from dataclasses import dataclass
from math import fsum, sqrt

import numpy as np
import numpy.typing as npt

Values = npt.NDArray[np.floating]
"""One score per question, shape (questions,)."""

_CELLS = 1_000_000
"""Numbers drawn at once while resampling: 8 MB."""
_CELLS_TOGETHER = 4 * _CELLS
"""The same for many columns: with fewer, their product takes five times as long (measured)."""
_COUNT_COST = 25
"""Drawing how often a score comes takes as long as drawing so many questions (measured)."""


@dataclass(frozen=True, slots=True)
class Estimate:
    """A mean over questions with its interval."""

    mean: float
    low: float
    high: float
    questions: int


@dataclass(frozen=True, slots=True)
class Difference:
    """The mean of first - second over the same questions, with its interval."""

    mean: float
    low: float
    high: float
    p_value: float
    """Two-sided, of no difference."""


@dataclass(frozen=True, slots=True)
class McNemar:
    """Questions that only one of two methods gets right."""

    only_first: int
    only_second: int
    p_value: float
    """Exact, two-sided, of no difference."""


def bootstrap_mean(values: Values, *, resamples: int = 10_000, confidence: float = 0.95, seed: int = 0) -> Estimate:
    """Mean and percentile bootstrap interval over questions, the same for any order of them.

    Raises ZeroDivisionError without values.
    """
    low, high = _interval(_resampled_means(values, resamples, seed), confidence)
    return Estimate(_mean(values), low, high, len(values))


def bootstrap_means(
    columns: npt.ArrayLike, *, resamples: int = 10_000, confidence: float = 0.95, seed: int = 0
) -> list[Estimate]:
    """As `bootstrap_mean` for each column of scores, shape (questions, columns), at the price of one resampling.

    Every column meets the same draws of the questions. Raises ZeroDivisionError without questions.
    """
    values = np.asarray(columns, dtype=np.float64)
    questions, series = values.shape
    batch = max(1, _CELLS_TOGETHER // questions)
    rng = np.random.default_rng(seed)
    means = np.empty((resamples, series))
    for start in range(0, resamples, batch):
        size = min(batch, resamples - start)
        drawn = rng.integers(questions, size=(size, questions))
        drawn += questions * np.arange(size)[:, None]
        counts = np.bincount(drawn.ravel(), minlength=size * questions).reshape(size, questions)
        means[start : start + size] = counts.astype(np.float64) @ values / questions
    intervals = (_interval(of_one, confidence) for of_one in means.T)
    return [
        Estimate(_mean(column), low, high, questions) for column, (low, high) in zip(values.T, intervals, strict=True)
    ]


def paired_bootstrap(
    first: Values, second: Values, *, resamples: int = 10_000, confidence: float = 0.95, seed: int = 0
) -> Difference:
    """Compare the means of two methods over the same questions, in the same order, by resampling the questions."""
    differences = np.asarray(first, dtype=np.float64) - np.asarray(second, dtype=np.float64)
    means = _resampled_means(differences, resamples, seed)
    low, high = _interval(means, confidence)
    tail = min((means <= 0).sum(), (means >= 0).sum())
    return Difference(_mean(differences), low, high, min(1.0, 2 * (int(tail) + 1) / (resamples + 1)))


def mcnemar(first: npt.ArrayLike, second: npt.ArrayLike) -> McNemar:
    """Compare two methods that are right or wrong on the same questions, in the same order."""
    from scipy.stats import binomtest  # slow to import, and a run that only counts never needs it

    right_first, right_second = np.asarray(first, dtype=bool), np.asarray(second, dtype=bool)
    only_first = int((right_first & ~right_second).sum())
    only_second = int((right_second & ~right_first).sum())
    discordant = only_first + only_second
    return McNemar(only_first, only_second, float(binomtest(only_first, discordant).pvalue) if discordant else 1.0)


def mean_over_seeds(scores: npt.ArrayLike) -> Estimate:
    """Mean ± 1.96·s/√n of one score per seed, with s the sample standard deviation, as PARoG reports it.

    Raises ValueError for fewer than two seeds.
    """
    values = np.asarray(scores, dtype=np.float64)
    if len(values) < 2:
        raise ValueError(f"an interval over seeds needs at least two of them, not {len(values)}")
    mean, margin = _mean(values), 1.96 * float(values.std(ddof=1)) / sqrt(len(values))
    return Estimate(mean, mean - margin, mean + margin, len(values))


def _resampled_means(values: Values, resamples: int, seed: int) -> npt.NDArray[np.float64]:
    """Means of `resamples` draws of the questions with replacement.

    Where scores repeat, only how often each of them is drawn matters, and those counts are multinomial: a resample of
    a million hits costs two numbers. Where they hardly repeat, the questions are drawn one by one.
    """
    ordered = np.sort(np.asarray(values, dtype=np.float64))
    distinct, counts = np.unique(ordered, return_counts=True)
    questions = len(ordered)
    rng = np.random.default_rng(seed)
    one_by_one = questions < _COUNT_COST * len(distinct)
    batch = max(1, _CELLS // (questions if one_by_one else len(distinct)))
    means = np.empty(resamples)
    for start in range(0, resamples, batch):
        size = min(batch, resamples - start)
        if one_by_one:
            drawn = ordered[rng.integers(questions, size=(size, questions), dtype=np.uint32)]
            means[start : start + size] = drawn.mean(axis=1)
        else:
            means[start : start + size] = (
                rng.multinomial(questions, counts / questions, size=size) @ distinct / questions
            )
    return means


def _mean(values: Values) -> float:
    return fsum(values) / len(values)


def _interval(means: npt.NDArray[np.float64], confidence: float) -> tuple[float, float]:
    low, high = np.quantile(means, [(1 - confidence) / 2, (1 + confidence) / 2])
    return float(low), float(high)
