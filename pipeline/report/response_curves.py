"""Builds the response curves: how a score depends on each numeric parameter."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from pipeline.evaluation.statistics import Estimate
from pipeline.report.charts import Series, line_chart, score_range
from pipeline.report.curves import BEAM_WIDTH, Curve
from pipeline.report.data import Block
from pipeline.report.labels import BlockLabels, percent, score_text, value_text
from pipeline.report.view import AxisView, CurveView, Panel

_SIZE = (440, 290)
_SMALL = (220, 130)


@dataclass(frozen=True, slots=True)
class _DrawnCurve:
    """A curve with its style, name and scores by value of the axis."""

    curve: Curve
    group: int
    dash: int
    """Its number among the curves of one colour."""
    name: str
    scores: Mapping[float, Estimate]


def responses(block: Block, labels: BlockLabels, score: str, axes: Mapping[str, Sequence[Curve]]) -> list[AxisView]:
    """Build the curves of a score along each axis."""
    estimates = _estimates(block, score, [curve for curves in axes.values() for curve in curves])
    return [
        _axis_view(block, labels, score, key, list(_drawn(curves, labels, estimates))) for key, curves in axes.items()
    ]


def _estimates(block: Block, score: str, curves: Sequence[Curve]) -> Iterator[Estimate]:
    """Yield, for each value of each curve, the mean over its configurations, with an interval over the questions.

    A single configuration keeps the interval of its summary, so that chart and table agree.
    """
    members = [curve.configurations(value) for curve in curves for value in curve.values]
    if not members:
        return
    scores = block.scores(score)
    means = scores.means(np.column_stack([scores.values[:, indices].mean(axis=1) for indices in members]))
    for indices, mean in zip(members, means, strict=True):
        yield block.configurations[indices[0]].summary.scores[score] if len(indices) == 1 else mean


def _drawn(curves: Sequence[Curve], labels: BlockLabels, estimates: Iterator[Estimate]) -> Iterator[_DrawnCurve]:
    for curve in curves:
        same_group = [other for other in curves if other.group == curve.group]
        differing = [
            f"{key.rpartition('.')[2]} {value_text(value)}"
            for key, value in curve.categories.items()
            if any(other.categories.get(key) != value for other in same_group)
        ]
        group = labels.group_number(curve.group)
        name = " · ".join([str(labels.legend[group]), *differing])
        yield _DrawnCurve(
            curve, group, same_group.index(curve), name, {value: next(estimates) for value in curve.values}
        )


def _axis_view(block: Block, labels: BlockLabels, score: str, key: str, drawn: Sequence[_DrawnCurve]) -> AxisView:
    unlimited_value = 0.0 if key == BEAM_WIDTH else None
    values = sorted(
        {value for each in drawn for value in each.scores}, key=lambda value: (value == unlimited_value, value)
    )
    series = [
        Series(
            each.group,
            each.dash,
            each.scores,
            {
                value: score_text(f"{each.name} · {labels.parameter(key, value)}", estimate)
                for value, estimate in each.scores.items()
            },
        )
        for each in drawn
    ]
    within = score_range([estimate for each in drawn for estimate in each.scores.values()])
    return AxisView(
        key=key,
        values=["0 (all)" if value == unlimited_value else f"{value:g}" for value in values],
        curves=[
            CurveView(
                group=each.group,
                dash=each.dash,
                name=each.name,
                followers=[follower.rpartition(".")[2] for follower in each.curve.followers],
                averaged=len(each.curve.slices),
                figures=[percent(each.scores[value]) if value in each.scores else None for value in values],
            )
            for each in drawn
        ],
        chart=line_chart(series, *_SIZE, unlimited_value=unlimited_value, within=within),
        panels=_panels(block, labels, score, unlimited_value, drawn),
    )


def _panels(
    block: Block, labels: BlockLabels, score: str, unlimited_value: float | None, drawn: Sequence[_DrawnCurve]
) -> list[Panel]:
    """Build a small chart for each combination of values that is averaged over, all with the same scale.

    Return none if no curve is an average.
    """
    if all(len(each.curve.slices) == 1 for each in drawn):
        return []
    panels: dict[str, list[Series]] = {}
    for each in drawn:
        for part in each.curve.slices:
            title = " · ".join(labels.parameter(key, value) for key, value in part.parameters.items())
            scores = {
                value: block.configurations[indices[0]].summary.scores[score] for value, indices in part.indices.items()
            }
            panels.setdefault(title, []).append(Series(each.group, each.dash, scores, texts={}))
    within = score_range([score for panel in panels.values() for series in panel for score in series.scores.values()])
    return [
        Panel(title, line_chart(panel, *_SMALL, unlimited_value=unlimited_value, within=within, titled=False))
        for title, panel in panels.items()
    ]
