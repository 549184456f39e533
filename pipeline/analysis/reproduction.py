"""The papers' tables with our numbers beside theirs: which points they need, and what those came to."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import groupby
from typing import Any

import polars as pl
from rich.table import Table
from rich.text import Text

from pipeline.evaluation.published import Figure, published_figures
from pipeline.evaluation.settings import Evaluation
from pipeline.evaluation.statistics import Estimate, bootstrap_mean, mean_over_seeds
from pipeline.evaluation.summary import PointSummary
from pipeline.evaluation.table import plain_table
from pipeline.traces.folder import RunFolder
from pipeline.traces.reader import read_shards

STRICT = "hits_at_1"
"""Printed beside whatever the paper counts."""
_ABSENT = "–"


@dataclass(frozen=True, slots=True)
class Row:
    """A published figure, and the points that are its like here, one per seed; none where it cannot be run."""

    figure: Figure
    points: tuple[tuple[str, ...], ...]
    """Each as its overrides."""
    because: str
    """Why there is no point; empty when there is."""
    stood_in: bool = False
    """Whether the points ask another dataset in its place."""


@dataclass(frozen=True, slots=True)
class Reproduced:
    """A published figure with ours, both in percent."""

    figure: Figure
    ours: Estimate | None
    """Counted as the paper counts."""
    strict: Estimate | None
    because: str
    """Why one of them is missing."""
    stood_in: bool = False
    """Whether ours are of another dataset."""

    @property
    def gap(self) -> float | None:
        """Points by which ours is above the paper's number; None where they are not of one dataset."""
        return None if self.ours is None or self.stood_in else self.ours.mean - self.figure.value

    def to_dict(self) -> dict[str, Any]:
        """For scripts."""
        paper = {name: getattr(self.figure, name) for name in self.figure.__slots__ if name != "overrides"}
        ours = {
            name: None if value is None else {"mean": value.mean, "low": value.low, "high": value.high}
            for name, value in (("ours", self.ours), ("strict", self.strict))
        }
        return {**paper, **ours, "gap": self.gap, "because": self.because, "stood_in": self.stood_in}


def rows_of(
    datasets: Mapping[str, Sequence[str] | None],
    seeds: Sequence[int],
    common: Sequence[str],
    *,
    stood_in: Collection[str] = (),
) -> list[Row]:
    """Every published figure with the overrides that run it.

    `datasets` are the words that choose each, and `stood_in` those of which another one takes the place; the words of
    `common` come last, so that they win.
    """
    rows = [_row(figure, datasets, seeds, common) for figure in published_figures()]
    return [replace(row, stood_in=bool(row.points) and dataset_key(row.figure) in stood_in) for row in rows]


def reproduce(
    rows: Sequence[Row], folder: RunFolder, points: Sequence[tuple[str, ...]], settings: Evaluation
) -> list[Reproduced]:
    """Hold a finished run, whose points are `points`, against the published figures."""
    scores = sorted({STRICT}.union(row.figure.score for row in rows if row.figure.score))
    table = pl.concat(read_shards(folder, ["point", "level", *scores]))
    of_point = {point: rows for (point,), rows in table.partition_by("point", as_dict=True).items()}
    numbers = {overrides: of_point[number] for number, overrides in enumerate(points)}
    return [_hold(row, [numbers[point] for point in row.points], settings) for row in rows]


def by_table(found: Sequence[Reproduced], labels: str) -> Iterator[tuple[str, list[Reproduced]]]:
    """The lines of each published table under its title, which says what ours are."""
    for (paper, name), lines in groupby(found, key=lambda each: (each.figure.paper, each.figure.table)):
        yield f"{paper}: {name} (ours: {labels})", list(lines)


def rich_table(title: str, lines: Sequence[Reproduced]) -> Table:
    """One published table: a line per figure."""
    table = plain_table(title)
    for heading in HEADINGS:
        table.add_column(heading, justify="left" if heading in HEADINGS[:3] else "right", overflow="fold")
    before = ""
    for line in lines:
        row, *others = cells(line)
        table.add_row(*map(Text, ("" if row == before else row, *others)))
        before = row
    return table


def labels_of(summaries: Sequence[PointSummary]) -> str:
    """What answered, for the title of every table: a simulation must not be taken for a model."""
    labels = sorted({summary.label or "" for summary in summaries})
    return ", ".join(f"{label}, no language model" if label else "a language model" for label in labels)


HEADINGS = ("row", "dataset", "metric", "paper", "ours", "strict Hits@1", "gap")


def cells(line: Reproduced) -> tuple[str, ...]:
    """What is printed of a figure, in the order of `HEADINGS`."""
    figure = line.figure
    dataset = " ".join(part for part in (figure.dataset, figure.subset) if part) or _ABSENT
    dataset += " (ours: a stand-in)" if line.stood_in else ""
    ours = _estimate(line.ours) if line.ours else line.because
    gap = _ABSENT if line.gap is None else f"{line.gap:+.1f}"
    return (figure.row, dataset, figure.metric, str(figure), ours, _estimate(line.strict), gap)


def circumstances(
    rows: Sequence[Row], summaries: Sequence[PointSummary], run: Mapping[str, Any], points: Sequence[tuple[str, ...]]
) -> list[str]:
    """Per dataset of the papers, what ours was: the data, the graph and the model that differ from theirs."""
    lines: dict[str, None] = {}
    number_of = {overrides: number for number, overrides in enumerate(points)}
    for row in rows:
        for point in row.points[:1]:
            number = number_of[point]
            summary, served = summaries[number], run["served"][number]
            label = f"{served['label']}: no language model" if served["label"] else "a language model"
            stands = " (a stand-in)" if row.stood_in else ""
            lines[
                f"{dataset_key(row.figure)}: ours is {summary.dataset}{stands}, {summary.questions:,} questions, "
                f"graph {served['graph']}, answered by {served['model']} ({label})"
            ] = None
    return list(lines)


def dataset_key(figure: Figure) -> str | None:
    """The key of `reproduce.datasets` whose words choose the dataset of a figure."""
    if figure.dataset == "grbench":
        return f"grbench_{figure.subset}"
    return figure.dataset


def _row(
    figure: Figure, datasets: Mapping[str, Sequence[str] | None], seeds: Sequence[int], common: Sequence[str]
) -> Row:
    words = datasets.get(dataset_key(figure) or "")
    because = (
        "not ours to run"
        if figure.preset is None
        else "no score of ours"
        if figure.score is None
        else "no dataset"
        if words is None
        else ""
    )
    if because or words is None:
        return Row(figure, (), because)
    preset = (*words, f"experiment={figure.preset}", *figure.overrides, *common)
    return Row(figure, tuple((*preset, f"run.seed={seed}") for seed in seeds), "")


def _hold(row: Row, of_seeds: Sequence[pl.DataFrame], settings: Evaluation) -> Reproduced:
    figure = row.figure
    if not of_seeds:
        return Reproduced(figure, None, None, row.because)
    if figure.dataset != "grbench" and figure.subset is not None:  # a domain of GRBench is a dataset of its own
        of_seeds = [rows.filter(level=figure.subset) for rows in of_seeds]
        if not of_seeds[0].height:
            return Reproduced(figure, None, None, f"no {figure.subset} in ours")
    assert figure.score is not None
    ours, strict = (_over_seeds(of_seeds, score, settings) for score in (figure.score, STRICT))
    return Reproduced(figure, ours, strict, "" if ours else f"no {figure.score} in ours", row.stood_in)


def _over_seeds(of_seeds: Sequence[pl.DataFrame], score: str, settings: Evaluation) -> Estimate | None:
    """In percent: the mean over questions with its bootstrap interval, or over seeds where there are several."""
    values = [rows[score].drop_nulls().to_numpy() * 100.0 for rows in of_seeds]
    if not len(values[0]):
        return None
    if len(values) > 1:
        return mean_over_seeds([float(of_seed.mean()) for of_seed in values])
    return bootstrap_mean(values[0], **settings.bootstrap)


def _estimate(estimate: Estimate | None) -> str:
    return _ABSENT if estimate is None else f"{estimate.mean:.1f} [{estimate.low:.1f}, {estimate.high:.1f}]"
