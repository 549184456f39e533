"""Builds the response curves: how a score depends on each numeric parameter."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial

import numpy as np

from pipeline.evaluation.statistics import Estimate
from pipeline.report.charts import Series, line_chart, score_range
from pipeline.report.curves import BEAM_WIDTH, Curve
from pipeline.report.data import Block, ScoreMatrix
from pipeline.report.labels import BlockLabels, percent, score_text, value_text
from pipeline.report.page_content import AxisView, CurveView, Panel
from pipeline.text import counted, short_keys

_SIZE = (440, 290)
_SMALL = (220, 130)


@dataclass(frozen=True, slots=True)
class _Line:
    """A drawn line: the best or the marginal curve."""

    curve: Curve
    group: int
    dash: int
    """The number of its curve among those of one colour."""
    name: str
    kind: str
    is_mean: bool
    members: Mapping[float, Sequence[Sequence[int]]]
    """Indices of the configurations at each value of the axis, one sequence for each combination of the other
    parameters. It has several if runs repeat a configuration, which then count as one."""


def responses(block: Block, labels: BlockLabels, score: str, axes: Mapping[str, Sequence[Curve]]) -> list[AxisView]:
    """Build the curves of a score along each axis."""
    scores = block.scores(score)
    lines = {key: list(_lines(curves, labels, scores)) for key, curves in axes.items()}
    members = [each.members[value] for of_axis in lines.values() for each in of_axis for value in each.members]
    estimates = iter(_estimates(block, score, scores, members))
    return [
        _axis_view(
            block, labels, score, key, [(line, {value: next(estimates) for value in line.members}) for line in of_axis]
        )
        for key, of_axis in lines.items()
    ]


def _estimates(
    block: Block, score: str, scores: ScoreMatrix, members: Sequence[Sequence[Sequence[int]]]
) -> list[Estimate]:
    """Return the mean over each sequence of combinations, with an interval over the questions.

    A single configuration keeps the interval of its summary, so that chart and table agree.
    """
    singles = [_single(combinations) for combinations in members]
    columns = [
        np.mean([scores.values[:, repeats].mean(axis=1) for repeats in combinations], axis=0)
        for single, combinations in zip(singles, members, strict=True)
        if single is None
    ]
    means = iter(scores.means(np.column_stack(columns)) if columns else [])
    return [next(means) if each is None else block.configurations[each].summary.scores[score] for each in singles]


def _single(combinations: Sequence[Sequence[int]]) -> int | None:
    """Return the index of the only configuration; None if there are several."""
    indices = [index for repeats in combinations for index in repeats]
    return indices[0] if len(indices) == 1 else None


def _lines(curves: Sequence[Curve], labels: BlockLabels, scores: ScoreMatrix) -> Iterator[_Line]:
    """Yield the best and the marginal curve; one line if each value has one combination of the other parameters."""
    means = scores.values.mean(axis=0)
    for curve in curves:
        same_group = [other for other in curves if other.group == curve.group]
        differing = [
            f"{key.rpartition('.')[2]} {value_text(value)}"
            for key, value in curve.categories.items()
            if any(other.categories.get(key) != value for other in same_group)
        ]
        group = labels.group_number(curve.group)
        drawn = partial(
            _Line, curve, group, same_group.index(curve), " · ".join([str(labels.legend[group]), *differing])
        )
        best = {value: max(found, key=lambda each: means[each].mean()) for value, found in curve.candidates.items()}
        if all(len(found) == 1 for found in curve.candidates.values()):
            yield drawn("", False, {value: [repeats] for value, repeats in best.items()})
        else:
            yield drawn("best configuration", False, {value: [repeats] for value, repeats in best.items()})
            kind = f"marginal: mean over {counted(len(curve.slices), 'combination')}"
            yield drawn(kind, True, {value: curve.configurations(value) for value in curve.values})


def _axis_view(
    block: Block, labels: BlockLabels, score: str, key: str, lines: Sequence[tuple[_Line, Mapping[float, Estimate]]]
) -> AxisView:
    unlimited_value = 0.0 if key == BEAM_WIDTH else None
    values = sorted(
        {value for _, scores in lines for value in scores}, key=lambda value: (value == unlimited_value, value)
    )
    series = [
        Series(
            line.group,
            line.dash,
            scores,
            {value: score_text(_mark_name(line, labels, key, value), estimate) for value, estimate in scores.items()},
            line.is_mean,
        )
        for line, scores in lines
    ]
    return AxisView(
        key=key,
        values=["0 (all)" if value == unlimited_value else f"{value:g}" for value in values],
        curves=[
            CurveView(
                group=line.group,
                dash=line.dash,
                is_mean=line.is_mean,
                name=line.name,
                kind=line.kind,
                followers=[*short_keys(line.curve.followers).values()],
                figures=[percent(scores[value]) if value in scores else None for value in values],
            )
            for line, scores in lines
        ],
        chart=line_chart(
            series,
            *_SIZE,
            unlimited_value=unlimited_value,
            within=score_range([estimate for _, scores in lines for estimate in scores.values()]),
        ),
        panels=_panels(block, labels, score, unlimited_value, [line for line, _ in lines if not line.is_mean]),
    )


def _mark_name(line: _Line, labels: BlockLabels, key: str, value: float) -> str:
    """Name a mark: on a best curve, by its configuration."""
    if line.kind and not line.is_mean:
        return str(labels.names[line.members[value][0][0]])
    return " · ".join(filter(None, [line.name, line.kind, labels.parameter(key, value)]))


def _panels(
    block: Block, labels: BlockLabels, score: str, unlimited_value: float | None, lines: Sequence[_Line]
) -> list[Panel]:
    """Build a small chart for each combination of values that is averaged over, all with the same scale.

    Return none if no curve is an average.
    """
    if all(len(each.curve.slices) == 1 for each in lines):
        return []
    panels: dict[str, list[Series]] = {}
    for each in lines:
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
