"""Intervals and paired tests against scipy, published tables, and their own promise to cover."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy import stats

from pipeline.evaluation.statistics import (
    Estimate,
    bootstrap_mean,
    bootstrap_means,
    mcnemar,
    mean_over_seeds,
    paired_bootstrap,
)

RNG = np.random.default_rng(7)


@pytest.mark.parametrize(
    "values",
    [
        np.array([1.0] * 83 + [0.0] * 17),
        RNG.choice([0, 1 / 3, 0.5, 2 / 3, 1], size=300),
        RNG.beta(0.5, 0.5, size=150),
    ],
    ids=["hits", "f1", "continuous"],
)
def test_bootstrap_agrees_with_scipy(values: np.ndarray) -> None:
    ours = bootstrap_mean(values, seed=1)
    theirs = stats.bootstrap((values,), np.mean, n_resamples=10_000, method="percentile", rng=2)
    error = 0.1 * theirs.standard_error  # two percentiles of 10,000 resamples differ by chance
    assert ours.mean == pytest.approx(values.mean())
    assert ours.questions == len(values)
    assert ours.low == pytest.approx(theirs.confidence_interval.low, abs=error)
    assert ours.high == pytest.approx(theirs.confidence_interval.high, abs=error)


def test_the_bootstrap_of_hits_is_binomial() -> None:
    ours = bootstrap_mean(np.array([1.0] * 60 + [0.0] * 40), resamples=100_000)
    low, high = stats.binom.ppf([0.025, 0.975], 100, 0.6) / 100
    assert (ours.low, ours.high) == (pytest.approx(low, abs=0.011), pytest.approx(high, abs=0.011))


def test_the_same_seed_gives_the_same_interval_in_any_order_of_the_questions() -> None:
    values = RNG.random(50)
    assert bootstrap_mean(values, seed=3) == bootstrap_mean(values, seed=3) == bootstrap_mean(values[::-1], seed=3)
    assert bootstrap_mean(values, seed=3) != bootstrap_mean(values, seed=4)


def test_many_columns_have_the_intervals_that_each_has_alone() -> None:
    values = np.column_stack([RNG.choice([0, 1], size=200), RNG.choice([0, 0.5, 1], size=200), RNG.random(200)])
    for column, together in zip(values.T, bootstrap_means(values, seed=5), strict=True):
        alone = bootstrap_mean(column, seed=6)
        error = 0.1 * column.std() / np.sqrt(200)  # two percentiles of 10,000 resamples differ by chance
        assert (together.mean, together.questions) == (pytest.approx(alone.mean), 200)
        assert together.low == pytest.approx(alone.low, abs=error)
        assert together.high == pytest.approx(alone.high, abs=error)


def test_columns_meet_the_same_draws_of_the_questions() -> None:
    one = RNG.random(60)
    first, second, constant = bootstrap_means(np.column_stack([one, one + 0.25, np.full(60, 0.5)]), seed=2)
    assert (second.low - first.low, second.high - first.high) == (pytest.approx(0.25), pytest.approx(0.25))
    assert (constant.low, constant.mean, constant.high) == (0.5, 0.5, 0.5)


def test_large_columns_are_drawn_in_parts_of_the_same_stream(monkeypatch: pytest.MonkeyPatch) -> None:
    values = RNG.random((50, 2))
    whole = bootstrap_means(values, resamples=200)
    monkeypatch.setattr("pipeline.evaluation.statistics._CELLS_TOGETHER", 70)
    for part, of_whole in zip(bootstrap_means(values, resamples=200), whole, strict=True):
        assert (part.low, part.high) == (pytest.approx(of_whole.low), pytest.approx(of_whole.high))


def test_a_wider_confidence_is_a_wider_interval() -> None:
    values = RNG.random(50)
    narrow, wide = (bootstrap_mean(values, confidence=confidence) for confidence in (0.5, 0.99))
    assert wide.low < narrow.low < narrow.mean < narrow.high < wide.high


@pytest.mark.parametrize("values", [RNG.random(40), RNG.choice([0.0, 1.0], size=400)], ids=["questions", "counts"])
def test_resampling_in_batches_is_resampling_at_once(values: np.ndarray, monkeypatch: pytest.MonkeyPatch) -> None:
    whole = bootstrap_mean(values)
    monkeypatch.setattr("pipeline.evaluation.statistics._CELLS", 1000)
    assert bootstrap_mean(values) == whole


def test_the_interval_covers_the_truth_as_often_as_it_says() -> None:
    rng = np.random.default_rng(0)
    truth = 0.7 * 1 + 0.2 * 0.5
    samples = rng.choice([1, 0.5, 0], p=[0.7, 0.2, 0.1], size=(600, 200))
    estimates = [bootstrap_mean(sample, resamples=1000, seed=index) for index, sample in enumerate(samples)]
    covered = np.mean([estimate.low <= truth <= estimate.high for estimate in estimates])
    assert 0.92 <= covered <= 0.975


def test_paired_bootstrap_agrees_with_scipy() -> None:
    first, second = RNG.choice([0, 0.5, 1], size=(2, 250))
    ours = paired_bootstrap(first, second, seed=1)
    theirs = stats.bootstrap(
        (first, second),
        lambda a, b: np.mean(a - b),
        paired=True,
        vectorized=False,
        n_resamples=4000,
        method="percentile",
        rng=2,
    )
    error = 0.15 * theirs.standard_error
    assert ours.mean == pytest.approx(np.mean(first - second))
    assert ours.low == pytest.approx(theirs.confidence_interval.low, abs=error)
    assert ours.high == pytest.approx(theirs.confidence_interval.high, abs=error)


def test_pairing_sees_what_two_intervals_cannot() -> None:
    second = RNG.choice([0.0, 1.0], size=400)
    first = second.copy()
    first[np.flatnonzero(second == 0)[:15]] = 1
    assert bootstrap_mean(first).low < bootstrap_mean(second).high
    difference = paired_bootstrap(first, second)
    assert difference.low > 0
    assert difference.p_value < 0.01


def test_no_difference_has_no_significance() -> None:
    values = RNG.random(100)
    assert paired_bootstrap(values, values).p_value == 1
    assert paired_bootstrap(values, values[::-1]).p_value > 0.05


def test_the_p_value_of_equal_methods_is_uniform() -> None:
    rng = np.random.default_rng(5)
    p_values = [paired_bootstrap(*rng.random((2, 80)), resamples=500, seed=seed).p_value for seed in range(400)]
    assert stats.kstest(p_values, "uniform").pvalue > 0.001


def paired_hits(both: int, only_first: int, only_second: int, neither: int) -> tuple[np.ndarray, np.ndarray]:
    counts = [both, only_first, only_second, neither]
    return np.repeat([1, 1, 0, 0], counts), np.repeat([1, 0, 1, 0], counts)


@pytest.mark.parametrize(
    ("table", "p_value"),
    [
        ((794, 86, 150, 570), 3.7159361395713866e-05),
        ((101, 121, 59, 33), 4.4344492637551645e-06),
        ((5, 3, 11, 6), 0.057373046875),
    ],
)
def test_mcnemar_agrees_with_statsmodels(table: tuple[int, int, int, int], p_value: float) -> None:
    result = mcnemar(*paired_hits(*table))
    assert (result.only_first, result.only_second) == table[1:3]
    assert result.p_value == pytest.approx(p_value, rel=1e-6)


@given(st.integers(0, 30), st.integers(0, 30))
def test_mcnemar_is_a_binomial_test_of_the_discordant_questions(only_first: int, only_second: int) -> None:
    result = mcnemar(*paired_hits(10, only_first, only_second, 5))
    low = stats.binom.cdf(min(only_first, only_second), only_first + only_second, 0.5)
    assert result.p_value == pytest.approx(min(1, 2 * low))


def test_mean_over_seeds() -> None:
    assert mean_over_seeds([88.0, 89.0, 90.0]) == Estimate(
        89.0, pytest.approx(89 - 1.96 / 3**0.5), pytest.approx(89 + 1.96 / 3**0.5), 3
    )
    with pytest.raises(ValueError, match="at least two"):
        mean_over_seeds([88.0])
