"""The front and the recommendation, on answers that can be worked out by hand."""

from __future__ import annotations

import numpy as np
import pytest

from pipeline.analysis.report.choice import Choice, choose, pareto_front
from pipeline.analysis.report.measured import Answers
from tests.analysis.report.points import QUICK


@pytest.mark.parametrize(
    ("points", "front"),
    [
        ({"a": (1, 0.2), "b": (2, 0.5), "c": (3, 0.4), "d": (4, 0.9)}, "abd"),
        ({"a": (1, 0.9), "b": (2, 0.5), "c": (3, 0.9)}, "a"),
        ({"a": (3, 0.1), "b": (2, 0.5), "c": (1, 0.9)}, "c"),
        ({"a": (1, 0.2), "b": (1, 0.5), "c": (2, 0.5), "d": (2, 0.6)}, "bd"),
        ({"a": (0, 0.0)}, "a"),
        ({}, ""),
    ],
)
def test_the_front_is_what_no_other_point_beats(points: dict[str, tuple[float, float]], front: str) -> None:
    costs, scores = ({ord(name): pair[at] for name, pair in points.items()} for at in (0, 1))
    found = pareto_front(costs, scores)
    assert "".join(map(chr, found)) == front
    assert not any(found.values())


def test_points_that_cost_and_score_the_same_share_a_place_on_the_front() -> None:
    assert pareto_front({7: 1, 8: 1, 9: 2, 10: 1}, {7: 0.5, 8: 0.5, 9: 0.6, 10: 0.4}) == {7: [8], 9: []}


def taken(columns: list[list[float]], prices: list[tuple[float, float]], among: list[int] | None = None) -> Choice:
    every = list(range(len(columns)))
    return choose(Answers(np.array(columns).T, None, QUICK), dict(enumerate(prices)), among=among or every)


ALL = [1.0] * 50 + [0.0] * 50
"""Half of a hundred questions right."""
ONE_LESS = [0.0, *ALL[1:]]
TEN_LESS = [0.0] * 10 + ALL[10:]
OTHERS = ALL[::-1]
"""As many right, but others."""


def test_the_cheapest_point_that_is_not_shown_to_be_worse_is_taken() -> None:
    choice = taken([ALL, ONE_LESS, TEN_LESS], [(9, 0), (5, 0), (1, 0)])
    assert (choice.best, choice.chosen, choice.among) == (0, 1, 3)
    assert set(choice.equals) == {0, 1}
    assert choice.equals[1].mean == pytest.approx(-0.01)
    assert choice.equals[1].low < -0.01 < choice.equals[1].high == 0
    assert choice.equals[0].mean == choice.equals[0].low == choice.equals[0].high == 0


def test_the_comparison_is_paired() -> None:
    """Ten points less on other questions may be chance; ten less on the same ones are not."""
    other_ten_less = [0.0] * 50 + [1.0] * 40 + [0.0] * 10
    assert taken([ALL, TEN_LESS], [(9, 0), (1, 0)]).chosen == 0
    assert taken([ALL, other_ten_less], [(9, 0), (1, 0)]).chosen == 1


def test_equal_calls_are_decided_by_tokens_and_equal_scores_by_both() -> None:
    assert taken([ALL, ALL, ALL], [(2, 30), (2, 10), (2, 20)]).chosen == 1
    assert taken([ALL, OTHERS], [(2, 30), (1, 90)]).best == 1


def test_a_sum_in_another_order_is_no_better_score() -> None:
    values = [0.1, 0.2, 0.3]
    assert np.mean(values) != np.mean(values[::-1])
    assert taken([values, values[::-1]], [(2, 0), (1, 0)]).best == 1
    assert taken([values[::-1], values], [(2, 0), (1, 0)]).best == 1


def test_only_the_points_that_are_named_are_looked_at() -> None:
    unknown = [float("nan")] * 100
    choice = taken([ALL, unknown, ONE_LESS], [(3, 0), (0, 0), (2, 0)], among=[0, 2])
    assert (choice.best, choice.chosen, choice.among) == (0, 2, 2)
