"""The summary of a run, made from its traces and `run.yaml` alone."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import polars as pl
from rich.console import Console

from pipeline import config
from pipeline.errors import UserError
from pipeline.evaluation.rescore import rescore
from pipeline.evaluation.settings import Evaluation
from pipeline.evaluation.summary import Point, PointSummary, aggregate
from pipeline.evaluation.table import breakdown_table, score_table
from pipeline.traces.folder import RunFolder

_NESTED = ("steps", "texts")


@dataclass(frozen=True, slots=True)
class Ended:
    """What only the driver of a run knows at its end."""

    questions: int
    """Requested: rows of the dataset that could be read, up to `run.limit`."""
    rejected: int
    """Rows of the dataset that could not be read."""
    wall_s: float
    """Seconds that the run took, earlier attempts not counted."""
    opening_s: float
    """Of those, until the models and graphs were open."""
    loop_lag_s: float
    """The longest that anything kept this process's event loop from its work."""


def summarise(folder: RunFolder, ended: Ended) -> list[PointSummary]:
    """Average a finished run's rows and write `summary.json`."""
    rows = _rows(folder)
    summaries = _aggregate(folder, rows, questions=ended.questions)
    folder.write_summary(_document(folder, rows, summaries, ended))
    return summaries


def rescore_run(folder: RunFolder, evaluation: Evaluation) -> list[PointSummary]:
    """Recompute every metric of a run from its traces, and renew `summary.json`; no model, no graph is asked.

    Raises UserError when the run is not complete.
    """
    saved = folder.read_summary()
    if saved is None:
        raise UserError(f"{folder.path} is not complete: run its command again (kgqa evaluate {folder.path}/run.yaml)")
    rows = rescore(_rows(folder), settings=evaluation)
    summaries = _aggregate(folder, rows, questions=saved["questions"], evaluation=evaluation)
    folder.write_summary(saved | {"points": [summary.to_dict() for summary in summaries]})
    return summaries


def show(summaries: Sequence[PointSummary], console: Console) -> None:
    """Print the points, and what a single point's scores are made of."""
    console.print(score_table(summaries))
    if len(summaries) == 1 and summaries[0].breakdown:
        console.print(breakdown_table(summaries[0]))


def _rows(folder: RunFolder) -> pl.DataFrame:
    return pl.scan_parquet(folder.traces).drop(_NESTED).collect()


def _aggregate(
    folder: RunFolder, rows: pl.DataFrame, *, questions: int, evaluation: Evaluation | None = None
) -> list[PointSummary]:
    run = folder.read_run()
    if run is None:
        raise UserError(f"{folder.path} has no run.yaml: it is not a run folder")
    points = {
        index: Point(tuple(point["overrides"]), served["label"], questions)
        for index, (point, served) in enumerate(zip(run["points"], run["served"], strict=True))
    }
    return aggregate(rows, points=points, settings=evaluation or config.build("evaluation", run["points"][0]["config"]))


def _document(folder: RunFolder, rows: pl.DataFrame, summaries: Sequence[PointSummary], ended: Ended) -> dict[str, Any]:
    logical, shared = (int(rows[name].sum()) for name in ("llm_calls", "llm_calls_shared"))
    return {
        "points": [summary.to_dict() for summary in summaries],
        "questions": ended.questions,
        "rejected": ended.rejected,
        "logical_llm_calls": logical,
        "physical_llm_calls": logical - shared,
        "distinct_call_keys": _distinct_keys(folder),
        "physical_kg_queries": int(rows["kg_queries"].sum()),
        "wall_s": ended.wall_s,
        "opening_s": ended.opening_s,
        "loop_lag_s": ended.loop_lag_s,
        "complete": rows.height == ended.questions * len(summaries),
    }


def _distinct_keys(folder: RunFolder) -> int:
    """Different model calls: an ordinal counts equal calls of one question, so a key is one call of its question."""
    steps = pl.scan_parquet(folder.traces).select("question_id", "steps").explode("steps")
    keys = steps.select("question_id", pl.col("steps").struct.field("key")).drop_nulls()
    return keys.unique().collect().height
