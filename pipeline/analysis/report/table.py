"""The table of points: settings, scores with intervals, costs, and what is not a plain answer."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial

from pipeline.analysis.report.charts import score_range
from pipeline.analysis.report.curves import is_number
from pipeline.analysis.report.measured import Block, Measured
from pipeline.analysis.report.words import ABSENT, COSTS, SCORES, Figure, Name, Words, inserted, percent, setting_text
from pipeline.evaluation.compat import printed_beside
from pipeline.evaluation.statistics import Estimate

_LAXER = "compat_"
_DRAWN = "hits_at_1"


@dataclass(frozen=True, slots=True)
class Column:
    """A column, and what a click on its heading does."""

    heading: str
    explanation: str
    numeric: bool = True
    rising: bool = False
    """Whether the first click puts the smallest on top."""


@dataclass(frozen=True, slots=True)
class Cell:
    """What a point has in a column."""

    figures: Sequence[Figure]
    order: float | str | None
    """What the column is sorted by; None comes last."""


_NOTHING = Cell([Figure(ABSENT)], None)


@dataclass(frozen=True, slots=True)
class Row:
    """A point."""

    group: int
    """Its number in the legend."""
    name: Name
    remarks: Sequence[str]
    """What is not a plain answer."""
    bar: tuple[float, float, float] | None
    """Hits@1 drawn beside the name: low, mean and high, in percent of the table's range."""
    cells: Sequence[Cell]
    tags: Mapping[str, str]
    """By charted score whether it is the best or the recommended point."""


@dataclass(frozen=True, slots=True)
class PointTable:
    """Columns, and rows with as many cells."""

    columns: Sequence[Column]
    rows: Sequence[Row]
    range: tuple[str, str] | None
    """The ends of what the bars are drawn on, in percent; None without bars."""


def point_table(block: Block, words: Words, tags: Sequence[Mapping[str, str]]) -> PointTable:
    """Every point with its settings, every score that one of them has, and its costs per question."""
    points = block.points
    columns = list(_columns(points, words))
    drawn = [point.summary.scores[_DRAWN] for point in points if _DRAWN in point.summary.scores]
    ends = score_range(drawn) if drawn else None
    rows = [
        Row(
            group=words.place(point.group),
            name=name,
            remarks=_remarks(point, block.fullest),
            bar=_bar(point.summary.scores.get(_DRAWN), ends),
            cells=[cell(point) for _, cell in columns],
            tags=of_point,
        )
        for point, name, of_point in zip(points, words.names, tags, strict=True)
    ]
    return PointTable(
        [column for column, _ in columns], rows, (f"{100 * ends[0]:g}", f"{100 * ends[1]:g}") if ends else None
    )


def _columns(points: Sequence[Measured], words: Words) -> Iterator[tuple[Column, Callable[[Measured], Cell]]]:
    """Each column with what fills it."""
    if len({id(point.run) for point in points}) > 1:
        yield Column("run", "the folder", numeric=False, rising=True), _run
    for key in words.keys:
        numeric = all(is_number(point.settings.get(key, 0)) for point in points)
        yield Column(words.short(key), key, numeric, rising=True), partial(_setting, key)
    if any(map(_own_scores, points)):
        yield Column("as its paper counts", "what the method's paper prints, by its own laxer rule"), _papers_own
    for name, (heading, meaning) in SCORES.items():
        if not name.startswith(_LAXER) and any(name in point.summary.scores for point in points):
            yield Column(heading, meaning), partial(_score, name)
    for counter in words.costs:
        per_question = Column(COSTS[counter], "per question, as if the point had run alone", rising=True)
        yield per_question, partial(_cost, words, counter)


def _run(point: Measured) -> Cell:
    return Cell([Figure(inserted(point.run.name))], point.run.name)


def _setting(key: str, point: Measured) -> Cell:
    value = point.settings.get(key)
    text = setting_text(value)
    return Cell([Figure(text)], value if is_number(value) else text)


def _score(name: str, point: Measured) -> Cell:
    score = point.summary.scores.get(name)
    return Cell([percent(score)], score.mean) if score else _NOTHING


def _papers_own(point: Measured) -> Cell:
    own = _own_scores(point)
    figures = [percent(score, SCORES[name][0]) for name, score in own.items()]
    return Cell(figures, next(iter(own.values())).mean) if own else _NOTHING


def _cost(words: Words, counter: str, point: Measured) -> Cell:
    return Cell([Figure(words.cost(point, counter))], point.cost(counter))


def _own_scores(point: Measured) -> dict[str, Estimate]:
    """The scores that its method's paper prints."""
    names = printed_beside(point.summary.method)
    return {name: point.summary.scores[name] for name in names if name in point.summary.scores}


def _bar(score: Estimate | None, ends: tuple[float, float] | None) -> tuple[float, float, float] | None:
    if score is None or ends is None:
        return None
    start, span = ends[0], ends[1] - ends[0]
    low, mean, high = (round(100 * (at - start) / span, 1) for at in (score.low, score.mean, score.high))
    return low, mean, high


def _remarks(point: Measured, fullest: Measured) -> list[str]:
    summary = point.summary
    counts = {"failed": summary.failed, "not run": summary.not_run, "without gold": summary.empty_gold}
    fewer = [] if point.asked == fullest.asked else [f"{point.rows.height:,} questions"]
    return [*fewer, *(f"{count:,} {what}" for what, count in counts.items() if count)]
