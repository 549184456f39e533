"""Plans the rows of the papers' tables as configurations, and compares their scores with the published ones."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import groupby
from typing import Any

import polars as pl
from rich.table import Table
from rich.text import Text

from pipeline.evaluation.config import ScoringConfig
from pipeline.evaluation.statistics import Estimate, estimate_mean, mean_over_seeds
from pipeline.evaluation.summary import ConfigurationSummary
from pipeline.evaluation.table import plain_table
from pipeline.papers.published import Figure, published_figures
from pipeline.traces.folder import RunFolder
from pipeline.traces.reader import read_shards

STRICT = "hits_at_1"
"""The score that is printed next to the paper's own."""
HEADINGS = ("row", "dataset", "metric", "paper", "ours", "strict Hits@1", "gap")
_ABSENT = "–"


@dataclass(frozen=True, slots=True)
class PlannedFigure:
    """A published figure, and the configurations that reproduce it, one per seed; none if it cannot be run."""

    figure: Figure
    configurations: tuple[tuple[str, ...], ...]
    """The overrides of each configuration."""
    reason: str
    """Why there is no configuration; empty if there is one."""
    substituted: bool = False
    """Whether another dataset takes the place of the paper's."""


@dataclass(frozen=True, slots=True)
class ReproducedFigure:
    """A published figure and our score, both in percent."""

    figure: Figure
    ours: Estimate | None
    """Our score by the paper's metric."""
    strict: Estimate | None
    """Our Hits@1."""
    reason: str
    """Why our score is missing; empty if it is not."""
    substituted: bool = False
    """Whether our score is for another dataset."""

    @property
    def gap(self) -> float | None:
        """Our score minus the paper's, in percentage points; None if ours is missing or for another dataset."""
        return None if self.ours is None or self.substituted else self.ours.mean - self.figure.value

    def to_dict(self) -> dict[str, Any]:
        """Return the entry of `reproduction.json`."""
        paper = {name: getattr(self.figure, name) for name in self.figure.__slots__ if name != "overrides"}
        ours = {
            name: None if value is None else {"mean": value.mean, "low": value.low, "high": value.high}
            for name, value in (("ours", self.ours), ("strict", self.strict))
        }
        return {**paper, **ours, "gap": self.gap, "because": self.reason, "stood_in": self.substituted}


def plan_figures(
    datasets: Mapping[str, Sequence[str] | None],
    seeds: Sequence[int],
    common: Sequence[str],
    *,
    substituted: Collection[str] = (),
) -> list[PlannedFigure]:
    """Return every published figure with the overrides that run it.

    `datasets` are the overrides that select each dataset, None to leave it out. `substituted` are the datasets that
    another one takes the place of. The overrides in `common` come last, so they take precedence.
    """
    planned = [_plan(figure, datasets, seeds, common) for figure in published_figures()]
    return [
        replace(each, substituted=bool(each.configurations) and dataset_key(each.figure) in substituted)
        for each in planned
    ]


def reproduce(
    planned: Sequence[PlannedFigure],
    folder: RunFolder,
    configurations: Sequence[tuple[str, ...]],
    scoring: ScoringConfig,
) -> list[ReproducedFigure]:
    """Compare a finished run, with these configurations in this order, with the published figures."""
    scores = sorted({STRICT}.union(each.figure.score for each in planned if each.figure.score))
    table = pl.concat(read_shards(folder, ["point", "level", *scores]))
    by_number = {number: rows for (number,), rows in table.partition_by("point", as_dict=True).items()}
    rows = {overrides: by_number[number] for number, overrides in enumerate(configurations)}
    return [_reproduce(each, [rows[overrides] for overrides in each.configurations], scoring) for each in planned]


def by_table(figures: Sequence[ReproducedFigure], labels: str) -> Iterator[tuple[str, list[ReproducedFigure]]]:
    """Yield the figures of each published table with its title, which states who answered."""
    for (paper, name), group in groupby(figures, key=lambda each: (each.figure.paper, each.figure.table)):
        yield f"{paper}: {name} (ours: {labels})", list(group)


def rich_table(title: str, figures: Sequence[ReproducedFigure]) -> Table:
    """Build the terminal table of one published table, with a line per figure."""
    table = plain_table(title)
    for heading in HEADINGS:
        table.add_column(heading, justify="left" if heading in HEADINGS[:3] else "right", overflow="fold")
    previous = ""
    for figure in figures:
        row, *others = cells(figure)
        table.add_row(*map(Text, ("" if row == previous else row, *others)))
        previous = row
    return table


def labels_of(summaries: Sequence[ConfigurationSummary]) -> str:
    """Return who answered, for the title of every table: a simulation must not be mistaken for a language model."""
    labels = sorted({summary.label or "" for summary in summaries})
    return ", ".join(f"{label}, no language model" if label else "a language model" for label in labels)


def cells(line: ReproducedFigure) -> tuple[str, ...]:
    """Return the texts of a figure's table row, in the order of `HEADINGS`."""
    figure = line.figure
    dataset = " ".join(part for part in (figure.dataset, figure.subset) if part) or _ABSENT
    dataset += " (ours: another dataset)" if line.substituted else ""
    ours = _estimate(line.ours) if line.ours else line.reason
    gap = _ABSENT if line.gap is None else f"{line.gap:+.1f}"
    return (figure.row, dataset, figure.metric, str(figure), ours, _estimate(line.strict), gap)


def circumstances(
    planned: Sequence[PlannedFigure],
    summaries: Sequence[ConfigurationSummary],
    run: Mapping[str, Any],
    configurations: Sequence[tuple[str, ...]],
) -> list[str]:
    """Describe, for each dataset of the papers, our data, graph and model, which may differ from theirs."""
    lines: dict[str, None] = {}
    number_of = {overrides: number for number, overrides in enumerate(configurations)}
    for each in planned:
        for overrides in each.configurations[:1]:
            number = number_of[overrides]
            summary, served = summaries[number], run["served"][number]
            label = f"{served['label']}: no language model" if served["label"] else "a language model"
            dataset = f"{summary.dataset}{' (another dataset)' if each.substituted else ''}"
            lines[
                f"{dataset_key(each.figure)}: ours is {dataset}, {summary.questions:,} questions, "
                f"graph {served['graph']}, answered by {served['model']} ({label})"
            ] = None
    return list(lines)


def dataset_key(figure: Figure) -> str | None:
    """Return the key of `reproduce.datasets` that selects the dataset of a figure."""
    if figure.dataset == "grbench":
        return f"grbench_{figure.subset}"
    return figure.dataset


def _plan(
    figure: Figure, datasets: Mapping[str, Sequence[str] | None], seeds: Sequence[int], common: Sequence[str]
) -> PlannedFigure:
    dataset = datasets.get(dataset_key(figure) or "")
    if figure.preset is None:
        return PlannedFigure(figure, (), "no preset")
    if figure.score is None:
        return PlannedFigure(figure, (), "no equivalent score")
    if dataset is None:
        return PlannedFigure(figure, (), "no dataset")
    overrides = (*dataset, f"experiment={figure.preset}", *figure.overrides, *common)
    return PlannedFigure(figure, tuple((*overrides, f"run.seed={seed}") for seed in seeds), "")


def _reproduce(
    planned: PlannedFigure, rows_by_seed: Sequence[pl.DataFrame], scoring: ScoringConfig
) -> ReproducedFigure:
    figure = planned.figure
    if not rows_by_seed:
        return ReproducedFigure(figure, None, None, planned.reason)
    if figure.dataset != "grbench" and figure.subset is not None:  # each domain of GRBench is a dataset of its own
        rows_by_seed = [rows.filter(level=figure.subset) for rows in rows_by_seed]
        if not rows_by_seed[0].height:
            return ReproducedFigure(figure, None, None, f"no {figure.subset} in ours")
    assert figure.score is not None
    ours, strict = (_mean_score(rows_by_seed, score, scoring) for score in (figure.score, STRICT))
    return ReproducedFigure(figure, ours, strict, "" if ours else f"no {figure.score} in ours", planned.substituted)


def _mean_score(rows_by_seed: Sequence[pl.DataFrame], score: str, scoring: ScoringConfig) -> Estimate | None:
    """Return the mean in percent: over questions with a bootstrap interval, or over seeds if there are several."""
    values = [rows[score].drop_nulls().to_numpy() * 100.0 for rows in rows_by_seed]
    if not len(values[0]):
        return None
    if len(values) > 1:
        return mean_over_seeds([float(of_seed.mean()) for of_seed in values])
    return estimate_mean(values[0], **scoring.bootstrap)


def _estimate(estimate: Estimate | None) -> str:
    return _ABSENT if estimate is None else f"{estimate.mean:.1f} [{estimate.low:.1f}, {estimate.high:.1f}]"
