"""Plans the rows of the papers' tables as configurations, and compares their scores with the published ones."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import groupby
from typing import Any

import polars as pl
from rich.table import Table

from pipeline import config
from pipeline.errors import UserError
from pipeline.evaluation.config import ScoringConfig
from pipeline.evaluation.configuration_summary import SECONDS, ConfigurationSummary
from pipeline.evaluation.paper_metrics import ROG_F1, ROG_F1_ABOVE_1
from pipeline.evaluation.question_groups import SOURCE, source_labels
from pipeline.evaluation.score_tables import percent, plain_table
from pipeline.evaluation.simulated import answered_by
from pipeline.evaluation.statistics import Estimate, estimate_mean, mean_over_seeds
from pipeline.llm.interface import simulated
from pipeline.papers.comparison_systems import why_not_run
from pipeline.papers.published import Figure, published_figures
from pipeline.text import counted
from pipeline.traces.folder import RunFolder
from pipeline.traces.reader import read_shards

STRICT = "hits_at_1"
"""The score that is printed next to the paper's own."""
HEADINGS = ("row", "dataset", "metric", "paper", "Hits@1", "as its paper counts", "gap")
_ABSENT = "–"
_HOPS = re.compile(r"(\d+)( or more)? hops?")
_OVER_SEEDS = "*"
"""Behind an interval over seeds."""


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
    """A published figure and the score of this run, both in percent, or the cost of this run, in the figure's unit."""

    figure: Figure
    measured: Estimate | None
    """The score or cost of this run by the paper's metric."""
    strict: Estimate | None
    """The strict Hits@1 of this run; None beside a cost."""
    reason: str
    """Why the score of this run is missing; empty if it is not."""
    substituted: bool = False
    """Whether the score of this run is for another dataset."""
    retriever: str | None = None
    """The retriever of this run; None if there is no run."""
    departures: tuple[str, ...] = ()
    """Where this run is not as published."""
    seeds: int = 0
    """The runs with different seeds. The intervals of several are over seeds, those of a single one over questions."""

    @property
    def gap(self) -> float | None:
        """The measured number minus the paper's, in its unit; None if it is missing or for another dataset."""
        return None if self.measured is None or self.substituted else self.measured.mean - self.figure.value

    def to_dict(self) -> dict[str, Any]:
        """Return the entry of `reproduction.json`."""
        paper = {name: getattr(self.figure, name) for name in self.figure.__slots__ if name != "reason"}
        scores = {
            name: None if value is None else {"mean": value.mean, "low": value.low, "high": value.high}
            for name, value in (("measured", self.measured), ("strict", self.strict))
        }
        run = {
            "retriever": self.retriever,
            "departures": list(self.departures),
            "stood_in": self.substituted,
            "seeds": self.seeds,
            "interval_over": "seeds" if self.seeds > 1 else "questions",
        }
        return {**paper, **scores, "gap": self.gap, "because": self.reason, **run}


def plan_figures(
    datasets: Mapping[str, Sequence[str] | None],
    seeds: Sequence[int] | None,
    common: Sequence[str],
    *,
    methods: Collection[str] | None = None,
    substituted: Collection[str] = (),
) -> list[PlannedFigure]:
    """Return every published figure with the overrides that run it.

    `datasets` are the overrides that select each dataset, None to leave it out. `substituted` are the datasets that
    another one takes the place of. Without `seeds`, as many are run as the paper ran. Without `methods`, the rows of
    all choices of `method=` are run. The overrides in `common` come last, so they take precedence. Those of a method's
    key are for the rows of the methods that have it. Raises UserError for a method without a row.
    """
    presets = dict.fromkeys(figure.preset for figure in published_figures() if figure.preset)
    rows = {preset: _Row.of(preset) for preset in presets} if methods or any(map(is_of_method, common)) else {}
    if methods:
        _check_methods(methods, rows.values())
        _refuse_idle(common, rows.values(), methods)
    words = {preset: _words_of(row, rows.values(), common) for preset, row in rows.items()}
    left_out = {preset for preset, row in rows.items() if methods and row.method not in methods}
    planned = [
        PlannedFigure(figure, (), "left out by reproduce.methods")
        if figure.preset in left_out
        else _plan(figure, datasets, seeds, words.get(figure.preset or "", common))
        for figure in published_figures()
    ]
    return [
        replace(each, substituted=bool(each.configurations) and dataset_key(each.figure) in substituted)
        for each in planned
    ]


@dataclass(frozen=True, slots=True)
class _Row:
    """What a preset runs."""

    method: str
    """The choice of `method=`."""
    keys: frozenset[str]
    """The keys of this method, such as `method.depth`."""

    @classmethod
    def of(cls, preset: str) -> _Row:
        composed = config.compose((f"experiment={preset}",))
        keys = config.with_sections(key for key, _ in config.flatten({"method": composed["method"]}))
        return cls(composed["choices"]["method"], frozenset(keys))


def _check_methods(methods: Collection[str], rows: Collection[_Row]) -> None:
    """Raise UserError for a method that runs no row."""
    known = {row.method for row in rows}
    if unknown := sorted({*methods} - known):
        raise UserError(
            f"reproduce.methods: no published row is run by {', '.join(unknown)}. Known: {', '.join(sorted(known))}"
        )


def _refuse_idle(common: Sequence[str], rows: Collection[_Row], methods: Collection[str]) -> None:
    """Raise UserError for a key of a method whose rows are left out: it would do nothing."""
    for key in map(config.key_of, filter(is_of_method, common)):
        having = {row.method for row in rows if key in row.keys}
        if having and having.isdisjoint(methods):
            raise UserError(f"{key} is a key of {', '.join(sorted(having))}, which reproduce.methods leaves out")


def is_of_method(word: str) -> bool:
    """Whether an override sets a key of a method."""
    return config.key_of(word).startswith("method.")


def _words_of(row: _Row, rows: Collection[_Row], common: Sequence[str]) -> Sequence[str]:
    """Leave out the keys of other methods; a key of no method stays, and is refused as everywhere."""
    foreign = {key for each in rows for key in each.keys} - row.keys
    return [word for word in common if config.key_of(word) not in foreign]


def refuse_choices_of_rows(common: Sequence[str]) -> None:
    """Raise UserError for what each row chooses itself: the numbers would stand in rows that they are not of."""
    instead = {
        "experiment": "reproduce.methods=[…] runs the rows of some methods only",
        "method": "reproduce.methods=[…] runs the rows of some methods only",
        "dataset": "reproduce.datasets.…=[…] names the data of each",
        "run.seed": "reproduce.seeds=[…] names the seeds",
    }
    for word in common:
        if way_out := instead.get(config.key_of(word)):
            raise UserError(
                f"each row of the papers' tables has its own {config.key_of(word)}, so {word} is not taken: {way_out}"
            )


def reproduce(
    planned: Sequence[PlannedFigure],
    folder: RunFolder,
    summaries: Sequence[ConfigurationSummary],
    configurations: Sequence[tuple[str, ...]],
    scoring: ScoringConfig,
    *,
    timed: Sequence[bool],
) -> list[ReproducedFigure]:
    """Compare a finished run, with these configurations in this order, with the published figures.

    `timed` says of each configuration whether its seconds mean anything.
    """
    has_seconds = dict(zip(configurations, timed, strict=True))
    planned = [
        replace(each, configurations=(), reason="a simulated model takes no seconds")
        if each.figure.cost == SECONDS and not all(has_seconds[overrides] for overrides in each.configurations)
        else each
        for each in planned
    ]
    named = (name for each in planned for name in (each.figure.score, each.figure.cost) if name)
    scores = sorted({STRICT}.union(named))
    table = pl.concat(read_shards(folder, ["point", "level", "hops", "meta", *scores])).with_columns(SOURCE)
    by_number = {number: rows for (number,), rows in table.partition_by("point", as_dict=True).items()}
    rows = {overrides: by_number[number] for number, overrides in enumerate(configurations)}
    summary_of = dict(zip(configurations, summaries, strict=True))
    return [
        _with_run(
            _reproduce(each, [rows[overrides] for overrides in each.configurations], scoring),
            [summary_of[overrides] for overrides in each.configurations],
        )
        for each in planned
    ]


def by_table(figures: Sequence[ReproducedFigure], labels: str) -> Iterator[tuple[str, list[ReproducedFigure]]]:
    """Yield the figures of each published table with its title, which states who answered, and by which retrievers."""
    for (paper, name), group in groupby(figures, key=lambda each: (each.figure.paper, each.figure.table)):
        lines = list(group)
        retrievers = "; ".join(dict.fromkeys(each.retriever for each in lines if each.retriever))
        yield f"{paper}: {name} (answered by {labels}){f', retriever: {retrievers}' if retrievers else ''}", lines


def full_table(title: str, figures: Sequence[ReproducedFigure]) -> Table:
    """Build a published table with every row that was run or cannot be run, as `reproduction.md` has it."""
    caption = (
        f"numbers in {unit_text(figures)}, {interval_text(figures)}; gap: ours minus the paper's, in the same unit"
    )
    table = plain_table(title, caption)
    for number, heading in enumerate(HEADINGS):
        table.add_column(heading, justify="left" if number < 3 else "right", overflow="fold")
    for each in figures:
        table.add_row(*cells(each))
    return table


def measured_tables(sections: Sequence[tuple[str, Sequence[ReproducedFigure]]]) -> list[Table]:
    """Build the published tables without the rows that were not run."""
    measured = ((title, [each for each in figures if each.measured]) for title, figures in sections)
    return [full_table(title, figures) for title, figures in measured if figures]


def summary_table(figures: Sequence[ReproducedFigure], labels: str) -> Table:
    """Build the terminal table: a line for each paper's own method on each whole dataset that was run."""
    shown = [each for group in _main_results(figures) for each in group]
    caption = f"{unit_text(shown)}, {interval_text(shown)}; under `paper`: weakest to best model"
    caption = "\n".join([caption, *_retriever_lines(figures)])
    table = plain_table(f"the papers' own methods, answered by {labels}", caption, padding=0)
    for number, heading in enumerate(("method", *HEADINGS[1:-1])):
        table.add_column(heading, justify="left" if number < 3 else "right", overflow="fold")
    for group in _main_results(figures):
        first = group[0]
        figure = first.figure
        ends = [str(each.figure) for each in sorted(group, key=lambda each: each.figure.value)]
        paper = ends[0] if len(ends) == 1 else f"{ends[0]}–{ends[-1]}"
        # `R3 oracle` and not `R3-Cycle oracle`: a line fits in 80 columns
        method = f"{figure.paper.partition('-')[0]} {figure.reading}" if figure.reading else figure.paper
        texts = (method, figure.subset or figure.dataset or _ABSENT, figure.metric, paper)
        table.add_row(*texts, _estimate(first, first.strict), _estimate(first, first.measured) or first.reason)
    return table


def unit_text(figures: Sequence[ReproducedFigure]) -> str:
    """Say what the numbers of a published table are in."""
    if any(each.figure.cost for each in figures):
        return "the unit that the metric names, per question"
    above = any(each.figure.score == ROG_F1 and each.measured and each.measured.high > 100 for each in figures)
    return f"percent ({ROG_F1_ABOVE_1})" if above else "percent"


def interval_text(figures: Sequence[ReproducedFigure]) -> str:
    """Say what the intervals of the figures are over: two kinds of interval must not be compared."""
    seeds = sorted({each.seeds for each in figures if each.strict})
    several = [count for count in seeds if count > 1]
    if not several:
        return "with intervals over questions"
    others = "; all others are over questions" if len(several) < len(seeds) else ""
    counts = " or ".join(map(str, several))
    equal = any(each.strict and each.seeds > 1 and each.strict.low == each.strict.high for each in figures)
    alone = ", and none where these are equal" if equal else ""
    same = "the same questions in each"
    return f"with intervals; {_OVER_SEEDS} over the means of {counts} seeds{alone}, {same}{others}"


def count_line(figures: Sequence[ReproducedFigure]) -> str:
    """Say how many rows of the tables have our number, and why the others have none."""
    reasons = Counter(each.reason for each in figures)
    measured = reasons.pop("", 0)
    missing = "".join(f"; {count:,} not: {reason}" for reason, count in reasons.most_common())
    return f"{counted(len(figures), 'row')} of published figures: {measured:,} measured{missing}"


def labels_of(summaries: Sequence[ConfigurationSummary]) -> str:
    """Return who answered, for the title of every table: a simulation must not be mistaken for a language model."""
    labels = sorted({summary.label or "" for summary in summaries})
    names = [(simulated(label), label) for label in labels]
    return ", ".join(f"{name}, no language model" if name else answered_by(label) for name, label in names)


def cells(line: ReproducedFigure) -> tuple[str, ...]:
    """Return the texts of a figure's table row, in the order of `HEADINGS`."""
    figure = line.figure
    dataset = " ".join(part for part in (figure.dataset, figure.subset) if part) or _ABSENT
    dataset += " (run on another dataset)" if line.substituted else ""
    gap = _ABSENT if line.gap is None else f"{line.gap:+.1f}"
    measured = _estimate(line, line.measured) or line.reason
    row = f"{figure.row} [{', '.join(line.departures)}]" if line.departures else figure.row
    return (row, dataset, figure.metric, str(figure), _estimate(line, line.strict) or _ABSENT, measured, gap)


def circumstances(
    planned: Sequence[PlannedFigure],
    summaries: Sequence[ConfigurationSummary],
    run: Mapping[str, Any],
    configurations: Sequence[tuple[str, ...]],
) -> list[str]:
    """Describe, for the datasets of the papers, the data, graph and model of this run, which may differ from theirs."""
    datasets: dict[str, dict[str | None, None]] = {}
    number_of = {overrides: number for number, overrides in enumerate(configurations)}
    for each in planned:
        for overrides in each.configurations[:1]:
            number = number_of[overrides]
            summary, served = summaries[number], run["served"][number]
            label = answered_by(served["label"])
            dataset = f"{summary.dataset}{' (another dataset)' if each.substituted else ''}"
            description = (
                f"run on {dataset}, {counted(summary.questions, 'question')}, graph {served['graph']}, "
                f"answered by {served['model']} ({label})"
            )
            datasets.setdefault(description, {})[dataset_key(each.figure)] = None
    return [f"{', '.join(map(str, keys))}: {description}" for description, keys in datasets.items()]


def dataset_key(figure: Figure) -> str | None:
    """Return the key of `reproduce.datasets` that selects the dataset of a figure."""
    if figure.dataset == "grbench":
        return f"grbench_{figure.subset}"
    return figure.dataset


def _retriever_lines(figures: Sequence[ReproducedFigure]) -> list[str]:
    """Name each retriever, and what is not as published, with the papers' own methods whose rows it concerns."""
    found: dict[str, dict[str, dict[str, None]]] = {"retriever": {}, "not as published": {}}
    for each in figures:
        if each.figure.method == each.figure.paper:
            texts = {"retriever": [each.retriever] if each.retriever else [], "not as published": each.departures}
            for kind, named in texts.items():
                for text in named:
                    found[kind].setdefault(text, {})[each.figure.paper] = None
    return [f"{kind}: {_with_papers(texts)}" for kind, texts in found.items() if texts]


def _with_papers(texts: Mapping[str, Collection[str]]) -> str:
    """Return each text with its papers, or without them if it is that of all papers."""
    papers = {figure.paper for figure in published_figures()}
    return "; ".join(text if papers <= set(own) else f"{text} ({', '.join(own)})" for text, own in texts.items())


def _main_results(figures: Sequence[ReproducedFigure]) -> list[list[ReproducedFigure]]:
    """Return the figures of each paper's own method in its first table, by reading, whole dataset and metric.

    A paper whose method is a baseline of another one, such as PoG's, is left out: the summary fits on a screen.
    """
    baselines = {each.figure.method for each in figures if each.figure.method != each.figure.paper}
    own = [
        each
        for each in figures
        if each.figure.method == each.figure.paper and each.figure.variant is None
        if each.figure.paper not in baselines
    ]
    first_tables = {each.figure.paper: each.figure.table for each in reversed(own)}
    groups: dict[tuple[str | None, ...], list[ReproducedFigure]] = {}
    for each in own:
        figure = each.figure
        whole = figure.subset is None or figure.dataset == "grbench"
        if each.strict and whole and figure.table == first_tables[figure.paper]:
            groups.setdefault((figure.paper, figure.reading, dataset_key(figure), figure.metric), []).append(each)
    return list(groups.values())


def _plan(
    figure: Figure, datasets: Mapping[str, Sequence[str] | None], seeds: Sequence[int] | None, common: Sequence[str]
) -> PlannedFigure:
    dataset = datasets.get(dataset_key(figure) or "")
    if figure.preset is None:
        return PlannedFigure(figure, (), why_not_run(figure))
    if figure.score is None and figure.cost is None:
        assert figure.reason is not None, "the file says where else the number is"
        return PlannedFigure(figure, (), figure.reason)
    if dataset is None:
        return PlannedFigure(figure, (), "no dataset")
    overrides = (*dataset, f"experiment={figure.preset}", *common)
    each_seed = range(figure.seeds) if seeds is None else seeds
    return PlannedFigure(figure, tuple((*overrides, f"run.seed={seed}") for seed in each_seed), "")


def _reproduce(
    planned: PlannedFigure, rows_by_seed: Sequence[pl.DataFrame], scoring: ScoringConfig
) -> ReproducedFigure:
    figure = planned.figure
    if not rows_by_seed:
        return ReproducedFigure(figure, None, None, planned.reason)
    if figure.dataset != "grbench" and figure.subset is not None:  # each domain of GRBench is a dataset of its own
        rows_by_seed = [rows.filter(_in_subset(figure.subset)) for rows in rows_by_seed]
        if not rows_by_seed[0].height:
            return ReproducedFigure(figure, None, None, f"no question of the kind {figure.subset}")
    if figure.cost is not None:
        return ReproducedFigure(figure, _mean(rows_by_seed, figure.cost, scoring), None, "", planned.substituted)
    assert figure.score is not None
    mean, strict = (_mean(rows_by_seed, score, scoring, unit=100) for score in (figure.score, STRICT))
    return ReproducedFigure(figure, mean, strict, "" if mean else f"no {figure.score}", planned.substituted)


def _in_subset(subset: str) -> pl.Expr:
    """Return whether a question is in a part of its dataset: a level, or a number of hops, such as `3 or more hops`."""
    hops = _HOPS.fullmatch(subset)
    if hops is None:
        return pl.col("level") == subset
    number = int(hops[1])
    return pl.col("hops") >= number if hops[2] else pl.col("hops") == number


def _with_run(reproduced: ReproducedFigure, runs: Sequence[ConfigurationSummary]) -> ReproducedFigure:
    """Add with which retriever a figure was run, and where that is not as published; all seeds agree in both."""
    if not runs:
        return reproduced
    return replace(reproduced, retriever=runs[0].retriever, departures=runs[0].departures, seeds=len(runs))


def _mean(
    rows_by_seed: Sequence[pl.DataFrame], column: str, scoring: ScoringConfig, *, unit: int = 1
) -> Estimate | None:
    """Return `unit` times the mean with its interval: over questions, or over seeds if there are several."""
    scored = [rows.drop_nulls(column) for rows in rows_by_seed]
    values = [rows[column].to_numpy() for rows in scored]
    if not len(values[0]):
        return None
    if len(values) > 1:
        mean = mean_over_seeds([float(of_seed.mean()) for of_seed in values])
    else:
        mean = estimate_mean(values[0], clusters=source_labels(scored[0]), **scoring.bootstrap)
    return Estimate(unit * mean.mean, unit * mean.low, unit * mean.high, mean.questions)


def _estimate(figure: ReproducedFigure, score: Estimate | None) -> str:
    """Return a score of the figure with its interval; empty without a score."""
    if score is None:
        return ""
    mean, low, high = (percent(value / 100) for value in (score.mean, score.low, score.high))
    if figure.seeds > 1 and low == high:  # the seeds have one score, which is no interval of width 0
        return f"{mean}{_OVER_SEEDS}"
    return f"{mean} {low}–{high}{_OVER_SEEDS if figure.seeds > 1 else ''}"
