"""Chart geometry: scales, ticks, marks, fronts."""

from __future__ import annotations

import re
from itertools import pairwise

import pytest

from pipeline.evaluation.statistics import Estimate
from pipeline.report.charts import DataPoint, Series, line_chart, scatter, score_range


def exactly(mean: float, within: float = 0.0) -> Estimate:
    return Estimate(mean, mean - within, mean + within, 10)


@pytest.mark.parametrize(
    ("scores", "expected"),
    [
        ([exactly(0.5, 0.1)], (0.4, 0.6)),
        ([exactly(0.034, 0.003), exactly(0.93, 0.01)], (0.0, 1.0)),
        ([exactly(0.0)], (0.0, 0.06)),
        ([exactly(1.0)], (0.94, 1.0)),
        ([exactly(0.5)], (0.46, 0.54)),
        ([Estimate(0.99, 0.92, 1.0, 9)], (0.92, 1.0)),
    ],
)
def test_the_range_contains_every_interval_and_ends_at_round_numbers(
    scores: list[Estimate], expected: tuple[float, float]
) -> None:
    assert score_range(scores) == pytest.approx(expected)


def lines(*series: dict[float, float], last: float | None = None) -> list[list[tuple[float, float]]]:
    drawn = [Series(0, 0, {x: exactly(y) for x, y in each.items()}, {}) for each in series]
    chart = line_chart(drawn, 440, 290, unlimited_value=last, within=(0.0, 1.0))
    return [[(mark.x, mark.y) for mark in line.marks] for line in chart.lines]


def test_values_are_to_scale_on_both_axes() -> None:
    ((one, two, four),) = lines({1: 0.0, 2: 0.5, 4: 1.0})
    assert two[0] - one[0] == pytest.approx((four[0] - two[0]) / 2, abs=0.2)
    assert one[1] - two[1] == pytest.approx(two[1] - four[1], abs=0.2)
    assert four[1] < one[1], "up is better"


def test_series_share_the_scale() -> None:
    first, second = lines({1: 0.5, 3: 0.5}, {3: 0.5})
    assert second == [first[1]]


def test_no_limit_comes_after_all_numbers() -> None:
    ((one, five, all),) = lines({1: 0.1, 5: 0.2, 0: 0.3}, last=0)
    assert one[0] < five[0] < all[0]


def test_values_of_several_powers_of_ten_have_a_logarithmic_scale() -> None:
    ((first, second, third),) = lines({1: 0, 10: 0, 100: 0})
    assert second[0] - first[0] == pytest.approx(third[0] - second[0], abs=0.2)


def data_point(cost: float, score: float, rank: int | None = None) -> DataPoint:
    return DataPoint(group=0, cost=cost, score=exactly(score), text="", rank=rank, recommended=False)


def test_the_front_is_drawn_as_steps_from_its_first_mark_to_the_right_edge() -> None:
    data = [data_point(1, 0.1, 1), data_point(3, 0.4, 2), data_point(9, 0.3)]
    chart = scatter(data, [data[:2]], 440, 290)
    first, second, _ = chart.marks
    corners = [(float(x), float(y)) for x, y in re.findall(r"([\d.]+),([\d.]+)", chart.steps[0])]
    assert corners == [
        (first.x, first.y),
        (second.x, first.y),
        (second.x, second.y),
        (chart.frame.right, second.y),
    ]


def test_ranks_do_not_overlap_and_the_best_are_shown_first() -> None:
    data = [data_point(1, 0.1, 1), data_point(5.00, 0.500, 2), data_point(5.01, 0.505, 3), data_point(5.02, 0.51, 4)]
    ranked = [mark.rank for mark in scatter(data, [data], 440, 290).marks if mark.shows_rank]
    assert ranked == [1, 4]


@pytest.mark.parametrize("costs", [[0.0], [5.0], [0, 3], [4.02, 6.6], [1, 1_000_000], [0.0004, 0.0009], [0, 0]])
def test_all_marks_and_ticks_are_inside_and_ticks_do_not_touch(costs: list[float]) -> None:
    frame = scatter(data := [data_point(cost, 0.5) for cost in costs], [data[:1]], 440, 290).frame
    marks = scatter(data, [data[:1]], 440, 290).marks
    assert all(frame.left <= mark.x <= frame.right and frame.top <= mark.y <= frame.bottom for mark in marks)
    positions = [tick.at for tick in frame.x_ticks]
    assert positions
    assert all(frame.left <= at <= frame.right for at in positions)
    assert all(after - before > 10 for before, after in pairwise(positions))
