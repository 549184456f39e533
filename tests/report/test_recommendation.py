"""Pareto front and recommendation, on small examples."""

from __future__ import annotations

import numpy as np
import pytest

from pipeline.report.data import ScoreMatrix
from pipeline.report.recommendation import Recommendation, pareto_front, recommend
from tests.report.configurations import QUICK


@pytest.mark.parametrize(
    ("pairs", "front"),
    [
        ({"a": (1, 0.2), "b": (2, 0.5), "c": (3, 0.4), "d": (4, 0.9)}, "abd"),
        ({"a": (1, 0.9), "b": (2, 0.5), "c": (3, 0.9)}, "a"),
        ({"a": (3, 0.1), "b": (2, 0.5), "c": (1, 0.9)}, "c"),
        ({"a": (1, 0.2), "b": (1, 0.5), "c": (2, 0.5), "d": (2, 0.6)}, "bd"),
        ({"a": (0, 0.0)}, "a"),
        ({}, ""),
    ],
)
def test_the_front_is_the_configurations_that_no_other_one_dominates(
    pairs: dict[str, tuple[float, float]], front: str
) -> None:
    costs, scores = ({ord(name): pair[at] for name, pair in pairs.items()} for at in (0, 1))
    found = pareto_front(costs, scores)
    assert "".join(map(chr, found)) == front
    assert not any(found.values())


def test_configurations_with_equal_cost_and_score_share_an_entry_of_the_front() -> None:
    assert pareto_front({7: 1, 8: 1, 9: 2, 10: 1}, {7: 0.5, 8: 0.5, 9: 0.6, 10: 0.4}) == {7: [8], 9: []}


def recommended(
    columns: list[list[float]], cost_keys: list[tuple[float, float]], among: list[int] | None = None
) -> Recommendation:
    every = list(range(len(columns)))
    return recommend(ScoreMatrix(np.array(columns).T, None, QUICK), dict(enumerate(cost_keys)), among=among or every)


ALL = [1.0] * 500 + [0.0] * 500
"""Half of a thousand questions right."""
ONE_LESS = [0.0, *ALL[1:]]
HUNDRED_LESS = [0.0] * 100 + ALL[100:]
OTHERS = ALL[::-1]
"""As many right, but others."""


def test_the_cheapest_configuration_that_is_hardly_worse_is_recommended() -> None:
    found = recommended([ALL, ONE_LESS, HUNDRED_LESS], [(9, 0), (5, 0), (1, 0)])
    assert (found.best, found.recommended, found.candidates) == (0, 1, 3)
    assert set(found.not_worse) == {0, 1}
    assert found.not_worse[1].mean == pytest.approx(-0.001)
    assert found.not_worse[1].low < -0.001 < found.not_worse[1].high == 0
    assert found.not_worse[0].mean == 0


def test_a_configuration_that_another_one_beats_in_everything_is_not_recommended() -> None:
    """Equal calls and fewer tokens at a higher score, as in a sweep of 144 configurations."""
    found = recommended([ALL, [1.0, *ALL[:-1]], ONE_LESS], [(9, 900), (5, 599), (5, 610)])
    assert found.recommended == 1
    assert set(found.not_worse) == {1}


def test_ten_questions_recommend_nothing() -> None:
    found = recommended([[1.0] * 9 + [0.0], [0.0] * 10], [(9, 0), (1, 0)])
    assert (found.best, found.recommended) == (0, None)
    assert found.needed == 236


def test_no_correct_answer_recommends_nothing() -> None:
    assert recommended([[0.0] * 500, [0.0] * 500], [(9, 0), (1, 0)]).recommended is None


def test_many_candidates_need_more_questions() -> None:
    steps = [[1.0] * (number + 1) + [0.0] * (99 - number) for number in range(11)]
    found = recommended(steps, [(number, 0) for number in range(11)])
    assert (found.best, found.needed, found.recommended) == (10, 369, None)


def test_configurations_behind_the_front_count_as_comparisons() -> None:
    """Of many cheap configurations, the luckiest is on the front: the others are corrected for."""
    twelve_less = [0.0] * 12 + ALL[12:]
    assert recommended([ALL, twelve_less], [(9, 0), (5, 0)]).recommended == 1
    found = recommended([ALL, twelve_less, *[HUNDRED_LESS] * 30], [(9, 0), *[(5, 0)] * 31])
    assert (found.recommended, found.needed) == (0, 432)


def test_the_comparison_is_paired() -> None:
    """Losing and winning many other questions leaves doubt; losing one does not."""
    assert recommended([ALL, ONE_LESS], [(9, 0), (1, 0)]).recommended == 1
    assert recommended([ALL, [0.0, *OTHERS[1:-1], 0.0]], [(9, 0), (1, 0)]).recommended == 0


def test_tokens_decide_between_equal_calls_and_costs_between_equal_scores() -> None:
    assert recommended([ALL, ALL, ALL], [(2, 30), (2, 10), (2, 20)]).recommended == 1
    assert recommended([ALL, OTHERS], [(2, 30), (1, 90)]).best == 1


def test_summation_order_does_not_change_the_best() -> None:
    values = [0.1, 0.2, 0.3]
    assert np.mean(values) != np.mean(values[::-1])
    assert recommended([values, values[::-1]], [(2, 0), (1, 0)]).best == 1
    assert recommended([values[::-1], values], [(2, 0), (1, 0)]).best == 1


def test_only_the_given_configurations_are_considered() -> None:
    unknown = [float("nan")] * 1000
    found = recommended([ALL, unknown, ONE_LESS], [(3, 0), (0, 0), (2, 0)], among=[0, 2])
    assert (found.best, found.recommended, found.candidates) == (0, 2, 2)
