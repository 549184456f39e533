"""Results as terminal tables: percentages with their intervals, and never a number without its label."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from rich.box import SIMPLE_HEAD
from rich.console import RenderableType
from rich.table import Table
from rich.text import Text

from pipeline.evaluation.compat import printed_beside
from pipeline.evaluation.peers import RuleMean
from pipeline.evaluation.statistics import Estimate
from pipeline.evaluation.summary import Group, PointSummary, own_words
from pipeline.text import printable

_STANDARD = {"hits_at_1": "Hits@1", "f1": "F1"}
_GRBENCH = {"hits_at_1": ("grbench_em", "EM"), "f1": ("grbench_f1", "item F1")}
"""What GRBench counts where others count the standard score: it is printed beneath that."""
_RELIABILITY = {"answer_in_evidence": "gold in evidence", "answer_supported": "hits in evidence"}
_COSTS = {"llm_calls": "calls", "tokens": "tokens"}
_ABSENT = "–"
_INTERVAL_WIDTH = len("00.0–00.0")
_COST_WIDTH = len("00.0 calls")
_MOST_AXES = 4
"""With columns of their own. Points of different methods have keys of their own, and each would be a letter wide."""
_TOGETHER = "differs by"
"""Heads the one column of more."""
_METHOD_WIDTH = len("srp (similarity)")


class _PlainTable(Table):
    def add_row(self, *cells: RenderableType | None, **options: Any) -> None:
        """Add a row of texts."""
        texts = [cell.copy() if isinstance(cell, Text) else Text(str(cell)) for cell in cells]
        for text in texts:
            text.plain = printable(text.plain)
        super().add_row(*texts, **options)


def plain_table(
    title: str | None, caption: str | None = None, *, padding: int | tuple[int, int, int, int] = (0, 1, 0, 0)
) -> Table:
    """An empty table in the style of all of ours; what stands in it is text, never markup or a terminal's command."""
    return _PlainTable(
        title=Text(printable(title)) if title else None,
        caption=Text(printable(caption)) if caption else None,
        title_justify="left",
        caption_justify="left",
        box=SIMPLE_HEAD,
        padding=padding,
    )


def score_table(points: Sequence[PointSummary]) -> Table:
    """One row per point: the compatible score of its method's paper, then the standard ones, then what it cost."""
    scores = _STANDARD | _RELIABILITY
    own = own_words([point.overrides for point in points])
    firsts = [line for line in map(_first_answers, points, own) if line]
    table = plain_table(None, "\n".join([*_caption(points, "beneath"), *firsts]))
    table.padding = 0  # so that five figures with their intervals leave room for a name in 80 columns
    table.add_column("method", overflow="fold", min_width=_METHOD_WIDTH)
    for heading in ("as its paper counts", *scores.values()):
        table.add_column(heading, justify="right", overflow="fold", max_width=_INTERVAL_WIDTH)
    table.add_column("per question", justify="right", overflow="fold", max_width=_COST_WIDTH)
    for point, overrides in zip(points, own, strict=True):
        table.add_row(
            _description(point, overrides),
            _compatible(point),
            *(_standard(point, name) for name in scores),
            _cost(point),
        )
    return table


def sweep_table(points: Sequence[PointSummary]) -> Table:
    """One line per point: what tells it from the others, its scores, and what it would have cost alone."""
    table = plain_table(None, "\n".join(_caption(points, "beside them")))
    table.add_column("#", justify="right")
    table.add_column("method", overflow="fold")
    differences = _differences(points)
    for heading in differences:
        table.add_column(heading, justify="left" if heading == _TOGETHER else "right", overflow="fold")
    counts = {point.questions for point in points}
    if len(counts) > 1:  # another dataset, or dropped early
        table.add_column("questions", justify="right")
    for heading in ("Hits@1", "F1", "calls", "tokens"):
        table.add_column(heading, justify="right", no_wrap=True)
    for index, point in enumerate(points):
        name = Text(point.method, "bold").append(f" ({point.label})" if point.label else "", "not bold yellow")
        answered = point.questions - point.not_run
        costs = (f"{point.counters[name] / answered:,.1f}" for name in _COSTS)
        table.add_row(
            str(point.point),
            name,
            *(column[index] for column in differences.values()),
            *([f"{point.questions:,}"] if len(counts) > 1 else []),
            *(_line(point.scores.get(score)) for score in _STANDARD),
            *costs,
        )
    return table


def _differences(points: Sequence[PointSummary]) -> dict[str, list[str]]:
    """What tells the points apart, as headings and columns: one for each axis, or one for all of many."""
    axes = varying(points)
    last = [axis.rpartition(".")[2] for axis in axes]
    headings = {axis: end if last.count(end) == 1 else axis for axis, end in zip(axes, last, strict=True)}
    assigned = [_assigned(point) for point in points]
    if len(axes) <= _MOST_AXES:
        return {heading: [each.get(axis, _ABSENT) for each in assigned] for axis, heading in headings.items()}
    words = ([f"{headings[axis]}={each[axis]}" for axis in axes if axis in each] for each in assigned)
    return {_TOGETHER: list(map(" ".join, words))}


def varying(points: Sequence[PointSummary]) -> list[str]:
    """The keys whose values are not the same at all points, but for the method, whose name says more than its key."""
    assigned = [_assigned(point) for point in points]
    keys = dict.fromkeys(key for each in assigned for key in each if key not in {"method", "experiment"})
    return [key for key in keys if len({each.get(key) for each in assigned}) > 1]


def _assigned(point: PointSummary) -> dict[str, str]:
    """The overrides of a point as keys and values."""
    return {key.lstrip("+"): value for key, _, value in (word.partition("=") for word in point.overrides)}


def _line(score: Estimate | None) -> Text:
    """A mean in percent and its interval, on one line."""
    if score is None:
        return Text(_ABSENT)
    return Text(_percent(score.mean)).append(f" {_percent(score.low)}–{_percent(score.high)}", "dim")


def breakdown_table(point: PointSummary) -> Table:
    """The scores of each kind of question, one row per field and value."""
    table = plain_table(f"{point.method} on {point.dataset}, by kind of question")
    for heading in ("field", "value"):
        table.add_column(heading)
    for heading in ("questions", "Hits@1", "F1"):
        table.add_column(heading, justify="right")
    for field, groups in point.breakdown.items():
        for group in groups:
            table.add_row(*_group_cells(field, group))
        table.add_section()
    return table


def rules_table(means: Sequence[RuleMean]) -> Table:
    """What each code base would report for the same predictions, and over how many lines."""
    table = plain_table("the same predictions, as each code base counts")
    for heading in ("code base", "metric", "correct is"):
        table.add_column(heading)
    for heading in ("%", "lines counted"):
        table.add_column(heading, justify="right")
    for mean in means:
        value = _ABSENT if mean.mean is None else _percent(mean.mean)
        table.add_row(*map(Text, (mean.rule.peer, mean.rule.metric, mean.rule.counts, value, str(mean.counted))))
    return table


def _description(point: PointSummary, overrides: Sequence[str]) -> Text:
    """Method and label, dataset and size, what is not a plain answer, and the overrides that not all points share."""
    text = Text(point.method, style="bold")
    if point.label:
        text.append(f" ({point.label})", style="yellow")
    text.append(f"\n{point.dataset}, {point.questions} questions", style="not bold")
    exceptions = {"failed": point.failed, "not run": point.not_run, "without gold": point.empty_gold}
    for what, count in exceptions.items():
        if count:
            text.append(f"\n{count} {what}", style="not bold red" if what == "failed" else "not bold dim")
    for override in overrides:
        text.append(f"\n{override}", style="not bold dim")
    return text


def _compatible(point: PointSummary) -> Text:
    """The scores that the method's paper reports, each with its name beneath."""
    names = ("rouge_l",) if _is_grbench(point) else printed_beside(point.method)
    cells = [_named(point, name, name.removeprefix("compat_")) for name in names]
    return Text("\n").join(cells) if cells else Text(_ABSENT)


def _standard(point: PointSummary, name: str) -> Text:
    """A score and, where the dataset counts in a way of its own too, that one with its name beneath."""
    cell = _cell(point.scores.get(name))
    if not _is_grbench(point) or name not in _GRBENCH:
        return cell
    return Text("\n").join([cell, _named(point, *_GRBENCH[name])])


def _named(point: PointSummary, score: str, name: str) -> Text:
    return _cell(point.scores.get(score)).append(f"\n{name}", "dim")


def _cell(score: Estimate | None) -> Text:
    """A mean in percent, its interval beneath."""
    if score is None:
        return Text(_ABSENT)
    return Text(_percent(score.mean)).append(f"\n{_percent(score.low)}–{_percent(score.high)}", "dim")


def _percent(share: float) -> str:
    return "100" if share == 1 else f"{100 * share:.1f}"


def _cost(point: PointSummary) -> Text:
    answered = point.questions - point.not_run
    totals = ((point.counters.get(name), what) for name, what in _COSTS.items())
    return Text("\n".join(f"{total / answered:,.1f} {what}" for total, what in totals if total is not None) or _ABSENT)


def _group_cells(field: str, group: Group) -> tuple[Text, ...]:
    scores = (_cell(group.scores.get(name)) for name in ("hits_at_1", "f1"))
    return Text(field), Text(group.value), Text(str(group.questions)), *scores


def _caption(points: Sequence[PointSummary], where: str) -> list[str]:
    coverage = " / ".join(sorted({f"{100 * point.confidence:g} %" for point in points}))
    lines = [f"percent, {coverage} bootstrap intervals {where}; failed questions count as wrong"]
    labels = sorted({point.label for point in points if point.label})
    if labels:
        lines.append(f"not the answers of a language model: {', '.join(labels)}")
    return lines


def _first_answers(point: PointSummary, overrides: Sequence[str]) -> str:
    """What reflection made of a point's first answers (methods.md §9.5); empty for a method that does not reflect."""
    fates = {"corrected": "wrong", "damaged": "right"}
    shares = [
        f"{_percent(share.mean)} % of {share.questions} {first} ones {fate}"
        for fate, first in fates.items()
        if (share := point.scores.get(fate))
    ]
    label = [f"({point.label})"] if point.label else []
    return f"first answers of {' '.join([point.method, *label, *overrides])}: {', '.join(shares)}" if shares else ""


def _is_grbench(point: PointSummary) -> bool:
    return point.dataset.startswith("grbench")
