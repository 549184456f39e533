"""Computes chart geometry: scales, ticks and paths in the units of the SVG view box. Colours are in `page.css`."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace

from pipeline.evaluation.statistics import Estimate

_LEFT, _RIGHT = 34, 12
_TITLED, _BARE = (24, 36), (8, 20)
"""Space above and below the plot, with and without axis titles."""
_LOG_FROM = 30
"""If the largest value is more than this many times the smallest, the scale is logarithmic."""
_LEAST_SPAN = 0.05
"""The smallest range of a score axis, so that small differences do not look large."""
_TICK_WIDTH = 7
"""Width of a character of a tick label."""
_RANK_SIZE = (16, 13)
"""Width and height of a rank number."""


@dataclass(frozen=True, slots=True)
class Tick:
    """A labelled position on an axis."""

    at: float
    text: str


@dataclass(frozen=True, slots=True)
class Frame:
    """The plot area of a chart, and its ticks."""

    width: int
    height: int
    left: int
    right: int
    top: int
    bottom: int
    x_ticks: Sequence[Tick]
    y_ticks: Sequence[Tick]


@dataclass(frozen=True, slots=True)
class Mark:
    """The position of a score and its interval."""

    x: float
    y: float
    low: float
    high: float
    group: int
    """The number of the group, which determines colour and shape."""
    text: str
    """The tooltip."""
    rank: int | None = None
    """The position on the Pareto front, from 1; None if it is not on the front."""
    shows_rank: bool = False
    """Whether there is space for the rank next to the mark."""
    recommended: bool = False
    """Whether it is the recommended configuration."""
    values: str = ""
    """The numbers of its values in the filters."""


@dataclass(frozen=True, slots=True)
class Line:
    """Connected marks, with the band of their intervals."""

    group: int
    dash: int
    is_mean: bool
    path: str
    band: str
    marks: Sequence[Mark]


@dataclass(frozen=True, slots=True)
class LineChart:
    """A chart of scores along a numeric parameter."""

    frame: Frame
    lines: Sequence[Line]


@dataclass(frozen=True, slots=True)
class Scatter:
    """A chart of scores against a cost, with the steps of the Pareto fronts."""

    frame: Frame
    marks: Sequence[Mark]
    steps: Sequence[str]


@dataclass(frozen=True, slots=True)
class Series:
    """The data of a line: scores and tooltips by value of the axis."""

    group: int
    dash: int
    scores: Mapping[float, Estimate]
    texts: Mapping[float, str]
    """Empty for small charts, which have no tooltips."""
    is_mean: bool = False
    """Whether it is the marginal curve, which is drawn behind the best one and without a band."""


@dataclass(frozen=True, slots=True)
class DataPoint:
    """The data of a mark in a scatter chart."""

    group: int
    cost: float
    score: Estimate
    text: str
    rank: int | None
    recommended: bool
    values: str = ""
    """The numbers of its values in the filters."""


Scale = Callable[[float], float]


def score_range(scores: Sequence[Estimate]) -> tuple[float, float]:
    """Return the smallest range within 0 to 1 that contains all intervals and ends at round percentages."""
    low, high = min(score.low for score in scores), max(score.high for score in scores)
    span = max(high - low, _LEAST_SPAN)
    low = min(max(0.0, (low + high - span) / 2), 1 - span)
    step = _step(span, 4)
    return math.floor(low / step + 1e-9) * step, min(1.0, math.ceil((low + span) / step - 1e-9) * step)


def line_chart(
    series: Sequence[Series],
    width: int,
    height: int,
    *,
    unlimited_value: float | None,
    within: tuple[float, float],
    titled: bool = True,
) -> LineChart:
    """Draw score against value. `unlimited_value` means no limit, and comes after all others."""
    values = sorted({value for each in series for value in each.scores if value != unlimited_value})
    if unlimited_value is not None and any(unlimited_value in each.scores for each in series):
        values.append(unlimited_value)
    positions = _positions(values, unlimited_value, _LEFT + 10, width - _RIGHT - 10)
    texts = {value: "all" if value == unlimited_value else f"{value:g}" for value in values}
    x_ticks = _without_touching([Tick(positions[value], texts[value]) for value in values])
    frame, y = _frame(width, height, x_ticks, within, _TITLED if titled else _BARE)
    lines = []
    for each in series:
        marks = [
            _mark(positions[value], y, each.scores[value], each.group, each.texts.get(value, ""))
            for value in values
            if value in each.scores
        ]
        band = [(mark.x, mark.high) for mark in marks] + [(mark.x, mark.low) for mark in reversed(marks)]
        lines.append(
            Line(each.group, each.dash, each.is_mean, _path([(m.x, m.y) for m in marks]), f"{_path(band)}Z", marks)
        )
    return LineChart(frame, lines)


def scatter(data: Sequence[DataPoint], fronts: Sequence[Sequence[DataPoint]], width: int, height: int) -> Scatter:
    """Draw score against cost, and each front as steps: the best score at each cost."""
    costs = [datum.cost for datum in data]
    x_ticks, x = _cost_axis(costs, _LEFT, width - _RIGHT)
    frame, y = _frame(width, height, x_ticks, score_range([datum.score for datum in data]), _TITLED)
    marks = [
        replace(
            _mark(x(datum.cost), y, datum.score, datum.group, datum.text),
            rank=datum.rank,
            recommended=datum.recommended,
            values=datum.values,
        )
        for datum in data
    ]
    steps = []
    for front in fronts:
        corners = [(x(front[0].cost), y(front[0].score.mean))]
        for datum in front[1:]:
            at = (x(datum.cost), y(datum.score.mean))
            corners += [(at[0], corners[-1][1]), at]
        steps.append(_path([*corners, (width - _RIGHT, corners[-1][1])]))
    return Scatter(frame, _without_overlapping_ranks(marks), steps)


def _frame(
    width: int, height: int, x_ticks: Sequence[Tick], within: tuple[float, float], room: tuple[int, int]
) -> tuple[Frame, Scale]:
    """Return the plot area with a percentage axis at its left, and the scale of that axis."""
    low, high = within
    top, bottom = room[0], height - room[1]
    y = _linear(low, high, bottom, top)
    step = _step(high - low, max(2, (bottom - top) // 40))
    count = round((high - low) / step)
    y_ticks = [Tick(y(low + n * step), f"{100 * (low + n * step):g}") for n in range(count + 1)]
    return Frame(width, height, _LEFT, width - _RIGHT, top, bottom, x_ticks, y_ticks), y


def _mark(x: float, y: Scale, score: Estimate, group: int, text: str) -> Mark:
    mean, low, high = (round(y(at), 1) for at in (score.mean, score.low, score.high))
    return Mark(round(x, 1), mean, low, high, group, text)


def _without_overlapping_ranks(marks: Sequence[Mark]) -> list[Mark]:
    """Show ranks from the best mark down, except those that overlap one already shown."""
    shown: list[Mark] = []
    for mark in sorted((mark for mark in marks if mark.rank), key=lambda mark: mark.y):
        if all(abs(mark.x - other.x) > _RANK_SIZE[0] or abs(mark.y - other.y) > _RANK_SIZE[1] for other in shown):
            shown.append(mark)
    return [replace(mark, shows_rank=mark in shown) for mark in marks]


def _cost_axis(costs: Sequence[float], left: int, right: int) -> tuple[list[Tick], Scale]:
    low, high = min(costs), max(costs)
    if low > 0 and high / low > _LOG_FROM:
        return _log_axis(low, high, left, right)
    step = _step(high - low or high or 1, 5)
    first, last = math.floor(low / step + 1e-9), math.ceil(high / step - 1e-9)
    last = max(last, first + 1)
    x = _linear(first * step, last * step, left + 10, right - 10)
    return _without_touching([Tick(x(n * step), _short(n * step)) for n in range(first, last + 1)]), x


def _log_axis(low: float, high: float, left: int, right: int) -> tuple[list[Tick], Scale]:
    first, last = math.floor(math.log10(low)), math.ceil(math.log10(high))
    log = _linear(math.log10(low) - 0.05, math.log10(high) + 0.05, left, right)

    def x(cost: float) -> float:
        return log(math.log10(cost))

    round_costs = [digit * 10.0**power for power in range(first, last + 1) for digit in (1, 2, 5)]
    return _without_touching([Tick(x(cost), _short(cost)) for cost in round_costs if low <= cost <= high]), x


def _positions(values: Sequence[float], unlimited_value: float | None, left: int, right: int) -> dict[float, float]:
    """Return the positions of values on an axis: to scale, but `unlimited_value` one step beyond the others."""
    numbers = [value for value in values if value != unlimited_value]
    if not numbers or len(values) == 1:
        return dict.fromkeys(values, (left + right) / 2)
    ends = right if len(numbers) == len(values) else right - (right - left) / len(values)
    log = numbers[0] > 0 and numbers[-1] / numbers[0] > _LOG_FROM
    on = math.log10 if log else float
    scale = _linear(on(numbers[0]), on(numbers[-1]), left, ends)
    return {value: right if value == unlimited_value else scale(on(value)) for value in values}


def _linear(low: float, high: float, start: float, end: float) -> Scale:
    return lambda value: start + (end - start) * ((value - low) / (high - low) if high > low else 0.5)


def _step(span: float, parts: int) -> float:
    """Return the round step that divides a span into about this many parts."""
    rough = span / parts
    power = 10.0 ** math.floor(math.log10(rough))
    return next(step * power for step in (1, 2, 2.5, 5, 10) if step * power >= rough * (1 - 1e-9))


def _without_touching(ticks: Sequence[Tick]) -> list[Tick]:
    """Drop ticks whose text would touch the previous one."""
    kept: list[Tick] = []
    for tick in ticks:
        if not kept or tick.at - kept[-1].at > _TICK_WIDTH * (len(tick.text) + len(kept[-1].text)) / 2 + 4:
            kept.append(tick)
    return kept


def _short(cost: float) -> str:
    """Format a number briefly: 1500 as `1.5k`."""
    for size, letter in ((1e6, "M"), (1e3, "k")):
        if cost >= size:
            return f"{cost / size:g}{letter}"
    return f"{cost:.3g}"


def _path(corners: Sequence[tuple[float, float]]) -> str:
    return "M" + "L".join(f"{x:.1f},{y:.1f}" for x, y in corners)
