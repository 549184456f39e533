"""Computes the summary of a run from its traces and `run.yaml`."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import polars as pl

from pipeline import config
from pipeline.engine.requested import requested
from pipeline.evaluation.config import ScoringConfig
from pipeline.evaluation.configuration_summary import SUMMARY_COLUMNS, ConfigurationSummary, aggregate, group_equal_rows
from pipeline.evaluation.question_groups import REPEATED_COLUMNS, count_repeated
from pipeline.evaluation.rescore import INPUTS, SCORES, rescore
from pipeline.traces.folder import RunFolder
from pipeline.traces.reader import answering_models, count_distinct_calls, count_older_replies, read_shards
from pipeline.traces.run_file import language_models

TIMES = ("wall_s", "opening_s", "loop_lag_s")


@dataclass(frozen=True, slots=True)
class RunTotals:
    """What only the driver of a run knows at its end."""

    questions: Sequence[int]
    """Questions that each configuration asks: the readable rows of its dataset, up to `run.limit`."""
    rejected: int
    """Rows of the datasets that could not be read."""
    max_failed: float
    """The largest share of failed questions of a sound run (`run.max_failed`)."""
    wall_s: float
    """Duration of the run in seconds, without earlier attempts."""
    opening_s: float
    """Seconds until the models and graphs were open; part of `wall_s`."""
    loop_lag_s: float
    """The longest time that anything blocked the event loop of a worker."""
    is_resumed: bool
    """Whether earlier attempts had made calls or finished shards, which `wall_s` leaves out."""


def summarise(folder: RunFolder, totals: RunTotals) -> list[ConfigurationSummary]:
    """Average the rows of a finished run and write `summary.json`."""
    summaries = _aggregate(folder, group_equal_rows(read_shards(folder, SUMMARY_COLUMNS)), questions=totals.questions)
    folder.write_summary(_document(folder, summaries, totals))
    return summaries


@contextmanager
def renewed_summary(folder: RunFolder) -> Iterator[None]:
    """Average the rows again after the block has given some new scores, and write `summary.json`, if the run has one.

    Meanwhile there is none: a kill leaves no old scores that look like those of the rows.
    """
    saved = folder.read_summary()
    folder.remove_summary()
    yield
    if saved:
        _average_again(folder, saved, read_shards(folder, SUMMARY_COLUMNS))


def rescore_run(folder: RunFolder, evaluation: ScoringConfig, *, writes: bool) -> list[ConfigurationSummary]:
    """Recompute every metric of a run from its traces, without model or graph; `writes` renews `summary.json`.

    A run without `summary.json` is not complete: its finished shards are scored, and nothing is written. Raises
    UserError if there is none, or the traces lack a column.
    """
    folder.require_finished()
    saved = folder.read_summary()
    needed = [name for name in dict.fromkeys((*INPUTS, *SUMMARY_COLUMNS)) if name not in SCORES]
    rows = (rescore(shard, scoring=evaluation) for shard in read_shards(folder, needed))
    return _average_again(folder, saved, rows, evaluation, writes=writes)


def _average_again(
    folder: RunFolder,
    saved: Mapping[str, Any] | None,
    rows: Iterable[pl.DataFrame],
    evaluation: ScoringConfig | None = None,
    *,
    writes: bool = True,
) -> list[ConfigurationSummary]:
    """Average rows whose scores are new, and write them into the summary that is `saved`, if there is one."""
    questions = [point["questions"] for point in saved["points"]] if saved else None
    summaries = _aggregate(folder, group_equal_rows(rows), questions=questions, evaluation=evaluation)
    if saved and writes:
        points = {"points": [summary.to_dict() for summary in summaries]}
        folder.write_summary({**saved, **points, **_repeated(folder), **_older_replies(folder, summaries)})
    return summaries


def _aggregate(
    folder: RunFolder,
    tallied: pl.DataFrame,
    *,
    questions: Sequence[int] | None,
    evaluation: ScoringConfig | None = None,
) -> list[ConfigurationSummary]:
    """Average the rows of each configuration. `questions` are how many each was asked; None if that is not known."""
    run = folder.require_run()
    asked: Sequence[int | None] = questions or [None] * len(run["points"])
    infos = {
        index: requested(point, served, count)
        for index, (point, served, count) in enumerate(zip(run["points"], run["served"], asked, strict=True))
    }
    scoring = evaluation or config.build_plain(ScoringConfig, "evaluation", run["points"][0]["config"])
    return aggregate(tallied, configurations=infos, scoring=scoring)


def _document(folder: RunFolder, summaries: Sequence[ConfigurationSummary], totals: RunTotals) -> dict[str, Any]:
    def total(counter: str) -> int:
        return int(sum(summary.counters[counter] for summary in summaries))

    logical = total("llm_calls")
    distinct, reused = count_distinct_calls(folder)
    return {
        "points": [summary.to_dict() for summary in summaries],
        "questions": max(totals.questions),
        "rejected": totals.rejected,
        "max_failed": totals.max_failed,
        "logical_llm_calls": logical,
        "physical_llm_calls": logical - total("llm_calls_shared"),
        "distinct_call_keys": distinct,
        "reused_llm_calls": reused,
        "physical_kg_queries": total("kg_queries"),
        **{name: getattr(totals, name) for name in TIMES},
        "resumed": totals.is_resumed,
        "complete": not any(summary.not_run for summary in summaries),
        "models": language_models(folder.require_run()),
        "answered_as": answering_models(folder),
        **_repeated(folder),
        **_older_replies(folder, summaries),
    }


def _repeated(folder: RunFolder) -> dict[str, int]:
    # One row for each question: a sweep has as many as configurations, each with the text of the question.
    parts = (rows.unique(["dataset", "question_id"]) for rows in read_shards(folder, REPEATED_COLUMNS))
    return {"repeated_questions": count_repeated(pl.concat(parts))}


def _older_replies(folder: RunFolder, summaries: Sequence[ConfigurationSummary]) -> dict[str, int]:
    """Return how many questions a simulated model answered from older gold answers; nothing for other models."""
    is_simulated = any(summary.from_gold for summary in summaries)
    return {"older_replies": count_older_replies(folder)} if is_simulated else {}
