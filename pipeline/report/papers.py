"""Puts published figures beside the scores of a run: of `kgqa reproduce`, or of a run with the preset of a paper."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import groupby
from typing import Any

import orjson

from pipeline.errors import UserError
from pipeline.evaluation.statistics import Estimate
from pipeline.papers.published import Figure as PublishedFigure
from pipeline.papers.published import published_figures
from pipeline.papers.reproduction import STRICT, ReproducedFigure, dataset_key
from pipeline.percentages import one_decimal
from pipeline.report.data import Block, Configuration, RunInfo
from pipeline.report.labels import ABSENT, Figure, inline
from pipeline.traces.storage import read_whole

_FILE = "reproduction.json"
_FIELDS = tuple(name for name in PublishedFigure.__slots__ if name != "reason")


@dataclass(frozen=True, slots=True)
class PaperRow:
    """A published figure beside ours."""

    row: str
    dataset: str
    metric: str
    paper: str
    """The figure as the paper prints it."""
    published: float
    """The figure in percent of the width of the chart."""
    ours: Figure
    """By the paper's metric."""
    range: tuple[float, float, float]
    """Low, mean and high of ours in percent of the width of the chart."""
    strict: Figure
    """Our Hits@1."""
    gap: str
    """Ours minus the paper's, in percentage points; a dash if it means nothing."""


@dataclass(frozen=True, slots=True)
class PaperTable:
    """The figures of one published table that the runs measured."""

    title: str
    rows: Sequence[PaperRow]
    substituted: bool
    """Whether another dataset takes the place of the paper's, so that the figures cannot be compared."""


def paper_tables(block: Block) -> list[PaperTable]:
    """Return the published tables with the figures that the configurations of a block measured."""
    found = [figure for run in block.runs for figure in _of_run(run, block)]
    order = list(dict.fromkeys((figure.paper, figure.table) for figure in published_figures()))
    places = {table: place for place, table in enumerate(order)}
    found.sort(key=lambda each: (places.get(_table(each)[:2], len(places)), *_table(each)))
    tables = []
    for (paper, table, substituted), group in groupby(found, key=_table):
        rows = [_row(each) for each in group if each.measured]
        tables.append(PaperTable(f"{paper}: {table}", rows, substituted))
    return tables


def _table(reproduced: ReproducedFigure) -> tuple[str, str, bool]:
    return reproduced.figure.paper, reproduced.figure.table, reproduced.substituted


def _of_run(run: RunInfo, block: Block) -> Iterator[ReproducedFigure]:
    """Yield the measured figures of a run: what `kgqa reproduce` wrote, or those of the presets that it ran."""
    file = run.path / _FILE
    if file.is_file():
        yield from _saved(read_whole(file), str(file))
        return
    for configuration in block.configurations:
        if configuration.run is run:
            yield from _of_preset(configuration)


def _saved(document: bytes, name: str) -> Iterator[ReproducedFigure]:
    """Yield the scores that `kgqa reproduce` wrote. The costs, which have no Hits@1, are no percentages."""
    try:
        figures = orjson.loads(document)["figures"]
        measured = [_figure_of(entry) for entry in figures if entry["measured"] and entry["strict"]]
    except (orjson.JSONDecodeError, KeyError, TypeError) as error:
        raise UserError(f"{name} is damaged ({error}): remove it, and kgqa reproduce writes it again") from None
    yield from measured


def _figure_of(entry: Mapping[str, Any]) -> ReproducedFigure:
    measured, strict = (Estimate(**entry[name], questions=0) for name in ("measured", "strict"))
    figure = PublishedFigure(**{name: entry[name] for name in _FIELDS})
    return ReproducedFigure(
        figure, measured, strict, "", bool(entry["stood_in"]), departures=tuple(entry["departures"])
    )


def _of_preset(configuration: Configuration) -> Iterator[ReproducedFigure]:
    """Yield the figures of the papers for the preset of a configuration on its whole dataset."""
    choices, scores = configuration.resolved["choices"], configuration.summary.scores
    dataset = configuration.summary.dataset.replace("-", "_")
    for figure in published_figures():
        is_whole = figure.subset is None or figure.dataset == "grbench"
        if figure.preset is None or figure.preset != choices.get("experiment") or not is_whole:
            continue
        if figure.score and figure.score in scores and dataset_key(figure) == dataset:
            ours, strict = (_in_percent(scores[name]) for name in (figure.score, STRICT))
            yield ReproducedFigure(figure, ours, strict, "", departures=configuration.summary.departures)


def _in_percent(score: Estimate) -> Estimate:
    return Estimate(100 * score.mean, 100 * score.low, 100 * score.high, score.questions)


def _row(reproduced: ReproducedFigure) -> PaperRow:
    figure, ours, strict = reproduced.figure, reproduced.measured, reproduced.strict
    assert ours is not None
    departing = f" [{', '.join(reproduced.departures)}]" if reproduced.departures else ""
    return PaperRow(
        row=inline(f"{figure.row}{departing}"),
        dataset=" ".join(filter(None, [figure.dataset, figure.subset])) or ABSENT,
        metric=figure.metric,
        paper=str(figure),
        published=figure.value,
        ours=_text(ours),
        range=(ours.low, ours.mean, ours.high),
        strict=_text(strict) if strict else Figure(ABSENT),
        gap=ABSENT if reproduced.gap is None else f"{reproduced.gap:+.1f}".replace("-", "−"),
    )


def _text(score: Estimate) -> Figure:
    mean, low, high = (one_decimal(value) for value in (score.mean, score.low, score.high))
    return Figure(str(mean), f"{low}–{high}")
