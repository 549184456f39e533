"""Cost projections."""

from __future__ import annotations

import numpy as np
import polars as pl
import pytest

from pipeline.analysis.estimate import MEASURES, Projection, add_projections, project
from pipeline.config import default
from pipeline.evaluation.config import ScoringConfig


def sample(values: np.ndarray) -> pl.DataFrame:
    return pl.DataFrame({"question_id": list(map(str, range(len(values)))), **dict.fromkeys(MEASURES, values)})


def test_a_sample_of_all_questions_has_an_interval_of_width_zero() -> None:
    found = project(sample(np.arange(10.0)), 10, default(ScoringConfig))["busy_s"]
    assert (found.value, found.low, found.high) == (45, 45, 45)


@pytest.mark.parametrize("shape", [2.0, 0.3], ids=["plain", "a few questions take most of it"])
def test_the_interval_has_its_nominal_coverage(shape: float) -> None:
    rng = np.random.default_rng(0)
    whole = rng.gamma(shape, 5.0, size=400)
    scoring = default(ScoringConfig, bootstrap_resamples=400)
    covered = 0
    for _ in range(200):
        found = project(sample(rng.choice(whole, size=24, replace=False)), 400, scoring)["busy_s"]
        covered += found.low <= whole.sum() <= found.high
    assert 170 <= covered < 200


@pytest.mark.parametrize("share", [0.0, 0.02, 0.05, 0.2])
def test_the_interval_covers_a_few_questions_that_need_one_more_call(share: float) -> None:
    rng = np.random.default_rng(0)
    whole = 1.0 + (np.arange(1000) < 1000 * share)
    scoring = default(ScoringConfig, bootstrap_resamples=400)
    covered = 0
    for _ in range(200):
        found = project(sample(rng.choice(whole, size=24, replace=False)), 1000, scoring)["physical_calls"]
        covered += found.low <= whole.sum() <= found.high
    assert covered >= 180


def test_tokens_are_as_uncertain_as_the_calls_that_they_belong_to() -> None:
    calls = np.ones(24)
    calls[0] = 2
    costs = sample(calls).with_columns(completion_tokens=pl.lit(10.0))
    found = project(costs, 1000, default(ScoringConfig))
    assert found["completion_tokens"].high / 10_000 == pytest.approx(
        found["physical_calls"].high / found["physical_calls"].value
    )


def test_one_question_of_one_has_an_interval_of_width_zero() -> None:
    found = project(sample(np.array([4.0])), 1, default(ScoringConfig))["logical_calls"]
    assert (found.value, found.low, found.high) == (4, 4, 4)


def test_errors_of_parts_add_up_in_quadrature() -> None:
    one, other = Projection(10, 7, 13), Projection(20, 16, 24)
    total = one + other
    assert (total.value, total.low, total.high) == pytest.approx((30, 25, 35))
    assert add_projections([dict.fromkeys(MEASURES, one), dict.fromkeys(MEASURES, other)])["kg_queries"] == total


def test_the_maximum_is_taken_of_value_and_both_ends() -> None:
    assert Projection(10, 7, 13).maximum(Projection(9, 8, 20)) == Projection(10, 8, 20)
