"""Response curves in words and charts: how scores follow each axis."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from pipeline.analysis.report.charts import Series, line_chart, score_range
from pipeline.analysis.report.curves import BEAM_WIDTH, Curve
from pipeline.analysis.report.measured import Block
from pipeline.analysis.report.view import Axis, CurveView, Panel
from pipeline.analysis.report.words import Words, percent, said, setting_text
from pipeline.evaluation.statistics import Estimate

_SIZE = (440, 290)
_SMALL = (220, 130)


@dataclass(frozen=True, slots=True)
class _Drawn:
    """A curve with its line in the chart."""

    curve: Curve
    group: int
    dash: int
    """Its number among the curves of one colour."""
    name: str
    scores: Mapping[float, Estimate]


def responses(block: Block, words: Words, score: str, axes: Mapping[str, Sequence[Curve]]) -> list[Axis]:
    """Each axis by a score of the block."""
    estimates = _estimates(block, score, [curve for curves in axes.values() for curve in curves])
    return [_axis(block, words, score, key, list(_drawn(curves, words, estimates))) for key, curves in axes.items()]


def _estimates(block: Block, score: str, curves: Sequence[Curve]) -> Iterator[Estimate]:
    """Of each value of each curve, the mean over its points, with an interval over the questions that they share.

    A single point has the interval that its table has.
    """
    members = [curve.points(value) for curve in curves for value in curve.values]
    if not members:
        return
    answers = block.answers(score)
    means = answers.means(np.column_stack([answers.values[:, indices].mean(axis=1) for indices in members]))
    for indices, mean in zip(members, means, strict=True):
        yield block.points[indices[0]].summary.scores[score] if len(indices) == 1 else mean


def _drawn(curves: Sequence[Curve], words: Words, estimates: Iterator[Estimate]) -> Iterator[_Drawn]:
    for curve in curves:
        alike = [other for other in curves if other.group == curve.group]
        kinds = [
            f"{key.rpartition('.')[2]} {setting_text(value)}"
            for key, value in curve.kinds.items()
            if any(other.kinds.get(key) != value for other in alike)
        ]
        group = words.place(curve.group)
        scores = {value: next(estimates) for value in curve.values}
        yield _Drawn(curve, group, alike.index(curve), " · ".join([str(words.legend[group]), *kinds]), scores)


def _axis(block: Block, words: Words, score: str, key: str, drawn: Sequence[_Drawn]) -> Axis:
    last = 0.0 if key == BEAM_WIDTH else None
    values = sorted({value for each in drawn for value in each.scores}, key=lambda value: (value == last, value))
    series = [
        Series(
            each.group,
            each.dash,
            each.scores,
            {value: said(f"{each.name} · {words.setting(key, value)}", at) for value, at in each.scores.items()},
        )
        for each in drawn
    ]
    within = score_range([estimate for each in drawn for estimate in each.scores.values()])
    return Axis(
        key=key,
        values=["0 (all)" if value == last else f"{value:g}" for value in values],
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
        chart=line_chart(series, *_SIZE, last=last, within=within),
        panels=_panels(block, words, score, last, drawn),
    )


def _panels(block: Block, words: Words, score: str, last: float | None, drawn: Sequence[_Drawn]) -> list[Panel]:
    """A small chart for each setting that is averaged over, all to one scale; none if no curve averages."""
    if all(len(each.curve.slices) == 1 for each in drawn):
        return []
    panels: dict[str, list[Series]] = {}
    for each in drawn:
        for part in each.curve.slices:
            title = " · ".join(words.setting(key, value) for key, value in part.settings.items())
            scores = {value: block.points[indices[0]].summary.scores[score] for value, indices in part.points.items()}
            panels.setdefault(title, []).append(Series(each.group, each.dash, scores, texts={}))
    within = score_range([at for panel in panels.values() for series in panel for at in series.scores.values()])
    return [
        Panel(title, line_chart(panel, *_SMALL, last=last, within=within, titled=False))
        for title, panel in panels.items()
    ]
