"""Cost projections."""

from __future__ import annotations

import numpy as np
import pytest

from pipeline.analysis.estimate import MEASURES, Projection, add_projections, project
from pipeline.config import default
from pipeline.evaluation.config import ScoringConfig


def sample(values: np.ndarray) -> np.ndarray:
    return np.tile(values[:, None], len(MEASURES))


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


def test_errors_of_parts_add_up_in_quadrature() -> None:
    one, other = Projection(10, 7, 13), Projection(20, 16, 24)
    total = one + other
    assert (total.value, total.low, total.high) == pytest.approx((30, 25, 35))
    assert add_projections([dict.fromkeys(MEASURES, one), dict.fromkeys(MEASURES, other)])["kg_queries"] == total


def test_the_maximum_is_taken_of_value_and_both_ends() -> None:
    assert Projection(10, 7, 13).maximum(Projection(9, 8, 20)) == Projection(10, 8, 20)
