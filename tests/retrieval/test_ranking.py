"""Ranking by score."""

from __future__ import annotations

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from pipeline.retrieval.ranking import best


def test_ties_are_ordered_by_position_even_at_the_cutoff() -> None:
    assert best(np.array([0.5, 0.9, 0.5, 0.5, 0.1]), 3) == [1, 0, 2]


def test_differences_of_rounding_are_ties() -> None:
    assert best(np.array([0.3, 0.3000001]), 1) == [0]


def test_rounding_errors_grow_with_the_scores() -> None:
    assert best(np.array([93.0001, 93.00013]), 1) == [0]
    assert best(np.array([93.0001, 93.0004]), 1) == [1]


@given(st.lists(st.integers(-3, 3), max_size=30), st.integers(0, 40))
def test_the_ranking_equals_a_stable_sort(scores: list[int], k: int) -> None:
    expected = sorted(range(len(scores)), key=lambda position: (-scores[position], position))[:k]
    assert best(np.array(scores, dtype=np.float32), k) == expected
