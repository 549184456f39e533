"""The arithmetic of a projection: known answers."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from pipeline.analysis.estimate import MEASURES, Projection, project, together
from pipeline.evaluation.settings import DEFAULT


def sample(values: np.ndarray) -> np.ndarray:
    return np.tile(values[:, None], len(MEASURES))


def test_a_sample_of_everything_leaves_no_doubt() -> None:
    found = project(sample(np.arange(10.0)), 10, DEFAULT)["busy_s"]
    assert (found.value, found.low, found.high) == (45, 45, 45)


@pytest.mark.parametrize("shape", [2.0, 0.3], ids=["plain", "a few questions take most of it"])
def test_the_interval_covers_as_often_as_it_says(shape: float) -> None:
    rng = np.random.default_rng(0)
    whole = rng.gamma(shape, 5.0, size=400)
    settings = replace(DEFAULT, bootstrap_resamples=400)
    covered = 0
    for _ in range(200):
        found = project(sample(rng.choice(whole, size=24, replace=False)), 400, settings)["busy_s"]
        covered += found.low <= whole.sum() <= found.high
    assert 170 <= covered < 200


def test_errors_of_parts_add_up_in_quadrature() -> None:
    one, other = Projection(10, 7, 13), Projection(20, 16, 24)
    total = one + other
    assert (total.value, total.low, total.high) == pytest.approx((30, 25, 35))
    assert together([dict.fromkeys(MEASURES, one), dict.fromkeys(MEASURES, other)])["kg_queries"] == total


def test_of_two_things_at_once_the_longer_counts() -> None:
    assert Projection(10, 7, 13).or_longer(Projection(9, 8, 20)) == Projection(10, 8, 20)
