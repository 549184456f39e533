"""`kgqa losses`: show at which stage wrong questions lost their answers, and why."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import polars as pl
from pydantic import PositiveInt
from pydantic.dataclasses import dataclass
from rich.table import Table
from rich.text import Text

from pipeline import config
from pipeline.analysis.losses import (
    REASON_MEANINGS,
    REASON_TEXTS,
    REASONS,
    STAGE_TEXTS,
    STAGES,
    add_groups,
    clusters,
    loss_shares,
    selecting_configurations,
)
from pipeline.analysis.runs import Run, open_run
from pipeline.analysis.score_notes import single_run_notes
from pipeline.cli.arguments import Arguments
from pipeline.cli.output import Output
from pipeline.errors import UserError
from pipeline.evaluation.score_tables import FittingTable, plain_table, too_wide
from pipeline.imports import is_own
from pipeline.percentages import percentage
from pipeline.text import counted, show_command
from pipeline.traces.reader import read_shards


@dataclass(frozen=True, kw_only=True)
class Plan:
    """The keys of `conf/losses.yaml`."""

    configuration: int | str | tuple[int | str, ...] | None
    by: str | tuple[str, ...] | None
    groups: PositiveInt


def run(arguments: Arguments) -> Output:
    """Print the share of questions lost at each stage, and the largest groups of questions lost in the same way."""
    if len(arguments.words) != 1:
        raise UserError("name one run folder: kgqa losses RUN")
    plan = config.build_own(Plan, arguments.compose())
    opened = open_run(arguments.words[0])
    chosen = _chosen(opened, plan.configuration).collect()
    columns = list(dict.fromkeys(["configuration", *([plan.by] if isinstance(plan.by, str) else plan.by or ())]))
    losses = add_groups(chosen.lazy(), opened.folder, columns)
    shares = loss_shares(losses, columns).collect()
    totals = losses.group_by(columns).agg(pl.len().alias("questions"), (~pl.col("right")).sum().alias("wrong"))
    groups = totals.sort(columns, nulls_last=True).collect()
    alike = clusters(losses, across=chosen["configuration"].n_unique() > 1).collect()
    largest = alike.head(plan.groups)
    rest = alike.height - largest.height
    figures = {"run": str(opened.folder.path), "shares": shares.to_dicts(), "groups": largest.to_dicts()}
    table = _share_table(groups, shares, columns)
    return Output(
        figures,
        [table, *([_group_table(largest)] if len(largest) else [])],
        [
            *single_run_notes(opened.folder),
            *([f"and {counted(rest, 'more group')}: groups={alike.height} lists all"] if rest else []),
            *_notes(opened, largest),
            *_selection_notes(opened, chosen),
        ],
        full_tables=[table, *([_group_table(alike)] if len(alike) else [])],
    )


def _chosen(opened: Run, wanted: Any) -> pl.LazyFrame:
    """Return the losses of some configurations, or of all. Raises UserError."""
    if wanted is None:
        return opened.losses()
    numbers: Sequence[Any] = [wanted] if isinstance(wanted, int | str) else wanted
    if not numbers:
        raise UserError("configuration=[] names no configuration")
    for number in numbers:
        opened.require(number)
    return opened.losses().filter(pl.col("configuration").is_in(numbers))


def _share_table(groups: pl.DataFrame, shares: pl.DataFrame, columns: Sequence[str]) -> FittingTable:
    """Return one row per group: the share of its questions that was lost at each stage.

    A narrow terminal leaves out the stages at which the fewest questions were lost.
    """
    lost = {(*row[: len(columns)], row[len(columns)]): row[-1] for row in shares.iter_rows()}
    totals = dict(shares.group_by("stage").agg(pl.sum("lost")).iter_rows())
    stages = {STAGE_TEXTS[stage].heading: stage for stage in STAGES if stage in totals}
    first = 1 if groups["configuration"].n_unique() == 1 else 0

    def build(left_out: Sequence[str]) -> Table:
        padding = 0 if left_out else (0, 1, 0, 0)
        title = "questions by what became of their answers, in percent"
        table = plain_table(title, "\n".join(too_wide(left_out)), padding=padding)
        for heading in columns[first:]:
            table.add_column("#" if heading == "configuration" else heading, overflow="fold")
        kept = {heading: stage for heading, stage in stages.items() if heading not in left_out}
        for heading in ("questions", "right", *kept):
            width = max(len("100.0"), *map(len, heading.split()))  # a heading takes a line for each of its words
            table.add_column(heading, justify="right", width=width)
        for *group, questions, wrong in groups.iter_rows():
            names = ("–" if value is None else str(value) for value in group[first:])
            counts = (f"{questions:,}", _percent(1 - wrong / questions))
            table.add_row(*names, *counts, *(_percent(lost.get((*group, stage))) for stage in kept.values()))
        return table

    return FittingTable(build, sorted(stages, key=lambda heading: totals[stages[heading]]))


def _percent(share: float | None) -> str:
    """Return a share in percent; empty if no question was lost."""
    return "" if share is None else percentage(share)


def _group_table(largest: pl.DataFrame) -> Table:
    several = "configurations" in largest.columns
    table = plain_table(f"wrong questions lost in the same way{', in any configuration' if several else ''}")
    table.add_column("questions", justify="right")
    if several:
        table.add_column("in configurations", justify="right")
    table.add_column("how", overflow="fold")
    table.add_column("example", overflow="fold")
    for row in largest.iter_rows(named=True):
        call = f" ({row['role']})" if row["role"] else ""
        path = f"\n{row['departure']}" if row["departure"] else ""
        stage, reason = STAGE_TEXTS[row["stage"]].heading, REASON_TEXTS[row["reason"]]
        counts = [f"{row['questions']:,}", *([f"{row['configurations']:,}"] if several else [])]
        table.add_row(*counts, Text(f"{stage}, because of: {reason}{call}{path}"), Text(row["example"]))
    return table


def _selection_notes(opened: Run, chosen: pl.DataFrame) -> list[str]:
    """Name the user's own methods that record no selections, where a loss is blamed on the model."""
    methods = [str(point["config"]["method"]["_target_"]) for point in opened.metadata["points"]]
    by_model = set(chosen.filter(pl.col("reason") == "model")["configuration"])
    own = {number for number in by_model if not is_own(methods[number])}
    silent = own - selecting_configurations(opened.folder, sorted(opened.folder.finished())) if own else set()
    return [
        f"{method} records no selections, so what its code drops counts as lost by the model: record them by "
        'tools.record("kept", nodes=…) and tools.record("cut", by="beam", nodes=…) (docs/how-to/find-out-why.md)'
        for method in dict.fromkeys(methods[number] for number in sorted(silent))
    ]


def _notes(opened: Run, largest: pl.DataFrame) -> list[str]:
    if largest.is_empty():
        scored = sum(shard["hits_at_1"].count() for shard in read_shards(opened.folder, ["hits_at_1"]))
        return ["every question that has gold answers is answered right" if scored else "no question has gold answers"]
    first: dict[str, Any] = largest.row(0, named=True)
    configurations = len(opened.metadata["points"])
    command = show_command(opened.folder.path, first["example"], first["configuration"], configurations)
    again = f"the same run with another run.dir and {config.shell_override('run.reuse', [str(opened.folder.path)])}"
    is_old = "old trace" in set(largest["reason"])
    renewed = [f"{again} takes over the calls of these traces, and can tell."] if is_old else []
    return [*_meanings(largest), *renewed, f"{command} shows a question of the largest group."]


def _meanings(largest: pl.DataFrame) -> list[str]:
    """Say what the reasons of these groups mean, and what stands in brackets after them."""
    reasons = [reason for reason in REASONS if reason in set(largest["reason"])]
    explained = [f"{reason}: {REASON_MEANINGS[reason]}" for reason in reasons if REASON_TEXTS[reason] == reason]
    place = (
        "in brackets: the role of the model call at which the answer was lost, or the kind of the step if code lost it"
    )
    return [*explained, *([place] if largest["role"].drop_nulls().len() else [])]
