"""Builds the columns and rows of the table on the page of `kgqa report`: parameters, scores with intervals, costs.

Its headings are in `labels.py`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial

from pipeline.evaluation.paper_metrics import paper_metrics_of
from pipeline.evaluation.statistics import Estimate
from pipeline.evaluation.unreadable import much_unreadable, share_text
from pipeline.grouping import grouped
from pipeline.report.charts import score_range
from pipeline.report.curves import is_number
from pipeline.report.data import CHARTED, Block, Configuration
from pipeline.report.labels import ABSENT, COSTS, SCORES, BlockLabels, Figure, Name, inline, percent, value_text
from pipeline.text import counted

_LENIENT_PREFIX = "compat_"
_BAR_SCORE = "hits_at_1"


@dataclass(frozen=True, slots=True)
class Column:
    """A column of the table."""

    heading: str
    explanation: str
    numeric: bool = True
    rising: bool = False
    """Whether the first click on the heading sorts in ascending order."""
    shown: bool = True
    """Whether it is shown before the reader chooses columns."""


@dataclass(frozen=True, slots=True)
class Cell:
    """The content of a table cell."""

    figures: Sequence[Figure]
    order: float | str | None
    """The sort key; None comes last."""


_EMPTY = Cell([Figure(ABSENT)], None)


@dataclass(frozen=True, slots=True)
class Row:
    """The table row of a configuration."""

    group: int
    """The number of its group in the legend."""
    name: Name
    remarks: Sequence[str]
    """Numbers of failed, unanswered and unscored questions."""
    bar: tuple[float, float, float] | None
    """Hits@1 as a bar: low, mean and high, in percent of the table's range."""
    cells: Sequence[Cell]
    tags: Mapping[str, str]
    """By charted score: `best`, `recommended` or both."""
    values: str
    """The numbers of its values in the filters."""


@dataclass(frozen=True, slots=True)
class ConfigurationTable:
    """Columns, and rows with one cell per column."""

    columns: Sequence[Column]
    groups: Sequence[Sequence[Row]]
    """The rows, best score first. Configurations of one method with equal scores on every question are one group, with
    the cheapest one first."""
    range: tuple[str, str] | None
    """The ends of the bars' scale, in percent; None without bars."""


def configuration_table(block: Block, labels: BlockLabels, tags: Sequence[Mapping[str, str]]) -> ConfigurationTable:
    """Build the table: score, calls and tokens first, then parameters and all other scores and costs."""
    configurations = block.configurations
    columns = list(_columns(configurations, labels))
    drawn = [each.summary.scores[_BAR_SCORE] for each in configurations if _BAR_SCORE in each.summary.scores]
    ends = score_range(drawn) if drawn else None
    rows = [
        Row(
            group=labels.group_number(configuration.group),
            name=name,
            remarks=_remarks(configuration, block.most_complete),
            bar=_bar(configuration.summary.scores.get(_BAR_SCORE), ends),
            cells=[cell(configuration) for _, cell in columns],
            tags=own_tags,
            values=labels.filter_values(index),
        )
        for index, (configuration, name, own_tags) in enumerate(zip(configurations, labels.names, tags, strict=True))
    ]
    return ConfigurationTable(
        [column for column, _ in columns],
        [[rows[index] for index in group] for group in _equal(configurations)],
        (f"{100 * ends[0]:g}", f"{100 * ends[1]:g}") if ends else None,
    )


def _columns(
    configurations: Sequence[Configuration], labels: BlockLabels
) -> Iterator[tuple[Column, Callable[[Configuration], Cell]]]:
    """Yield each column with the function that fills its cells. The first one is the score that orders the rows."""
    scores = [
        (Column(heading, definition, shown=name in CHARTED), partial(_score, name))
        for name, (heading, definition) in SCORES.items()
        if not name.startswith(_LENIENT_PREFIX) and any(name in each.summary.scores for each in configurations)
    ]
    cost = "per question, as if the configuration had run alone"
    costs = [(Column(COSTS[each], cost, rising=True), partial(_cost, labels, each)) for each in labels.costs]
    yield from (*scores[:1], *costs[:2])
    if len({id(configuration.run) for configuration in configurations}) > 1:
        yield Column("run", "the run folder", numeric=False, rising=True), _run
    if len({configuration.summary.number for configuration in configurations}) > 1:
        yield (
            Column("#", "the number of the configuration in its run, as other commands print it", rising=True),
            _number,
        )
    for key in labels.keys:
        numeric = all(is_number(configuration.parameters.get(key, 0)) for configuration in configurations)
        yield Column(labels.short_key(key), key, numeric, rising=True), partial(_parameter, key)
    yield from (*costs[2:], *scores[1:])
    if any(map(_paper_scores, configurations)):
        yield Column("paper's metric", "the metric of the method's paper, which is more lenient"), _paper_metrics


def _equal(configurations: Sequence[Configuration]) -> list[list[int]]:
    """Return groups of configurations of one method with equal scores on every question, the best group first."""
    cheapest_first = sorted(range(len(configurations)), key=lambda index: configurations[index].cost_key)
    equal = grouped(cheapest_first, lambda index: (configurations[index].group, configurations[index].scores_digest))
    return sorted(equal.values(), key=lambda group: -configurations[group[0]].hits_at_1)


def _run(configuration: Configuration) -> Cell:
    return Cell([Figure(inline(configuration.run.name))], configuration.run.name)


def _number(configuration: Configuration) -> Cell:
    number = configuration.summary.number
    return Cell([Figure(str(number))], number)


def _parameter(key: str, configuration: Configuration) -> Cell:
    value = configuration.parameters.get(key)
    text = value_text(value)
    return Cell([Figure(text)], value if is_number(value) else text)


def _score(name: str, configuration: Configuration) -> Cell:
    score = configuration.summary.scores.get(name)
    return Cell([percent(score)], score.mean) if score else _EMPTY


def _paper_metrics(configuration: Configuration) -> Cell:
    scores = _paper_scores(configuration)
    figures = [percent(score, SCORES[name][0]) for name, score in scores.items()]
    return Cell(figures, next(iter(scores.values())).mean) if scores else _EMPTY


def _cost(labels: BlockLabels, counter: str, configuration: Configuration) -> Cell:
    return Cell([Figure(labels.cost(configuration, counter))], configuration.cost(counter))


def _paper_scores(configuration: Configuration) -> dict[str, Estimate]:
    """Return the scores by the metrics of the method's paper."""
    names = paper_metrics_of(configuration.summary.method)
    return {name: configuration.summary.scores[name] for name in names if name in configuration.summary.scores}


def _bar(score: Estimate | None, ends: tuple[float, float] | None) -> tuple[float, float, float] | None:
    if score is None or ends is None:
        return None
    start, span = ends[0], ends[1] - ends[0]
    low, mean, high = (round(100 * (value - start) / span, 1) for value in (score.low, score.mean, score.high))
    return low, mean, high


def _remarks(configuration: Configuration, most_complete: Configuration) -> list[str]:
    summary = configuration.summary
    counts = {"failed": summary.failed, "not run": summary.not_run, "without gold": summary.empty_gold}
    complete = configuration.questions_digest == most_complete.questions_digest
    answered = [] if complete else [counted(configuration.rows.height, "question")]
    unreadable = [f"{share_text(summary.unreadable_share or 0)} unreadable"] if much_unreadable([summary]) else []
    return [*answered, *(f"{count:,} {kind}" for kind, count in counts.items() if count), *unreadable]
