"""The summary of a run, made from its traces and `run.yaml` alone."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import polars as pl
from rich.console import Console

from pipeline import config
from pipeline.errors import UserError
from pipeline.evaluation.rescore import INPUTS, SCORES, rescore
from pipeline.evaluation.settings import Evaluation
from pipeline.evaluation.summary import COLUMNS, Point, PointSummary, aggregate, tally
from pipeline.evaluation.table import breakdown_table, score_table, sweep_table
from pipeline.traces.folder import RunFolder
from pipeline.traces.reader import count_distinct_calls, read_shards

TIMES = ("wall_s", "opening_s", "loop_lag_s")


@dataclass(frozen=True, slots=True)
class Ended:
    """What only the driver of a run knows at its end."""

    questions: Sequence[int]
    """Requested of each point: rows of its dataset that could be read, up to `run.limit`."""
    rejected: int
    """Rows of the datasets that could not be read."""
    wall_s: float
    """Seconds that the run took, earlier attempts not counted."""
    opening_s: float
    """Of those, until the models and graphs were open."""
    loop_lag_s: float
    """The longest that anything kept this process's event loop from its work."""


def summarise(folder: RunFolder, ended: Ended) -> list[PointSummary]:
    """Average a finished run's rows and write `summary.json`."""
    summaries = _aggregate(folder, tally(read_shards(folder, COLUMNS)), questions=ended.questions)
    folder.write_summary(_document(folder, summaries, ended))
    return summaries


def rescore_run(folder: RunFolder, evaluation: Evaluation) -> list[PointSummary]:
    """Recompute every metric of a run from its traces, and renew `summary.json`; no model, no graph is asked.

    Raises UserError when the run is not complete, or its traces lack a column.
    """
    saved = folder.read_summary()
    if saved is None:
        raise UserError(f"{folder.path} is not complete: run its command again (kgqa evaluate {folder.path}/run.yaml)")
    needed = [name for name in dict.fromkeys((*INPUTS, *COLUMNS)) if name not in SCORES]
    rows = (rescore(shard, settings=evaluation) for shard in read_shards(folder, needed))
    questions = [point["questions"] for point in saved["points"]]
    summaries = _aggregate(folder, tally(rows), questions=questions, evaluation=evaluation)
    folder.write_summary(saved | {"points": [summary.to_dict() for summary in summaries]})
    return summaries


def show(summaries: Sequence[PointSummary], console: Console) -> None:
    """Print the points, and what a single point's scores are made of."""
    if len(summaries) > 1:
        console.print(sweep_table(summaries))
        return
    console.print(score_table(summaries))
    if summaries[0].breakdown:
        console.print(breakdown_table(summaries[0]))


def _aggregate(
    folder: RunFolder, tallied: pl.DataFrame, *, questions: Sequence[int], evaluation: Evaluation | None = None
) -> list[PointSummary]:
    run = folder.read_run()
    if run is None:
        raise UserError(f"{folder.path} has no run.yaml: it is not a run folder")
    points = {
        index: Point(tuple(point["overrides"]), served["label"], asked)
        for index, (point, served, asked) in enumerate(zip(run["points"], run["served"], questions, strict=True))
    }
    settings = evaluation or config.build("evaluation", run["points"][0]["config"])
    return aggregate(tallied, points=points, settings=settings)


def _document(folder: RunFolder, summaries: Sequence[PointSummary], ended: Ended) -> dict[str, Any]:
    def total(counter: str) -> int:
        return int(sum(point.counters[counter] for point in summaries))

    logical = total("llm_calls")
    return {
        "points": [summary.to_dict() for summary in summaries],
        "questions": max(ended.questions),
        "rejected": ended.rejected,
        "logical_llm_calls": logical,
        "physical_llm_calls": logical - total("llm_calls_shared"),
        "distinct_call_keys": count_distinct_calls(folder),
        "physical_kg_queries": total("kg_queries"),
        **{name: getattr(ended, name) for name in TIMES},
        "complete": not any(point.not_run for point in summaries),
    }
