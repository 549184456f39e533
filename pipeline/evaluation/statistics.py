"""Confidence intervals and paired tests of scores (specification §9.2). All random draws are seeded.

The defaults of the confidence level, the number of resamples and the seed are in `conf/evaluation/default.yaml`.
"""

from __future__ import annotations

from dataclasses import dataclass
from itertools import count
from math import ceil, fsum, sqrt
from statistics import NormalDist
from typing import Any

import numpy as np
import numpy.typing as npt

from pipeline.percentages import signed_points

Values = npt.NDArray[np.floating]
"""One score per question, shape (questions,)."""

_ROUNDING = 1e-9
"""The error of a sum of differences."""
_CELLS = 1_000_000
"""Numbers drawn per batch of resamples: 8 MB."""
_CELLS_OF_MANY_COLUMNS = 4 * _CELLS
"""The same for many columns: with smaller batches, the matrix product takes five times as long (measured)."""
_COUNT_COST = 25
"""Drawing one multinomial count takes as long as drawing this many questions (measured)."""


@dataclass(frozen=True, slots=True)
class Estimate:
    """A mean over questions with its confidence interval."""

    mean: float
    low: float
    high: float
    questions: int

    @property
    def has_interval(self) -> bool:
        """Whether the interval has a width: that of a bootstrap has none if all questions score alike, as a single one.

        It is then not printed, as it would claim too much.
        """
        return self.low < self.high


@dataclass(frozen=True, slots=True)
class Difference:
    """The mean of first minus second over the same questions, with its confidence interval."""

    mean: float
    low: float
    high: float
    p_value: float
    """Two-sided; the null hypothesis is no difference."""

    @property
    def points(self) -> str:
        """The mean in percentage points."""
        return signed_points(self.mean)

    @property
    def interval_points(self) -> str:
        """The interval in percentage points.

        It is empty if all questions differ by the same amount: every resample does then, and an interval of width 0
        would claim too much.
        """
        return f"{signed_points(self.low)}…{signed_points(self.high)}" if self.low < self.high else ""


def estimate_mean(
    values: Values, *, clusters: npt.ArrayLike | None = None, resamples: int, confidence: float, seed: int
) -> Estimate:
    """Return the mean with its interval: Wilson's if all values are 0 or 1, else by bootstrap.

    A bootstrap interval of 0 hits in 25 questions is 0 to 0, Wilson's is 0 to 13 %. With `clusters`, one label per
    question, questions with the same label are not independent: Wilson's interval is that of `effective_questions`, and
    the bootstrap draws clusters. Raises ZeroDivisionError without values, ValueError for a single cluster.
    """
    if not _is_binary(values):
        return bootstrap_mean(values, clusters=clusters, resamples=resamples, confidence=confidence, seed=seed)
    mean = _mean(values)
    questions = len(values) if clusters is None else effective_questions(values, clusters)
    return Estimate(mean, *wilson(mean, questions, confidence=confidence), len(values))


def effective_questions(hits: Values, clusters: npt.ArrayLike) -> float:
    """Return how many independent questions would tell a share as exactly as these, which share clusters.

    Their number is divided by the design effect: the variance of the share over clusters, divided by that of
    independent questions. It is at most the number of questions, and for a share of 0 or 1 the number of clusters.
    Raises ValueError for a single cluster.
    """
    values = np.asarray(hits, dtype=np.float64)
    share, questions = _mean(values), len(values)
    sums, _ = _per_cluster(values - share, clusters)
    if share in (0.0, 1.0):
        return len(sums)
    independent = questions * share * (1 - share) * questions / (questions - 1)
    clustered = float(sums @ sums) * len(sums) / (len(sums) - 1)
    return questions * min(1.0, independent / clustered) if clustered else questions


def wilson(share: float, questions: float, *, confidence: float) -> tuple[float, float]:
    """Return Wilson's score interval of a share of questions."""
    z2 = NormalDist().inv_cdf(0.5 + confidence / 2) ** 2 / questions
    middle, margin = share + z2 / 2, sqrt(z2 * (share * (1 - share) + z2 / 4))
    # The ends are exact for a share of 0 and of 1, which rounding errors would miss.
    low = (middle - margin) / (1 + z2) if share > 0 else 0.0
    high = (middle + margin) / (1 + z2) if share < 1 else 1.0
    return low, high


def bootstrap_mean(
    values: Values, *, clusters: npt.ArrayLike | None = None, resamples: int, confidence: float, seed: int
) -> Estimate:
    """Return the mean and its percentile bootstrap interval over questions. The order of questions does not matter.

    With `clusters`, one label per question, questions with the same label are drawn together. Raises ZeroDivisionError
    without values, ValueError for a single cluster.
    """
    means = _resampled_means(np.asarray(values, dtype=np.float64), clusters, resamples=resamples, seed=seed)
    low, high = _interval(means, confidence)
    return Estimate(_mean(values), low, high, len(values))


def bootstrap_means(
    columns: npt.ArrayLike,
    *,
    clusters: npt.ArrayLike | None = None,
    resamples: int,
    confidence: float,
    seed: int,
) -> list[Estimate]:
    """Return `bootstrap_mean` of each column of scores, shape (questions, columns), with one resampling for all.

    Every column uses the same draws of questions. With `clusters`, one label per question, questions with the same
    label are drawn together. A column of zeros and ones has Wilson's interval, as in `estimate_mean`. Raises
    ZeroDivisionError without questions, ValueError for a single cluster.
    """
    values = np.asarray(columns, dtype=np.float64)
    questions = len(values)
    units, sizes = (values, np.ones(questions)) if clusters is None else _rows_per_cluster(values, clusters)
    rows = len(units)
    batch = max(1, _CELLS_OF_MANY_COLUMNS // rows)
    rng = np.random.default_rng(seed)
    means = np.empty((resamples, values.shape[1]))
    for start in range(0, resamples, batch):
        size = min(batch, resamples - start)
        drawn = rng.integers(rows, size=(size, rows))
        drawn += rows * np.arange(size)[:, None]
        times = np.bincount(drawn.ravel(), minlength=size * rows).reshape(size, rows).astype(np.float64)
        means[start : start + size] = times @ units / (times @ sizes)[:, None]
    intervals = [_interval(column_means, confidence) for column_means in means.T]
    for number, column in enumerate(values.T):
        if _is_binary(column):
            effective = questions if clusters is None else effective_questions(column, clusters)
            intervals[number] = wilson(_mean(column), effective, confidence=confidence)
    return [
        Estimate(_mean(column), low, high, questions) for column, (low, high) in zip(values.T, intervals, strict=True)
    ]


def paired_bootstrap(
    first: Values,
    second: Values,
    *,
    clusters: npt.ArrayLike | None = None,
    resamples: int,
    confidence: float,
    seed: int,
) -> Difference:
    """Compare the means of two methods over the same questions, in the same order, by resampling the questions.

    With `clusters`, one label per question, questions with the same label are drawn together: they are not
    independent, and an interval that ignores this is too narrow. Raises ValueError for a single cluster.
    """
    differences = np.asarray(first, dtype=np.float64) - np.asarray(second, dtype=np.float64)
    means = _resampled_means(differences, clusters, resamples=resamples, seed=seed)
    low, high = _interval(means, confidence)
    tail = min((means <= 0).sum(), (means >= 0).sum())
    return Difference(_mean(differences), low, high, min(1.0, 2 * (int(tail) + 1) / (resamples + 1)))


def mcnemar(first: npt.ArrayLike, second: npt.ArrayLike, *, clusters: npt.ArrayLike | None = None) -> float:
    """Return the exact, two-sided p-value of McNemar's test of two methods on the same questions, in the same order.

    Both are right or wrong on each question. Under the null hypothesis, each question that only one of them answers
    correctly favours either method with probability 1/2. The p-value is the probability of a split at least as uneven.
    With `clusters`, one label per question, all questions with the same label favour the same method. Raises ValueError
    for a single cluster.
    """
    correct_first, correct_second = np.asarray(first, dtype=bool), np.asarray(second, dtype=bool)
    surplus = correct_first.astype(np.int64) - correct_second
    if clusters is not None:
        surplus = _per_cluster(surplus, clusters)[0].astype(np.int64)
    return _sign_flip_p_value(np.abs(surplus[surplus != 0]), abs(surplus.sum()))


def not_worse_p_value(differences: Values, margin: float, *, clusters: npt.ArrayLike | None = None) -> float:
    """Test whether a method is worse than another one by less than `margin`, and return the one-sided p-value.

    `differences` are its scores minus those of the other one, over the same questions. The null hypothesis is a mean
    difference of -`margin` or less. The p-value is the larger one of two: that of the normal distribution, whose
    variance has one extra difference of ±1, as in `noise_margin`, with a correction of one question, and the exact one
    of a method that never wins and loses as many questions. The first alone is too small where few questions differ.
    With `clusters`, questions with the same label are one draw.
    """
    from scipy.special import bdtr  # slow to import and rarely needed

    mean, values = _mean(differences), np.asarray(differences, dtype=np.float64)
    centred = values - mean
    sums, sizes = (centred, np.ones(len(values))) if clusters is None else _per_cluster(centred, clusters)
    error = sqrt(float(np.square(sums).sum()) + 1) / len(values)
    lost = max(0.0, -float((sums / sizes + mean).sum()))
    exact = float(bdtr(ceil(lost - _ROUNDING), len(sums), margin))
    return max(exact, 1 - NormalDist().cdf((mean + margin - 1 / len(values)) / error))


def questions_to_show_not_worse(margin: float, *, comparisons: int, confidence: float) -> int:
    """Return the fewest questions with which `not_worse_p_value` can be significant in so many comparisons.

    A method that is worse loses one question at least, or a part of one, which counts as one.
    """
    from scipy.special import bdtr  # slow to import and rarely needed

    risk = (1 - confidence) / comparisons
    fewest = ceil((2 + NormalDist().inv_cdf(1 - risk) * sqrt(2)) / margin)
    return next(questions for questions in count(fewest) if bdtr(1, questions, margin) <= risk)


def holm(p_values: npt.ArrayLike) -> npt.NDArray[np.float64]:
    """Return p-values adjusted by Holm's step-down procedure, in the given order.

    Controls the family-wise error rate, under any dependence between the tests.
    """
    values = np.asarray(p_values, dtype=np.float64)
    order = np.argsort(values, kind="stable")
    adjusted = np.empty_like(values)
    adjusted[order] = np.maximum.accumulate(values[order] * np.arange(len(values), 0, -1))
    return np.minimum(adjusted, 1)


def benjamini_hochberg(p_values: npt.ArrayLike) -> npt.NDArray[np.float64]:
    """Return p-values adjusted by Benjamini and Hochberg's step-up procedure, in the given order.

    Controls the false discovery rate, for tests that are independent or positively dependent.
    """
    from scipy.stats import false_discovery_control  # slow to import and rarely needed

    adjusted: npt.NDArray[np.float64] = false_discovery_control(p_values)
    return adjusted


def noise_margin(differences: Values, questions: int, *, confidence: float) -> float:
    """Return the largest mean difference that two runs of one configuration over `questions` show by chance.

    `differences` are the score differences of two such runs, per question of a sample. Their expectation is 0, because
    the runs are interchangeable. One extra difference of ±1 is added, because a sample without any difference does not
    prove that there is none.
    """
    square = (float(np.square(differences, dtype=np.float64).sum()) + 1) / (len(differences) + 1)
    return NormalDist().inv_cdf(0.5 + confidence / 2) * sqrt(square / questions)


def mean_over_seeds(scores: npt.ArrayLike) -> Estimate:
    """Return the mean ± 1.96·s/√n of one score per seed, with s the sample standard deviation, as PARoG reports it.

    Raises ValueError for fewer than two seeds.
    """
    values = np.asarray(scores, dtype=np.float64)
    if len(values) < 2:
        raise ValueError(f"an interval over seeds needs at least two seeds, not {len(values)}")
    mean, margin = _mean(values), 1.96 * float(values.std(ddof=1)) / sqrt(len(values))
    return Estimate(mean, mean - margin, mean + margin, len(values))


def _resampled_means(
    values: npt.NDArray[np.float64], clusters: npt.ArrayLike | None, *, resamples: int, seed: int
) -> npt.NDArray[np.float64]:
    """Return the mean of each of `resamples` draws of the questions, or of the clusters, with replacement."""
    if clusters is None:
        (sums,) = _resampled_sums(values, resamples=resamples, seed=seed)
        means: npt.NDArray[np.float64] = sums / len(values)
    else:
        sums, questions = _resampled_sums(*_per_cluster(values, clusters), resamples=resamples, seed=seed)
        means = sums / questions
    return means


def _resampled_sums(*columns: npt.NDArray[np.float64], resamples: int, seed: int) -> npt.NDArray[np.float64]:
    """Return the sums of each column over `resamples` draws of the rows with replacement, shape (columns, resamples).

    If there are few distinct rows, draw how often each one occurs, from a multinomial distribution: a resample of a
    million hits or misses needs two numbers. Otherwise draw the rows one by one. The order of the rows does not matter.
    """
    ordered = np.stack(columns)[:, np.lexsort(columns[::-1])]
    starts = np.flatnonzero(np.append(True, (ordered[:, 1:] != ordered[:, :-1]).any(axis=0)))
    distinct, counts = ordered[:, starts], np.diff(np.append(starts, ordered.shape[1]))
    rows = ordered.shape[1]
    rng = np.random.default_rng(seed)
    one_by_one = rows < _COUNT_COST * len(counts)
    batch = max(1, _CELLS // (rows if one_by_one else len(counts)))
    sums = np.empty((len(columns), resamples))
    for start in range(0, resamples, batch):
        size = min(batch, resamples - start)
        if one_by_one:
            drawn = rng.integers(rows, size=(size, rows), dtype=np.uint32)
            sums[:, start : start + size] = [column[drawn].sum(axis=1) for column in ordered]
        else:
            times = rng.multinomial(rows, counts / rows, size=size)
            sums[:, start : start + size] = [times @ column for column in distinct]
    return sums


def _per_cluster(values: npt.NDArray[Any], clusters: npt.ArrayLike) -> tuple[npt.NDArray[np.float64], ...]:
    """Return the sum of the values in each cluster, and the sizes of the clusters."""
    sums, sizes = _rows_per_cluster(values[:, None], clusters)
    return sums[:, 0], sizes


def _rows_per_cluster(
    values: npt.NDArray[Any], clusters: npt.ArrayLike
) -> tuple[npt.NDArray[np.float64], npt.NDArray[np.float64]]:
    """Return the sums of each column in each cluster, shape (clusters, columns), and the sizes of the clusters."""
    names, members = np.unique(np.asarray(clusters), return_inverse=True)
    if len(names) < 2:
        raise ValueError("all questions are in one cluster: a cluster bootstrap needs at least two clusters")
    sums = np.column_stack([np.bincount(members, weights=column) for column in values.T])
    return sums.astype(np.float64), np.bincount(members).astype(np.float64)


def _sign_flip_p_value(weights: npt.NDArray[np.int64], observed: int) -> float:
    """Return the exact probability that the weights, with random signs, have a sum at least as far from 0."""
    from scipy.signal import convolve  # imported here because both are slow to import and rarely needed
    from scipy.stats import binom

    total = int(weights.sum())
    likelihood = np.ones(1)  # probability of each sum of positive weights, from 0 to the total
    for weight, times in zip(*np.unique(weights, return_counts=True), strict=True):
        spread = np.zeros(weight * times + 1)
        spread[::weight] = binom.pmf(np.arange(times + 1), times, 0.5)
        likelihood = convolve(likelihood, spread)
    far = np.abs(2 * np.arange(total + 1) - total) >= observed
    return min(1.0, max(0.0, float(likelihood[far].sum())))


def _is_binary(values: npt.ArrayLike) -> bool:
    return bool(np.isin(values, (0, 1)).all())


def _mean(values: Values) -> float:
    return fsum(values) / len(values)


def _interval(means: npt.NDArray[np.float64], confidence: float) -> tuple[float, float]:
    low, high = np.quantile(means, [(1 - confidence) / 2, (1 + confidence) / 2])
    return float(low), float(high)
