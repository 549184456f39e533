"""Intervals and paired tests: agreement with SciPy and published tables, and nominal coverage."""

from __future__ import annotations

import inspect
from functools import partial
from itertools import product

import numpy as np
import pytest
import scipy
from hypothesis import given
from hypothesis import strategies as st

from pipeline.config import default
from pipeline.evaluation import statistics
from pipeline.evaluation.config import ScoringConfig
from pipeline.evaluation.statistics import (
    Estimate,
    benjamini_hochberg,
    effective_questions,
    holm,
    mcnemar,
    mean_over_seeds,
    wilson,
)

BOOTSTRAP = default(ScoringConfig).bootstrap
bootstrap_mean = partial(statistics.bootstrap_mean, **BOOTSTRAP)
estimate_mean = partial(statistics.estimate_mean, **BOOTSTRAP)
bootstrap_means = partial(statistics.bootstrap_means, **BOOTSTRAP)
paired_bootstrap = partial(statistics.paired_bootstrap, **BOOTSTRAP)
RNG = np.random.default_rng(7)
noise_margin = partial(statistics.noise_margin, confidence=BOOTSTRAP["confidence"])


def test_only_the_configuration_holds_the_defaults_of_intervals() -> None:
    functions = [function for _, function in inspect.getmembers(statistics, inspect.isfunction)]
    parameters = [each for function in functions for each in inspect.signature(function).parameters.values()]
    named = [each for each in parameters if each.name in BOOTSTRAP]
    assert {each.name for each in named} == BOOTSTRAP.keys()
    assert all(each.default is each.empty for each in named)


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
    theirs = scipy.stats.bootstrap((values,), np.mean, n_resamples=10_000, method="percentile", rng=2)
    error = 0.1 * theirs.standard_error  # two percentiles of 10,000 resamples differ by chance
    assert ours.mean == pytest.approx(values.mean())
    assert ours.questions == len(values)
    assert ours.low == pytest.approx(theirs.confidence_interval.low, abs=error)
    assert ours.high == pytest.approx(theirs.confidence_interval.high, abs=error)


def test_the_bootstrap_of_hits_is_binomial() -> None:
    ours = bootstrap_mean(np.array([1.0] * 60 + [0.0] * 40), resamples=100_000)
    low, high = scipy.stats.binom.ppf([0.025, 0.975], 100, 0.6) / 100
    assert (ours.low, ours.high) == (pytest.approx(low, abs=0.011), pytest.approx(high, abs=0.011))


@pytest.mark.parametrize("questions", [1, 3, 25, 997])
def test_the_interval_of_all_and_of_none_ends_exactly(questions: int) -> None:
    assert wilson(1.0, questions, confidence=0.95)[1] == 1
    assert wilson(0.0, questions, confidence=0.95)[0] == 0


def test_the_same_seed_gives_the_same_interval_in_any_order_of_the_questions() -> None:
    values = RNG.random(50)
    assert bootstrap_mean(values, seed=3) == bootstrap_mean(values, seed=3) == bootstrap_mean(values[::-1], seed=3)
    assert bootstrap_mean(values, seed=3) != bootstrap_mean(values, seed=4)


def test_several_columns_have_the_same_intervals_as_each_alone() -> None:
    values = np.column_stack([RNG.choice([0, 1], size=200), RNG.choice([0, 0.5, 1], size=200), RNG.random(200)])
    for column, together in zip(values.T, bootstrap_means(values, seed=5), strict=True):
        alone = bootstrap_mean(column, seed=6)
        error = 0.1 * column.std() / np.sqrt(200)  # two percentiles of 10,000 resamples differ by chance
        assert (together.mean, together.questions) == (pytest.approx(alone.mean), 200)
        assert together.low == pytest.approx(alone.low, abs=error)
        assert together.high == pytest.approx(alone.high, abs=error)


def test_all_columns_use_the_same_draws() -> None:
    one = RNG.random(60)
    first, second, constant = bootstrap_means(np.column_stack([one, one + 0.25, np.full(60, 0.5)]), seed=2)
    assert (second.low - first.low, second.high - first.high) == (pytest.approx(0.25), pytest.approx(0.25))
    assert (constant.low, constant.mean, constant.high) == (0.5, 0.5, 0.5)


def test_columns_of_clustered_questions_have_the_intervals_of_the_paired_bootstrap() -> None:
    clusters = RNG.integers(30, size=120)
    values = RNG.random((120, 2)) + 0.3 * RNG.random(30)[clusters][:, None]
    together = bootstrap_means(values, clusters=clusters, seed=5)
    for column, mean in zip(values.T, together, strict=True):
        pair = paired_bootstrap(column, np.zeros(120), clusters=clusters, seed=6)
        error = 0.1 * (pair.high - pair.low) / 4
        assert (mean.low, mean.high) == (pytest.approx(pair.low, abs=error), pytest.approx(pair.high, abs=error))
    with pytest.raises(ValueError, match="two clusters"):
        bootstrap_means(values, clusters=np.zeros(120))


def test_large_columns_are_drawn_in_batches_from_the_same_stream(monkeypatch: pytest.MonkeyPatch) -> None:
    values = RNG.random((50, 2))
    whole = bootstrap_means(values, resamples=200)
    monkeypatch.setattr("pipeline.evaluation.statistics._CELLS_OF_MANY_COLUMNS", 70)
    for part, of_whole in zip(bootstrap_means(values, resamples=200), whole, strict=True):
        assert (part.low, part.high) == (pytest.approx(of_whole.low), pytest.approx(of_whole.high))


def test_a_higher_confidence_gives_a_wider_interval() -> None:
    values = RNG.random(50)
    narrow, wide = (bootstrap_mean(values, confidence=confidence) for confidence in (0.5, 0.99))
    assert wide.low < narrow.low < narrow.mean < narrow.high < wide.high


@pytest.mark.parametrize("values", [RNG.random(40), RNG.choice([0.0, 1.0], size=400)], ids=["questions", "counts"])
def test_the_batch_size_does_not_change_the_interval(values: np.ndarray, monkeypatch: pytest.MonkeyPatch) -> None:
    whole = bootstrap_mean(values)
    monkeypatch.setattr("pipeline.evaluation.statistics._CELLS", 1000)
    assert bootstrap_mean(values) == whole


def test_the_interval_has_its_nominal_coverage() -> None:
    rng = np.random.default_rng(0)
    gold_context = 0.7 * 1 + 0.2 * 0.5
    samples = rng.choice([1, 0.5, 0], p=[0.7, 0.2, 0.1], size=(600, 200))
    estimates = [bootstrap_mean(sample, resamples=1000, seed=index) for index, sample in enumerate(samples)]
    covered = np.mean([estimate.low <= gold_context <= estimate.high for estimate in estimates])
    assert 0.92 <= covered <= 0.975


def test_paired_bootstrap_agrees_with_scipy() -> None:
    first, second = RNG.choice([0, 0.5, 1], size=(2, 250))
    ours = paired_bootstrap(first, second, seed=1)
    theirs = scipy.stats.bootstrap(
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


def test_a_paired_test_finds_a_difference_that_separate_intervals_miss() -> None:
    second = RNG.choice([0.0, 1.0], size=400)
    first = second.copy()
    first[np.flatnonzero(second == 0)[:15]] = 1
    assert bootstrap_mean(first).low < bootstrap_mean(second).high
    difference = paired_bootstrap(first, second)
    assert difference.low > 0
    assert difference.p_value < 0.01


def test_equal_scores_have_a_p_value_of_one() -> None:
    values = RNG.random(100)
    assert paired_bootstrap(values, values).p_value == 1
    assert paired_bootstrap(values, values[::-1]).p_value > 0.05


def test_the_p_value_of_equal_methods_is_uniform() -> None:
    rng = np.random.default_rng(5)
    p_values = [paired_bootstrap(*rng.random((2, 80)), resamples=500, seed=seed).p_value for seed in range(400)]
    assert scipy.stats.kstest(p_values, "uniform").pvalue > 0.001


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
    assert mcnemar(*paired_hits(*table)) == pytest.approx(p_value, rel=1e-6)


@given(st.integers(0, 30), st.integers(0, 30))
def test_mcnemar_is_a_binomial_test_of_the_discordant_questions(only_first: int, only_second: int) -> None:
    low = scipy.stats.binom.cdf(min(only_first, only_second), only_first + only_second, 0.5)
    assert mcnemar(*paired_hits(10, only_first, only_second, 5)) == pytest.approx(min(1, 2 * low))


def test_mean_over_seeds() -> None:
    assert mean_over_seeds([88.0, 89.0, 90.0]) == Estimate(
        89.0, pytest.approx(89 - 1.96 / 3**0.5), pytest.approx(89 + 1.96 / 3**0.5), 3
    )
    with pytest.raises(ValueError, match="at least two"):
        mean_over_seeds([88.0])


def test_one_cluster_per_question_equals_no_clustering() -> None:
    for first, second in (RNG.random((2, 60)), RNG.choice([0.0, 1.0], size=(2, 400))):
        plain = paired_bootstrap(first, second)
        assert paired_bootstrap(first, second, clusters=np.arange(len(first))) == plain
        assert paired_bootstrap(first, second, clusters=[f"q{number}" for number in range(len(first))]) == plain


def test_cluster_names_and_question_order_do_not_matter() -> None:
    first, second = RNG.choice([0.0, 0.5, 1.0], size=(2, 90))
    clusters = RNG.integers(20, size=90)
    order = RNG.permutation(90)
    there = paired_bootstrap(first[order], second[order], clusters=[f"c{each}" for each in clusters[order]])
    assert there == paired_bootstrap(first, second, clusters=clusters)


def test_repeating_each_question_does_not_add_evidence() -> None:
    first, second = RNG.choice([0.0, 1.0], p=[0.4, 0.6], size=(2, 200))
    thrice, clusters = np.repeat([first, second], 3, axis=1), np.repeat(np.arange(200), 3)
    once = paired_bootstrap(first, second)
    heeded = paired_bootstrap(*thrice, clusters=clusters)
    assert (heeded.low, heeded.high, heeded.p_value) == pytest.approx((once.low, once.high, once.p_value))
    assert mcnemar(*thrice, clusters=clusters) == pytest.approx(mcnemar(first, second))
    taken_for_new = paired_bootstrap(*thrice)
    assert taken_for_new.high - taken_for_new.low < 0.65 * (once.high - once.low)


def test_copies_of_questions_tell_no_more_than_the_questions() -> None:
    hits = RNG.integers(2, size=50).astype(float)
    copied, clusters = np.repeat(hits, 4), np.repeat(np.arange(50), 4)
    assert effective_questions(copied, clusters) == pytest.approx(50, rel=0.02)
    assert effective_questions(hits, np.arange(50)) == pytest.approx(50)
    assert effective_questions(np.zeros(200), clusters) == 50
    alternating = np.tile([0.0, 1.0], 100)
    assert effective_questions(alternating, np.repeat(np.arange(50), 4)) == 200, (
        "clusters of equal shares are not better"
    )


def test_intervals_of_shares_over_clusters_have_their_coverage() -> None:
    rng = np.random.default_rng(11)
    covered = {True: 0, False: 0}
    for _ in range(300):
        clusters = np.repeat(np.arange(60), rng.integers(1, 10, size=60))
        hits = (rng.random(len(clusters)) < rng.choice([0.2, 0.8], size=60)[clusters]).astype(float)
        for is_clustered in covered:
            found = estimate_mean(hits, clusters=clusters if is_clustered else None)
            covered[is_clustered] += found.low <= 0.5 <= found.high
    assert covered[True] >= 275
    assert covered[False] < 260, "an interval that ignores the sources is too narrow"


def clustered_hits(rng: np.random.Generator, *, sources: int = 60) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Draw two equally good methods; which one is right depends on the source, which has one to nine questions."""
    clusters = np.repeat(np.arange(sources), rng.integers(1, 10, size=sources))
    favours_first = rng.random(sources)[clusters]
    drawn = rng.random(len(clusters))
    return drawn < favours_first, drawn >= favours_first, clusters


def test_only_the_clustered_interval_has_its_nominal_coverage() -> None:
    rng = np.random.default_rng(11)
    covered = {"clustered": 0, "plain": 0}
    for seed in range(600):
        first, second, clusters = clustered_hits(rng)
        for name, known in (("clustered", clusters), ("plain", None)):
            found = paired_bootstrap(first, second, clusters=known, resamples=1000, seed=seed)
            covered[name] += found.low <= 0 <= found.high
    assert 0.92 <= covered["clustered"] / 600 <= 0.975
    assert covered["plain"] / 600 < 0.85


def test_only_the_clustered_exact_test_has_its_nominal_error_rate() -> None:
    rng = np.random.default_rng(12)
    p_values = np.array(
        [
            (mcnemar(first, second, clusters=clusters), mcnemar(first, second))
            for first, second, clusters in (clustered_hits(rng) for _ in range(1000))
        ]
    )
    misled = (p_values <= 0.05).mean(axis=0)
    assert 0.03 <= misled[0] <= 0.065
    assert misled[1] > 0.15


@given(st.lists(st.tuples(st.integers(0, 4), st.integers(-1, 1)), min_size=2, max_size=12))
def test_the_clustered_exact_test_enumerates_the_signs_of_clusters(
    questions: list[tuple[int, int]],
) -> None:
    clusters, surplus = [5, *(each for each, _ in questions)], np.array([0, *(each for _, each in questions)])
    sums = [sum(s for c, s in zip(clusters, surplus, strict=True) if c == cluster) for cluster in set(clusters)]
    swaps = [abs(sum(side * each for side, each in zip(sides, sums, strict=True))) for sides in _sides(len(sums))]
    expected = np.mean([swap >= abs(sum(sums)) for swap in swaps])
    assert mcnemar(surplus > 0, surplus < 0, clusters=clusters) == pytest.approx(expected)


def _sides(clusters: int) -> list[tuple[int, ...]]:
    return list(product((-1, 1), repeat=clusters))


@pytest.mark.parametrize("compare", [paired_bootstrap, mcnemar])
def test_a_single_cluster_is_an_error(compare: object) -> None:
    with pytest.raises(ValueError, match="at least two clusters"):
        compare(np.ones(5), np.zeros(5), clusters=np.zeros(5))  # type: ignore[operator]


def test_corrections_of_a_small_example() -> None:
    p_values = [0.01, 0.04, 0.03, 0.005]
    assert holm(p_values) == pytest.approx([0.03, 0.06, 0.06, 0.02])
    assert benjamini_hochberg(p_values) == pytest.approx([0.02, 0.04, 0.04, 0.02])


def test_corrections_on_the_example_that_benjamini_and_hochberg_published() -> None:
    """Fifteen p-values of a drug trial: four are discoveries at 5 %, three with family-wise control."""
    p_values = "0.0001 0.0004 0.0019 0.0095 0.0201 0.0278 0.0298 0.0344 0.0459 0.3240 0.4262 0.5719 0.6528 0.7590 1"
    values = np.array(p_values.split(), dtype=float)
    assert (benjamini_hochberg(values) <= 0.05).sum() == 4
    assert (holm(values) <= 0.05).sum() == 3


P_VALUES = st.lists(st.floats(0, 1), min_size=1, max_size=30)


@given(P_VALUES)
def test_benjamini_hochberg_agrees_with_scipy(p_values: list[float]) -> None:
    assert benjamini_hochberg(p_values) == pytest.approx(scipy.stats.false_discovery_control(p_values))


@given(P_VALUES)
def test_holm_steps_down(p_values: list[float]) -> None:
    """Reject one by one, smallest first, while p is at most α divided by the number of remaining tests."""
    adjusted, left = holm(p_values), sorted(p_values)
    for alpha in (0.01, 0.05, 0.5):
        rejected = 0
        while rejected < len(left) and left[rejected] * (len(left) - rejected) <= alpha:
            rejected += 1
        assert (adjusted <= alpha).sum() == rejected


@given(P_VALUES, st.randoms())
def test_corrected_p_values(p_values: list[float], random: object) -> None:
    order = list(range(len(p_values)))
    random.shuffle(order)  # type: ignore[attr-defined]
    for correct in (holm, benjamini_hochberg):
        adjusted = correct(p_values)
        assert (adjusted >= p_values).all()
        assert (adjusted <= 1).all()
        assert (np.diff(adjusted[np.argsort(p_values, kind="stable")]) >= 0).all()
        assert correct([p_values[each] for each in order]) == pytest.approx(adjusted[order])
    assert (holm(p_values) >= benjamini_hochberg(p_values) - 1e-12).all()


@pytest.mark.parametrize("shaky", [0.0, 0.02, 0.3])
def test_the_noise_margin_covers_the_difference_of_two_runs(shaky: float) -> None:
    """Some questions have random answers; the margin is estimated from a sample of all questions."""
    rng = np.random.default_rng(13)
    within = 0
    for _ in range(500):
        tossed = rng.random(600) < shaky
        runs = rng.integers(2, size=(2, 600)) * tossed
        margin = noise_margin((runs[0] - runs[1])[:150].astype(float), 600)
        within += abs(rng.integers(2, size=(2, 600)) @ (tossed / 600) @ [1, -1]) <= margin
    assert within / 500 >= 0.93


def test_the_noise_margin_of_a_small_example() -> None:
    differences = np.array([1.0, -1.0, 0.0, 0.0, 0.0, 0.0, 0.0, 0.0, 0.0])
    assert noise_margin(differences, 300) == pytest.approx(1.959964 * (0.3 / 300) ** 0.5, rel=1e-6)
    assert noise_margin(differences, 300, confidence=0.99) > noise_margin(differences, 300)


@pytest.mark.parametrize("questions", [149, 200, 330, 1000])
@pytest.mark.parametrize("wins", [0.0, 0.005, 0.02, 0.2])
def test_a_method_that_is_worse_by_the_margin_is_seldom_said_not_to_be(questions: int, wins: float) -> None:
    """By losses alone, and by losses and wins: an error rate of 5 %, and not of 12 % with few losses."""
    rng = np.random.default_rng(3)
    draws = rng.random((1000, questions))
    differences = (draws < wins).astype(float) - (draws > 1 - wins - 0.02)
    shown = [statistics.not_worse_p_value(each, 0.02) <= 0.05 for each in differences]
    assert np.mean(shown) <= 0.06


def test_the_fewest_questions_that_show_that_a_method_is_not_worse() -> None:
    for comparisons in (1, 8, 31):
        needed = statistics.questions_to_show_not_worse(0.02, comparisons=comparisons, confidence=0.95)
        few, enough = (-1.0 * (np.arange(n) < 1) for n in (needed - 1, needed))
        risk = 0.05 / comparisons
        assert statistics.not_worse_p_value(enough, 0.02) <= risk < statistics.not_worse_p_value(few, 0.02)


def test_clusters_and_shares_count_in_the_test_of_a_margin() -> None:
    zeros = np.zeros(300)
    assert statistics.not_worse_p_value(zeros, 0.02) < 0.01
    assert statistics.not_worse_p_value(zeros, 0.02, clusters=np.arange(300) // 3) > 0.1, "100 draws"
    halves = zeros - 0.5 * (np.arange(300) < 4)
    assert statistics.not_worse_p_value(halves, 0.02) > statistics.not_worse_p_value(zeros, 0.02)


@pytest.mark.parametrize(
    ("before", "after", "interval"),
    [([0.0], [1.0], ""), ([0.0, 1.0], [0.0, 1.0], ""), ([0.0, 1.0, 0.0], [1.0] * 3, "+0.0…")],
)
def test_a_difference_that_is_the_same_for_all_questions_has_no_interval(
    before: list[float], after: list[float], interval: str
) -> None:
    found = paired_bootstrap(np.array(after), np.array(before), resamples=100, confidence=0.95, seed=0)
    assert found.interval_points.startswith(interval)
    assert bool(found.interval_points) is bool(interval)
