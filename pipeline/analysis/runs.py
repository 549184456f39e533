"""Opens a run as dataframes: its configurations, questions, steps and model calls."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any, Self

import polars as pl
from pydantic import ValidationError

from pipeline import config
from pipeline.analysis import effects, losses
from pipeline.analysis.compare import find
from pipeline.analysis.paired import incomparable, read_configurations
from pipeline.analysis.question_trace import QuestionTrace, build_question_trace
from pipeline.engine.requested import requested
from pipeline.errors import UserError, first_defect
from pipeline.evaluation.config import ScoringConfig
from pipeline.evaluation.configuration_summary import (
    SUMMARY_COLUMNS,
    ConfigurationSummary,
    aggregate,
    group_equal_rows,
)
from pipeline.evaluation.rescore import SCORES
from pipeline.suggestions import did_you_mean
from pipeline.text import kgqa
from pipeline.traces.folder import RunFolder
from pipeline.traces.reader import read_row, read_shards, scan_shards
from pipeline.traces.storage import StoragePath, storage_path

_TYPES = pl.Schema(
    {
        "configuration": pl.Int32(),
        **dict.fromkeys(("label", "retriever", "model", "graph"), pl.String()),
        **dict.fromkeys((f"{name}{end}" for name in SCORES for end in ("", "_low", "_high")), pl.Float64()),
        "departures": pl.List(pl.String()),
        "overrides": pl.List(pl.String()),
    }
)
"""The types of columns that values alone do not tell."""


def open_run(path: str | StoragePath | Run) -> Run:
    """Open a run folder, such as `runs/x` or `s3://bucket/runs/x`. The run may still be in progress.

    Given a run that is open, it opens the folder again and also reads the shards that were finished since. Raises
    UserError if the folder is not a run, or has no finished shard yet.
    """
    folder = path.folder if isinstance(path, Run) else RunFolder(storage_path(path))
    if folder.path.name == "run.yaml":
        raise UserError(f"{folder.path} is a file of a run: name its folder, {folder.path.parent}")
    return Run.of_shards(folder, folder.require_run(), folder.require_finished())


@dataclass(frozen=True)
class Run:
    """A run, read from its folder; use `open_run` to get one. A run that goes on afterwards is opened again.

    The dataframes are lazy: filter and select before `collect()`, so that only the needed columns are read. They show
    the shards that were finished when the run was opened. Traces in an object store are downloaded on first use.
    """

    folder: RunFolder
    metadata: Mapping[str, Any] = field(repr=False)
    """The contents of `run.yaml`."""
    shards: Sequence[StoragePath] = field(repr=False)
    """The finished shards in `traces/`."""
    _numbers: Sequence[int] = field(repr=False)
    """The numbers of the shards."""
    _versions: Sequence[tuple[int, int] | None] = field(repr=False)
    """The version of each shard file when the run was opened."""

    @classmethod
    def of_shards(cls, folder: RunFolder, metadata: Mapping[str, Any], numbers: Sequence[int]) -> Self:
        """Return the run of these finished shards; `metadata` is the contents of its `run.yaml`."""
        shards = tuple(map(folder.shard, numbers))
        return cls(folder, metadata, shards, tuple(numbers), tuple(map(_version, shards)))

    @property
    def _indices(self) -> Sequence[int]:
        """The numbers of the shards. Raises UserError as `_refuse_other_shards` does."""
        self._refuse_other_shards()
        return self._numbers

    def _refuse_other_shards(self) -> None:
        """Raise UserError if a shard has been written again since the run was opened: no figures of both are mixed."""
        if tuple(map(_version, self.shards)) != self._versions:
            raise UserError(f"{self.folder.path} has changed since it was opened: open it again with open_run")

    def __str__(self) -> str:
        return (
            f"{self.folder.path}: configurations: {len(self.metadata['points'])}, finished shards: {len(self.shards)}"
        )

    @property
    def questions(self) -> pl.LazyFrame:
        """One row per configuration and question.

        Columns: `configuration` (its number), `question_id`, `dataset`, `split`, `method`, `status`, `error`,
        `question`, `type`, `level`, `hops`, `meta` (JSON), `answers`, `answer_ids`, `initial_answers`,
        `initial_answer_ids`, `raw_answer`, `gold`, `gold_ids`, `gold_aliases`, every score (`hits_at_1`, `f1`, …) and
        every counter (`llm_calls`, `prompt_tokens`, `kg_queries`, `wall_s`, …), and the other columns of a trace row
        (docs/reference/traces.md) without `evidence`, `steps` and `texts`.
        """
        return self._traces.drop("evidence", "steps", "texts")

    @property
    def steps(self) -> pl.LazyFrame:
        """One row per step of a question, in the order in which the steps began.

        Keys: `configuration`, `question_id`, `step`. All steps: `kind` (`llm`, `kg` or `decision`), `role`, `start_s`,
        `duration_s`, `own_s`, `parent`, `shared`, `error`. Model calls: `key`, `template`, `inputs` (JSON), `sampling`
        (JSON), `completion`, `finish_reason`, `prompt_tokens`, `completion_tokens`, `probabilities` (JSON), `logprobs`
        (JSON), `candidates`.
        Graph lookups: `query`, `rows`, `queries`, `endpoint`, `truncated`. Decisions: `payload` (JSON).
        """
        rows = self._traces.select("configuration", "question_id", "steps", "texts").explode("steps", "texts")
        return rows.drop_nulls("steps").unnest("steps", "texts").rename({"index": "step"})

    @property
    def calls(self) -> pl.LazyFrame:
        """The rows of `steps` with `kind` `llm`, without the columns of lookups and decisions."""
        return self.steps.filter(pl.col("kind") == "llm").drop(
            "kind", "query", "rows", "queries", "endpoint", "truncated", "payload"
        )

    @cached_property
    def configurations(self) -> pl.LazyFrame:
        """One row per configuration, as in `summary.json`, or computed from the finished shards if there is none.

        Columns: `configuration` (its number), `method`, `dataset`, `label` (what answered in place of a language model,
        or `approximate choices`; else null), `model`, `graph`, `overrides`, `retriever`, `departures`, `questions`,
        `not_run`, `failed`, `empty_gold`; per score its mean (`f1`) and interval (`f1_low`, `f1_high`), null if no
        question has the score; and the total of every counter.
        """
        self._refuse_other_shards()
        summaries = read_summaries(self.folder, self.metadata)
        rows = [_configuration_row(summary, self.metadata["served"][summary.number]) for summary in summaries]
        return pl.LazyFrame(rows, schema_overrides=_TYPES, infer_schema_length=None)

    def question(self, id: str, configuration: int = 0) -> QuestionTrace:
        """Read a question with all of its steps and prompts; `print` shows it as text.

        Raises UserError if the run has no such configuration, or no such finished question.
        """
        self.require(configuration)
        return build_question_trace(self._row(id, configuration), self.folder)

    def require(self, configuration: int) -> None:
        """Raise UserError if the run has no configuration of this number."""
        count = len(self.metadata["points"])
        if configuration not in range(count):
            raise UserError(
                f"{self.folder.path} has no configuration {configuration!r}: its highest number is {count - 1}"
            )

    def _row(self, id: str, configuration: int) -> dict[str, Any]:
        if not isinstance(id, str):
            raise UserError(f"{id!r} should be the id of a question: a text, as in the column question_id")
        row = read_row(self.folder, self._indices, configuration, id)
        if row is None:
            of_configuration = self._traces.filter(pl.col("configuration") == configuration)
            ids = of_configuration.select("question_id").collect()["question_id"].sort()
            others = self._traces.filter(pl.col("question_id") == id).select("configuration").unique().collect()
            if len(others):
                numbers = ", ".join(map(str, others["configuration"].sort()))
                raise UserError(
                    f"configuration {configuration} of {self.folder.path} has no finished question '{id}'. "
                    f"Configurations that have it: {numbers}"
                )
            listing = f"{kgqa('view', self.folder.path)} lists all."
            first = "".join(f" The first finished question is '{each}'; {listing}" for each in ids[:1])
            raise UserError(
                f"configuration {configuration} of {self.folder.path} has no finished question '{id}'."
                f"{did_you_mean(id, ids)}{first}"
            )
        return {"configuration": row.pop("point"), **row}

    # Why questions failed

    def losses(self) -> pl.LazyFrame:
        """One row per question and configuration that has gold answers: where a wrong one lost its answer.

        Columns: `configuration`, `question_id`, `question`, `method`, `dataset`, `type`, `level`, `hops`, `query_type`,
        `right`, and for wrong questions `stage`, `reason`, `hop`, `step`, `role` (of that step) and `departure`, the
        gold path up to where it was left. `pipeline.analysis.losses` explains stages and reasons; its `loss_shares` and
        `clusters` count them.
        """
        return losses.scan_losses(self.folder, self._indices)

    def flips(
        self, other: str | StoragePath | Run, configuration: int = 0, other_configuration: int = 0
    ) -> pl.LazyFrame:
        """One row per question that only one of two configurations answers right, with where the wrong one lost it.

        `other` is an open run or a run folder. Columns: `question_id`, `type`, `hops`, `gained` (right in `other`
        only), `stage`, `reason`, `role`, `departure`, `step`. Raises UserError if the two cannot be compared, as
        `kgqa compare` does, and like `question` and `open_run`.
        """
        other = other if isinstance(other, Run) else open_run(other)
        self.require(configuration)
        other.require(other_configuration)
        own = read_configurations([self.folder.path], "hits_at_1")
        others = own if other.folder == self.folder else read_configurations([other.folder.path], "hits_at_1")
        first = find(own, "configuration", str(configuration))
        second = find(others, "other_configuration", str(other_configuration))
        if difference := incomparable(first, second):
            raise UserError(f"{self.folder.path} and {other.folder.path} cannot be compared: {difference}")
        before = self.losses().filter(pl.col("configuration") == configuration)
        return losses.flips(before, other.losses().filter(pl.col("configuration") == other_configuration))

    def critical_path(self, id: str, configuration: int = 0) -> pl.DataFrame:
        """Return the steps that a question waited for, one after the other: their `own_s` add up to `critical_s`.

        Columns: `step`, `kind`, `role`, `start_s`, `own_s`, `shared`. Raises UserError like `question`.
        """
        self.require(configuration)
        row = self._row(id, configuration)
        return losses.critical_path(row["steps"], row["critical_steps"])

    def role_costs(self) -> pl.LazyFrame:
        """Calls, tokens, seconds and the share of parse failures of each configuration and role."""
        return effects.role_costs(self.steps)

    def slow_lookups(self, count: int = 20) -> pl.LazyFrame:
        """Return the graph lookups that took longest, with their question and their arguments.

        Raises UserError if `count` is no whole number from 1 on.
        """
        _require_count("count", count)
        return effects.slow_lookups(self.steps, count)

    def repetition_effects(self) -> pl.LazyFrame:
        """Hits@1 and the rates of correction and damage by the number of edits, refinements or reflections."""
        return effects.repetition_effects(self.questions, self.steps)

    def calibration(self, bins: int = 10) -> pl.LazyFrame:
        """Return Hits@1 by ArG's leaf score, in `bins` ranges, and by the confidence of PARoG's first tentative answer.

        That is the answer to its first sub-goal from memory: the confidences of later sub-goals are left out.

        Raises UserError if `bins` is no whole number from 1 on.
        """
        _require_count("bins", bins)
        return effects.calibration(self.questions, self.steps, bins)

    @property
    def _traces(self) -> pl.LazyFrame:
        return scan_shards(self.folder, self._indices).rename({"point": "configuration"})


def _require_count(name: str, value: int) -> None:
    if isinstance(value, bool) or not isinstance(value, int) or value < 1:
        raise UserError(f"{name}={value!r} should be a whole number from 1 on")


def _version(shard: StoragePath) -> tuple[int, int] | None:
    """Return what differs between two files that were written under one name; None without such a file.

    It is None for all files in an object store, which would have to be asked for each of them.
    """
    if not isinstance(shard, Path):
        return None
    try:
        status = shard.stat()
    except FileNotFoundError:
        return None
    return status.st_mtime_ns, status.st_size


def read_summaries(folder: RunFolder, metadata: Mapping[str, Any]) -> list[ConfigurationSummary]:
    """Read the configurations of `summary.json`; if there is none yet, compute them from the finished shards.

    `metadata` is the contents of `run.yaml`. Raises UserError if `summary.json` cannot be read.
    """
    saved = folder.read_summary()
    try:
        if saved is not None:
            return _checked([ConfigurationSummary.from_dict(entry) for entry in saved["points"]], folder, metadata)
    except ValidationError as error:
        raise folder.damaged_summary(first_defect(error)) from None
    except (TypeError, ValueError, AttributeError):
        raise folder.damaged_summary("a value has another type") from None
    except KeyError as missing:
        raise UserError(
            f"{folder.path}/summary.json was written by another version of this project, without {missing}: "
            f"{kgqa('score', folder.path)} writes it again"
        ) from None
    infos = {
        number: requested(entry, served)
        for number, (entry, served) in enumerate(zip(metadata["points"], metadata["served"], strict=True))
    }
    scoring = config.build_plain(ScoringConfig, "evaluation", metadata["points"][0]["config"])
    return aggregate(group_equal_rows(read_shards(folder, SUMMARY_COLUMNS)), configurations=infos, scoring=scoring)


def _checked(
    summaries: list[ConfigurationSummary], folder: RunFolder, metadata: Mapping[str, Any]
) -> list[ConfigurationSummary]:
    """Return the summaries. Raises UserError if one is not of a configuration in `run.yaml`."""
    if {each.number for each in summaries} - set(range(len(metadata["points"]))):
        raise folder.damaged_summary("it has other configurations than run.yaml")
    return summaries


def _configuration_row(summary: ConfigurationSummary, served: Mapping[str, Any]) -> dict[str, Any]:
    scores: dict[str, float | None] = {}
    for name in SCORES:
        score = summary.scores.get(name)
        mean, low, high = (score.mean, score.low, score.high) if score else (None, None, None)
        scores |= {name: mean, f"{name}_low": low, f"{name}_high": high}
    return {
        "configuration": summary.number,
        "method": summary.method,
        "dataset": summary.dataset,
        "label": summary.label,
        "retriever": summary.retriever,
        "departures": list(summary.departures),
        "model": served["model"],
        "graph": served["graph"],
        "overrides": list(summary.overrides),
        "questions": summary.questions,
        "not_run": summary.not_run,
        "failed": summary.failed,
        "empty_gold": summary.empty_gold,
        **scores,
        **summary.counters,
    }
