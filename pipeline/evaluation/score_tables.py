"""The tables that `kgqa evaluate`, `sweep` and `score` print, always with the label of a simulated model."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from rich.box import SIMPLE_HEAD
from rich.console import Console, ConsoleOptions, RenderableType, RenderResult
from rich.measure import Measurement
from rich.table import Table
from rich.text import Text

from pipeline.console import UNLIMITED
from pipeline.evaluation.configuration_summary import (
    STANDARD_SCORES,
    ConfigurationSummary,
    Group,
    differing_overrides,
)
from pipeline.evaluation.paper_metrics import ROG_F1, ROG_F1_ABOVE_1, paper_metrics_of
from pipeline.evaluation.retrievers import departures_label, retriever_lines
from pipeline.evaluation.simulated import simulated_lines
from pipeline.evaluation.statistics import Estimate
from pipeline.evaluation.unreadable import much_unreadable
from pipeline.grouping import grouped
from pipeline.percentages import percentage
from pipeline.text import counted, counted_range, printable, short_keys

_GRBENCH = {"hits_at_1": ("grbench_em", "EM"), "f1": ("grbench_f1", "item F1")}
"""GRBench's variant of a standard score, printed below it."""
_EVIDENCE = {"answer_in_evidence": "gold in evidence", "answer_supported": "hits in evidence"}
SCORE_HEADINGS = STANDARD_SCORES | _EVIDENCE
"""Headings of the scores of every method, by score."""
_RELATION_RECALL = {"relation_recall": "relation recall"}
"""Only where the relations of the gold queries are known."""
_BELOW = {"answer_in_evidence": ("relation_recall", "relation recall")}
"""The score that is printed below another one, under a heading: 80 characters have no room for a column more."""
COSTS = {"llm_calls": "calls", "tokens": "tokens"}
_ABSENT = "–"
_INTERVAL_WIDTH = len("00.0–00.0")
_COST_WIDTH = len("00.0 calls")
_MOST_KEY_COLUMNS = 4
"""If more keys vary, they share one column: a sweep over several methods has too many keys for a column each."""
SHARED_COLUMN = "differs by"
_SWEEP_OPTIONAL = ("relation recall", "interval of F1", "tokens", "F1", "interval of Hits@1", "calls")
"""What a narrow terminal leaves out of the table of a sweep, the first one first."""
_MOST_KINDS = 8
"""The most values of a property whose scores are printed: MetaQA has tens of kinds of question."""
_METHOD_WIDTH = len("srp (similarity)")


class _PlainTable(Table):
    def add_row(self, *cells: RenderableType | None, **options: Any) -> None:
        """Add a row of plain texts."""
        texts = [cell.copy() if isinstance(cell, Text) else Text(str(cell)) for cell in cells]
        for text in texts:
            text.plain = printable(text.plain)
        super().add_row(*texts, **options)


def plain_table(
    title: str | None, caption: str | None = None, *, padding: int | tuple[int, int, int, int] = (0, 1, 0, 0)
) -> Table:
    """Return an empty table in the common style. Its cells are plain text: no markup, no terminal commands."""
    return _PlainTable(
        title=Text(printable(title)) if title else None,
        caption=Text(printable(caption)) if caption else None,
        title_justify="left",
        caption_justify="left",
        box=SIMPLE_HEAD,
        padding=padding,
    )


class PValue(Text):
    """A p-value as it is printed, to three decimals. Files mark it by its exact value."""

    def __init__(self, value: float) -> None:
        """Take the p-value of a test, between 0 and 1."""
        super().__init__("<0.001" if value < 0.001 else f"{value:.3f}")
        self.value = value

    def copy(self) -> PValue:
        """Return a copy that knows the value, for tables that copy their cells."""
        return PValue(self.value)


@dataclass(frozen=True)
class FittingTable:
    """A table without as many of its optional columns as it takes to print each row on one line."""

    build: Callable[[Sequence[str]], Table]
    """Build the table without these columns."""
    optional: Sequence[str]
    """The columns that may be left out, the first one first."""

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        """Yield the table for the width of the terminal."""
        tables = (self.build(self.optional[:count]) for count in range(len(self.optional) + 1))
        unlimited = options.update(max_width=UNLIMITED)
        for table in tables:
            if Measurement.get(console, unlimited, table).maximum <= options.max_width:
                break
        else:
            _fold_if_cut(table, console, options)
        yield table


def too_wide(left_out: Sequence[str]) -> list[str]:
    """Return the line below a table that quotes the columns that it leaves out; none if it leaves out nothing."""
    names = ", ".join(f'"{name}"' for name in left_out)
    return [f"too wide, see table=FILE: {names}"] if left_out else []


def _fold_if_cut(table: Table, console: Console, options: ConsoleOptions) -> None:
    """Let every column fold its cells if the fixed ones leave no room for the others.

    Rich would cut the fixed ones, or leave out the others without a word.
    """
    unlimited = options.update(max_width=UNLIMITED)
    needed = len(table.columns) + 1
    for column in table.columns:
        cells = [Measurement.get(console, unlimited, each) for each in (column.header, *column.cells)]
        fixed = column.no_wrap or column.width is not None
        needed += max(column.width or (cell.maximum if fixed else cell.minimum) for cell in cells)
    if needed > options.max_width:
        for column in table.columns:
            column.no_wrap, column.width, column.overflow = False, None, "fold"


def score_table(summaries: Sequence[ConfigurationSummary]) -> Table:
    """Build a table with one row per configuration: standard scores, paper metrics, costs."""
    differing = differing_overrides([summary.overrides for summary in summaries])
    reflections = [line for line in map(_reflection, summaries, differing) if line]
    above = [ROG_F1_ABOVE_1] if any(_is_rog_f1_above_1(summary) for summary in summaries) else []
    table = plain_table(None, "\n".join([*_caption(summaries, "below the scores"), *reflections, *above]))
    table.padding = 0  # five scores with intervals then leave room for a name in 80 columns
    table.add_column("method", overflow="fold", min_width=_METHOD_WIDTH)
    for heading in (*SCORE_HEADINGS.values(), "as its paper counts"):
        table.add_column(heading, justify="right", overflow="fold", max_width=_INTERVAL_WIDTH)
    table.add_column("per question", justify="right", overflow="fold", max_width=_COST_WIDTH)
    for summary, overrides in zip(summaries, differing, strict=True):
        table.add_row(
            _description(summary, overrides),
            *(_standard(summary, name) for name in SCORE_HEADINGS),
            _paper_metrics(summary),
            _cost(summary),
        )
    return table


def sweep_table(summaries: Sequence[ConfigurationSummary], names: Sequence[str] = ()) -> FittingTable:
    """Build a table with one line per configuration: varying keys, scores, and the costs as if it had run alone.

    `names` take the place of the numbers of the configurations, which several runs have in common.
    """
    keys = key_columns(list(map(_values_by_key, summaries)), [each.method for each in summaries])
    columns = _sweep_columns(summaries, names or [str(each.number) for each in summaries], keys)
    caption = [*_caption(summaries, "next to the scores"), *_lines_without_gold(summaries)]
    if any(_ABSENT in cells for cells in keys.values()):
        caption.append("no value in the column of a key: its method or preset decides")

    def build(left_out: Sequence[str]) -> Table:
        padding = 0 if left_out else (0, 1, 0, 0)
        table = plain_table(None, "\n".join([*caption, *too_wide(left_out)]), padding=padding)
        kept = {
            heading: [_without_interval(cell) for cell in cells] if f"interval of {heading}" in left_out else cells
            for heading, cells in columns.items()
            if heading not in left_out
        }
        for heading in kept:
            is_text = heading.startswith("method") or heading == SHARED_COLUMN
            table.add_column(heading, justify="left" if is_text else "right", overflow="fold", no_wrap=not is_text)
        for row in zip(*kept.values(), strict=True):
            table.add_row(*row)
        return table

    # a column of many keys is never one line: its rows are as short as they can be without the others
    optional = [each for each in _SWEEP_OPTIONAL if each.removeprefix("interval of ") in columns]
    return FittingTable(build, optional[:1] if SHARED_COLUMN in columns else optional)


def _sweep_columns(
    summaries: Sequence[ConfigurationSummary], numbers: Sequence[str], keys: Mapping[str, Sequence[str]]
) -> dict[str, list[Text]]:
    """Return the cells of each column of `sweep_table`; `keys` are those of the keys that vary."""
    labels = {summary.label for summary in summaries}
    of_all = labels.pop() if len(labels) == 1 else None
    counts = {summary.questions for summary in summaries}
    departures_differ = len({each.departures for each in summaries}) > 1  # otherwise the caption says it of all
    names = [
        Text(each.method, "bold")
        .append(f" ({each.label})" if each.label and not of_all else "", "not bold yellow")
        .append(departures_label(each) if departures_differ else "", "not bold yellow")
        for each in summaries
    ]
    columns = {"run:#" if any(":" in each for each in numbers) else "#": list(map(Text, numbers))}
    columns[f"method ({of_all})" if of_all else "method"] = names
    columns |= {heading: list(map(Text, cells)) for heading, cells in keys.items()}
    if len(counts) > 1:  # several datasets, or configurations stopped early
        columns["questions"] = [Text(f"{each.questions:,}") for each in summaries]
    if any(each.failed for each in summaries):
        columns["failed"] = [Text(f"{each.failed:,}") for each in summaries]
    for name, heading in STANDARD_SCORES.items():
        columns[heading] = [_score(each.scores.get(name), separator=" ") for each in summaries]
    for name, heading in _relation_recall(summaries).items():
        means = (each.scores.get(name) for each in summaries)
        columns[heading] = [Text(percent(mean.mean) if mean else _ABSENT) for mean in means]
    for name, heading in COSTS.items():
        columns[heading] = [Text(f"{each.counters[name] / each.answered:,.1f}") for each in summaries]
    return columns


def _without_interval(cell: Text) -> Text:
    """Return a score without its interval."""
    return Text(cell.plain.partition(" ")[0])


def breakdown_table(summary: ConfigurationSummary) -> Table:
    """Build a table of scores by kind of question, with one row per field of `meta` and value.

    Of a field with more than `_MOST_KINDS` values, those with the most questions are shown, and the rest is counted.
    """
    shown = {field: _largest(groups) for field, groups in summary.breakdown.items()}
    left = {field: len(groups) - len(shown[field]) for field, groups in summary.breakdown.items()}
    rest = " and ".join(f"{count:,} more of {field}" for field, count in left.items() if count)
    caption = f"the kinds with the most questions; {rest}: json=true and the report have all"
    table = plain_table(f"{summary.method} on {summary.dataset}, by kind of question", caption if rest else None)
    for heading in ("field", "value"):
        table.add_column(heading)
    for heading in ("questions", "Hits@1", "F1"):
        table.add_column(heading, justify="right")
    for field, groups in shown.items():
        for group in groups:
            table.add_row(*_group_cells(field, group))
        table.add_section()
    return table


def _largest(groups: Sequence[Group]) -> list[Group]:
    """Return the groups with the most questions, in their own order."""
    largest = sorted(groups, key=lambda group: -group.questions)[:_MOST_KINDS]
    return [group for group in groups if group in largest]


def key_columns(
    values: Sequence[Mapping[str, str]], methods: Sequence[str], *, most: int = _MOST_KEY_COLUMNS
) -> dict[str, list[str]]:
    """Return the keys that vary as headings with columns of values: one column per key, or one for more than `most`.

    `values` are the keys and values of each configuration, and `methods` are the names of their methods, which the
    table has anyway. Of paths, only the names of the files are in the table.
    """
    keys = _varying_keys(values, methods)
    shown = {key: _short_texts({each[key] for each in values if key in each}) for key in keys}
    headings = short_keys(keys)
    if len(keys) <= most:
        return {
            heading: [shown[key][each[key]] if key in each else _ABSENT for each in values]
            for key, heading in headings.items()
        }
    assignments = ([f"{headings[key]}={shown[key][each[key]]}" for key in keys if key in each] for each in values)
    return {SHARED_COLUMN: list(map(" ".join, assignments))}


def _short_texts(values: Collection[str]) -> Mapping[str, str]:
    """Return the values of a key without the folders of paths, if they still differ; a text with spaces is no path."""
    short = {value: value if set(value) & set("[{ ") else value.rpartition("/")[2] for value in values}
    return short if len(set(short.values())) == len(short) else {value: value for value in values}


def percent(share: float) -> str:
    """Format a share as a percentage."""
    text = percentage(share)
    return "100" if text == "100.0" else text


def _varying_keys(values: Sequence[Mapping[str, str]], methods: Sequence[str]) -> list[str]:
    """Return the keys with several values: the method and its preset only where methods of one name differ in them."""
    by_name = grouped(range(len(values)), lambda row: methods[row]).values()

    def varies(key: str) -> bool:
        if key == "method.name":
            return False  # the table has it
        if key == "method":  # a preset may choose it
            return any(len({values[row][key] for row in alike if key in values[row]}) > 1 for alike in by_name)
        groups = by_name if key == "experiment" else [range(len(values))]
        return any(len({values[row].get(key) for row in alike}) > 1 for alike in groups)

    return list(filter(varies, dict.fromkeys(key for each in values for key in each)))


def _relation_recall(summaries: Sequence[ConfigurationSummary]) -> Mapping[str, str]:
    """Return the score with its heading where a configuration has it."""
    return _RELATION_RECALL if any("relation_recall" in summary.scores for summary in summaries) else {}


def _values_by_key(summary: ConfigurationSummary) -> dict[str, str]:
    """Return the overrides of a configuration as keys and values."""
    return {key.lstrip("+"): value for key, _, value in (word.partition("=") for word in summary.overrides)}


def _description(summary: ConfigurationSummary, overrides: Sequence[str]) -> Text:
    """Return method, label, dataset, number of questions, counts of unusual questions, and these overrides."""
    text = Text(summary.method, style="bold")
    if summary.label:
        text.append(f" ({summary.label})", style="yellow")
    text.append(departures_label(summary), style="not bold yellow")
    text.append(f"\n{summary.dataset}, {counted(summary.questions, 'question')}", style="not bold")
    exceptions = {"failed": summary.failed, "not run": summary.not_run, "without gold": summary.empty_gold}
    for kind, count in exceptions.items():
        if count:
            text.append(f"\n{count} {kind}", style="not bold red" if kind == "failed" else "not bold dim")
    if much_unreadable([summary]):
        text.append(f"\n{percent(summary.unreadable_share or 0)} % unreadable replies", style="not bold red")
    for override in overrides:
        text.append(f"\n{override}", style="not bold dim")
    return text


def _paper_metrics(summary: ConfigurationSummary) -> Text:
    """Return the scores that the method's paper reports, each with its name below."""
    names = ("rouge_l",) if _is_grbench(summary) else paper_metrics_of(summary.method)
    cells = [_named(summary, name, name.removeprefix("compat_")) for name in names]
    return Text("\n").join(cells) if cells else Text(_ABSENT)


def _is_rog_f1_above_1(summary: ConfigurationSummary) -> bool:
    """Return whether the table shows an F1 above 100 %, or an interval that ends there."""
    score = summary.scores.get(ROG_F1) if ROG_F1 in paper_metrics_of(summary.method) else None
    return score is not None and score.high > 1


def _standard(summary: ConfigurationSummary, name: str) -> Text:
    """Return a standard score and, below it, GRBench's variant of it or the relation recall if there is one."""
    cell = _score(summary.scores.get(name))
    below = _GRBENCH.get(name) if _is_grbench(summary) else _BELOW.get(name)
    if below is None or below[0] not in summary.scores:
        return cell
    score, heading = below
    return Text("\n").join([cell, Text(heading, "dim"), _score(summary.scores[score])])


def _named(summary: ConfigurationSummary, score: str, name: str) -> Text:
    return _score(summary.scores.get(score)).append(f"\n{name}", "dim")


def _score(score: Estimate | None, *, separator: str = "\n") -> Text:
    """Return a mean in percent with its interval."""
    if score is None:
        return Text(_ABSENT)
    mean = Text(percent(score.mean))
    interval = f"{separator}{percent(score.low)}–{percent(score.high)}"
    return mean.append(interval, "dim") if score.has_interval else mean


def _cost(summary: ConfigurationSummary) -> Text:
    totals = ((summary.counters.get(name), unit) for name, unit in COSTS.items())
    costs = (f"{total / summary.answered:,.1f} {unit}" for total, unit in totals if total is not None)
    return Text("\n".join(costs) or _ABSENT)


def _group_cells(field: str, group: Group) -> tuple[Text, ...]:
    scores = (_score(group.scores.get(name)) for name in STANDARD_SCORES)
    return Text(field), Text(group.value), Text(str(group.questions)), *scores


def _caption(summaries: Sequence[ConfigurationSummary], where: str) -> list[str]:
    coverage = " / ".join(sorted({f"{100 * summary.confidence:g} %" for summary in summaries}))
    lines = [f"percent, {coverage} intervals {where}; failed questions count as wrong"]
    if sources := [summary.sources for summary in summaries if summary.sources]:
        lines.append(f"intervals are clustered: questions share a `source`, {counted_range(sources, 'cluster')}")
    return [*lines, *simulated_lines(summaries), *retriever_lines(summaries)]


def _lines_without_gold(summaries: Sequence[ConfigurationSummary]) -> list[str]:
    """Say of each dataset how many of its questions have no gold answers; `score_table` has it in each row."""
    counts = {(each.dataset, each.empty_gold, each.questions) for each in summaries if each.empty_gold}
    return [
        f"{dataset}: {empty:,} of {counted(asked, 'question')} without gold answers"
        for dataset, empty, asked in sorted(counts)
    ]


def _reflection(summary: ConfigurationSummary, overrides: Sequence[str]) -> str:
    """Return a sentence on the effect of reflection (specification §9.5), or "" for a method without reflection."""
    first_answers = {"corrected": "wrong", "damaged": "correct"}
    shares = [
        f"{percent(share.mean)} % of {share.questions} {before} ones {effect}"
        for effect, before in first_answers.items()
        if (share := summary.scores.get(effect))
    ]
    failures = {"recovered_halted": "halted", "recovered_incorrect": "incorrect"}
    shares += [
        f"{percent(share.mean)} % of {share.questions} {failure} first attempts recovered"
        for score, failure in failures.items()
        if (share := summary.scores.get(score))
    ]
    label = [f"({summary.label})"] if summary.label else []
    return f"first answers of {' '.join([summary.method, *label, *overrides])}: {', '.join(shares)}" if shares else ""


def _is_grbench(summary: ConfigurationSummary) -> bool:
    return summary.dataset.startswith("grbench")
