"""Reads the configurations of runs, and groups those that answered the same questions into blocks."""

from __future__ import annotations

import hashlib
import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, fields
from functools import cached_property
from itertools import chain
from typing import Any

import numpy as np
import numpy.typing as npt
import polars as pl

from pipeline import config
from pipeline.analysis.paired import GOLD_DIGEST, other_gold
from pipeline.analysis.runs import read_summaries
from pipeline.analysis.score_notes import score_notes
from pipeline.analysis.seeds import seed_groups
from pipeline.analysis.unreadable_roles import often_unreadable
from pipeline.datasets.selection import Selection
from pipeline.engine.retry_advice import can_retry, retry_refusals
from pipeline.errors import UserError
from pipeline.evaluation.config import ScoringConfig
from pipeline.evaluation.configuration_summary import SECONDS, STANDARD_SCORES, ConfigurationSummary, known_tokens
from pipeline.evaluation.paper_metrics import METRICS_OF_METHOD, paper_metrics_of
from pipeline.evaluation.question_groups import SOURCE
from pipeline.evaluation.simulated import takes_time
from pipeline.evaluation.statistics import Estimate, Values, bootstrap_means
from pipeline.grouping import grouped
from pipeline.kg.fingerprint import may_be_same_graph
from pipeline.report.details import TRACE_COLUMNS, Details, Tally
from pipeline.traces.folder import RunFolder
from pipeline.traces.reader import FailedRows, RoleReplies, count_errors, read_shards
from pipeline.traces.run_file import code_of
from pipeline.traces.shard_file import results_digest
from pipeline.traces.storage import StoragePath

_STANDARD = (*STANDARD_SCORES, "exact_match", "rouge_l", "grbench_em", "grbench_f1")
_PAPERS = tuple(dict.fromkeys(chain(*METRICS_OF_METHOD.values())))
CHARTED = tuple(dict.fromkeys((*_STANDARD, *_PAPERS)))
"""The scores that the page offers, if the configurations have them and the methods' papers use them."""
Group = tuple[str, str | None, str | None]
"""Method, label, and the model if it is a language model. Configurations of one group have the same colour."""

_IRRELEVANT_CHOICES = {"engine"}
"""Configuration groups whose choice does not affect answers."""


@dataclass(frozen=True, slots=True)
class RunInfo:
    """Facts about one run folder."""

    name: str
    path: StoragePath
    facts: Mapping[str, Any]
    """`run.yaml` without `points` and `served`, with the seeds of all configurations."""
    totals: Mapping[str, Any] | None
    """`summary.json` without `points`; None while the run is in progress."""
    evaluation: ScoringConfig
    score_notes: Sequence[str] = ()
    """What its scores rest on, for the reader of the page."""
    unreadable: Sequence[RoleReplies] = ()
    """The roles of its configurations whose replies could often not be read."""
    errors: Sequence[FailedRows] = ()
    """The errors of its failed questions."""
    counts: Sequence[tuple[int, int]] = ()
    """The failed and the answered questions of each configuration, also of those in other blocks."""
    search: RunFolder | None = None
    """The search that has chosen later batches by its scores, if questions failed."""
    digest: str = ""
    """The digest of its shards, by which it is known whether a page shows other results than there are now."""


@dataclass(frozen=True)
class Configuration:
    """One configuration of a run."""

    run: RunInfo
    summary: ConfigurationSummary
    family: str
    """The choice of `method=`, which presets of one method share."""
    parameters: Mapping[str, Any]
    """What affects its answers: the choices of configuration groups, and all keys by dotted name."""
    resolved: Mapping[str, Any]
    """The composed configuration, as in `run.yaml`."""
    served: Mapping[str, Any]
    """`model`, `label`, `graph` and `roles`, as in `run.yaml`."""
    code: Mapping[str, str | None]
    """Digests of its sources, as `code_of` returns them."""
    rows: pl.DataFrame
    """`question_id`, `question` (a hash of id and text), `gold_digest`, `source` and the charted scores, sorted by
    `question`."""
    details: Details = field(default_factory=Details)

    @property
    def hits_at_1(self) -> float:
        """The score by which configurations are ranked; -1 if no question has it."""
        score = self.summary.scores.get("hits_at_1")
        return score.mean if score else -1.0

    @cached_property
    def questions_digest(self) -> bytes:
        """A digest of the answered questions."""
        return hashlib.blake2b(self.rows["question"].to_numpy().tobytes()).digest()

    @cached_property
    def scores_digest(self) -> bytes:
        """A digest of the charted scores of every answered question."""
        return hashlib.blake2b(self.questions_digest + self.rows.select(CHARTED).to_numpy().tobytes()).digest()

    @property
    def question_selection(self) -> str:
        """The parameters that select the questions."""
        asked = [self.resolved["run"].get(each.name) for each in fields(Selection)]
        return config.canonical([asked, {key: of for key, of in self.parameters.items() if key.startswith("dataset.")}])

    @property
    def models(self) -> str:
        """The language models that answered, as a text; empty for a simulated model."""
        answered = [self.served["model"], self.served.get("roles") or {}]
        return "" if self.summary.simulated else config.canonical(answered)

    @property
    def group(self) -> Group:
        """The group that determines colour and shape."""
        label = self.summary.label
        return self.family, label, None if self.summary.simulated else self.served["model"]

    def cost(self, counter: str) -> float | None:
        """Return the total of a counter per answered question; None if it was not counted, or means nothing."""
        if counter == SECONDS and not self.has_seconds:
            return None
        answered, total = self.summary.answered, self.summary.counters.get(counter)
        return None if total is None or not answered else total / answered

    @property
    def has_seconds(self) -> bool:
        """Whether its seconds mean anything."""
        return takes_time(self.summary, self.resolved.get("llm", {}))

    @property
    def cost_key(self) -> tuple[float, float]:
        """A sort key: model calls per question, then tokens per question; infinity if these are not known."""
        calls, tokens = self.cost("llm_calls") or 0.0, self.cost("tokens") or 0.0
        return (calls, known_tokens(calls, tokens))


@dataclass(frozen=True, slots=True)
class ScoreMatrix:
    """One score of every question in every configuration of a block."""

    values: Values
    """Shape (questions, configurations)."""
    sources: npt.NDArray[Any] | None
    """The source of each question; None if no two questions share a source."""
    evaluation: ScoringConfig

    def means(self, columns: npt.ArrayLike) -> list[Estimate]:
        """Return the mean of each column, shape (questions, columns), with an interval over the questions."""
        return bootstrap_means(columns, clusters=self.sources, **self.evaluation.bootstrap)


@dataclass(frozen=True)
class Block:
    """Configurations of one or several runs with the same questions."""

    configurations: Sequence[Configuration]

    @property
    def runs(self) -> list[RunInfo]:
        """The runs of its configurations."""
        return list({id(each.run): each.run for each in self.configurations}.values())

    @property
    def evaluation(self) -> ScoringConfig:
        """How its configurations are scored and compared."""
        return self.configurations[0].run.evaluation

    @property
    def rescored(self) -> bool:
        """Whether a summary's scores differ from those in the trace rows, which `kgqa score` does not change."""
        return any(
            not math.isclose(
                np.nanmean(configuration.rows[name].to_numpy()), configuration.summary.scores[name].mean, abs_tol=1e-4
            )
            for configuration in self.configurations
            for name in self.charted
            if name in configuration.summary.scores
        )

    @property
    def has_one_graph(self) -> bool:
        """Whether all configurations used one graph, as far as its fingerprints can tell."""
        first, *others = (each.served["graph"] for each in self.configurations)
        return all(may_be_same_graph(first, other) for other in others)

    @property
    def most_complete(self) -> Configuration:
        """The first of the configurations that answered the most questions."""
        return max(self.configurations, key=lambda configuration: configuration.rows.height)

    @cached_property
    def comparable(self) -> list[int]:
        """Indices of the configurations that answered all questions; only these are compared."""
        digest = self.most_complete.questions_digest
        return [
            index for index, configuration in enumerate(self.configurations) if configuration.questions_digest == digest
        ]

    def draws(self, score: str) -> list[list[int]]:
        """Return the comparable configurations that differ in `run.seed` alone, and in a score, by index."""
        comparable = [self.configurations[index] for index in self.comparable]
        groups = seed_groups([each.resolved for each in comparable], [each.served for each in comparable])
        indices = [[self.comparable[position] for position in group] for group in groups]
        return [each for each in indices if len({self.configurations[at].summary.score(score) for at in each}) > 1]

    @cached_property
    def charted(self) -> list[str]:
        """The scores that all comparable configurations have, in the order of the page."""
        families = {configuration.family for configuration in self.configurations}
        scores = {*_STANDARD, *chain(*map(paper_metrics_of, families))}
        summaries = [self.configurations[index].summary for index in self.comparable]
        return [name for name in CHARTED if name in scores and all(name in each.scores for each in summaries)]

    def scores(self, score: str) -> ScoreMatrix:
        """Return a charted score of each question; NaN for configurations that are not comparable.

        Questions without this score in some configuration (because they have no gold answer) are excluded.
        """
        columns = np.full((self.most_complete.rows.height, len(self.configurations)), np.nan)
        for index in self.comparable:
            columns[:, index] = self.configurations[index].rows[score].to_numpy()
        scored: npt.NDArray[np.bool_] = ~np.isnan(columns[:, self.comparable]).any(axis=1)
        sources = self.most_complete.rows["source"].to_numpy()[scored]
        return ScoreMatrix(columns[scored], sources if 1 < len(set(sources)) < len(sources) else None, self.evaluation)

    @property
    def shares_sources(self) -> bool:
        """Whether questions share a source, so that they are not independent."""
        sources = self.most_complete.rows["source"]
        return 1 < sources.n_unique() < len(sources)


def read_blocks(folders: Sequence[StoragePath]) -> list[Block]:
    """Read the configurations of runs, finished or in progress.

    Raises UserError for a folder that is not a run, or was written by another version, and for runs whose questions are
    the same but have other gold answers.
    """
    blocks: dict[tuple[str, bytes], list[Configuration]] = {}
    for folder in folders:
        by_selection = grouped(_read_configurations(RunFolder(folder)), lambda each: each.question_selection)
        for configurations in by_selection.values():
            first = Block(configurations).most_complete
            blocks.setdefault((first.summary.dataset, first.questions_digest), []).extend(configurations)
    for configurations in blocks.values():
        _refuse_other_gold(configurations)
    return [Block(configurations) for configurations in blocks.values()]


def can_retry_any(configurations: Sequence[Configuration]) -> bool:
    """Whether `run.retry_failed=true` is taken for one of the runs with failed questions."""
    return any(can_retry(*of_run[1:]) for of_run in _to_retry(configurations))


def retry_refusals_of(configurations: Sequence[Configuration]) -> list[str]:
    """Return when `run.retry_failed=true` is refused for the runs with failed questions, and what to do then."""
    return [refusal for of_run in _to_retry(configurations) for refusal in retry_refusals(*of_run)]


def _to_retry(
    configurations: Sequence[Configuration],
) -> Iterator[
    tuple[StoragePath, list[Mapping[str, Any]], Mapping[str, Any], Sequence[tuple[int, int]], RunFolder | None]
]:
    """Yield the arguments of `retry_refusals` for each run with failed questions."""
    for path, of_run in grouped(configurations, lambda each: each.run.path).items():
        run = of_run[0].run
        if any(each.summary.failed for each in of_run):
            counts = run.counts or [(each.summary.failed, each.summary.answered) for each in of_run]
            yield path, [each.resolved for each in of_run], run.facts, counts, run.search


def _refuse_other_gold(configurations: Sequence[Configuration]) -> None:
    """Raise UserError if the runs of a block were scored by other gold answers: their scores mean other things."""
    first, *others = {each.run.path: each for each in configurations}.values()
    for other in others:
        if reason := other_gold(first.rows, other.rows):
            raise UserError(f"{first.run.path} and {other.run.path} cannot be shown on one page: {reason}")


def _read_configurations(folder: RunFolder) -> list[Configuration]:
    run = folder.require_run()
    summaries = read_summaries(folder, run)
    saved = folder.read_summary()
    seeds = dict.fromkeys(str(point["config"]["run"].get("seed")) for point in run["points"])
    facts = {key: value for key, value in run.items() if key not in {"points", "served"}}
    info = RunInfo(
        name=folder.path.resolve().name,
        path=folder.path,
        facts={**facts, "seed": ", ".join(seeds)},
        totals=saved and {key: value for key, value in saved.items() if key != "points"},
        evaluation=config.build_plain(ScoringConfig, "evaluation", run["points"][0]["config"]),
        score_notes=score_notes(folder),
        unreadable=often_unreadable(folder, summaries),
        errors=count_errors(folder) if any(each.failed for each in summaries) else (),
        counts=[(each.failed, each.answered) for each in summaries],
        search=folder.deciding_search if any(each.failed for each in summaries) else None,
        digest=results_digest(folder.traces),
    )
    rows, details = _read_traces(folder, len(run["points"]))
    if missing := [each.number for each in summaries if each.number not in rows]:
        raise UserError(f"configuration {missing[0]} of {folder.path} has no finished question")
    return [
        Configuration(
            run=info,
            summary=summary,
            family=resolved["choices"]["method"],
            parameters=_parameters(resolved),
            resolved=resolved,
            served=run["served"][summary.number],
            code=code_of(run, summary.number),
            rows=rows[summary.number],
            details=details[summary.number],
        )
        for summary in summaries
        for resolved in [run["points"][summary.number]["config"]]
    ]


def _read_traces(folder: RunFolder, configurations: int) -> tuple[dict[int, pl.DataFrame], dict[int, Details]]:
    """Read the traces once: the questions and scores of each configuration, and its details.

    The questions are in an order that does not depend on the run.
    """
    keys = {
        "question_id": pl.col("question_id"),
        "question": pl.concat_str("question_id", "question", separator="\0").hash(),
        "source": pl.coalesce(SOURCE, "question_id"),
    }
    columns = list(dict.fromkeys(("point", "question_id", "question", "gold", "meta", *CHARTED, *TRACE_COLUMNS)))
    tally, parts = Tally(), []
    for shard in read_shards(folder, columns):
        tally.add(shard)
        parts.append(shard.select("point", GOLD_DIGEST, *CHARTED, **keys))
    of_points = pl.concat(parts).sort("question").partition_by("point", as_dict=True, include_key=False)
    return {int(number): part for (number,), part in of_points.items()}, tally.details(configurations)


def _parameters(resolved: Mapping[str, Any]) -> dict[str, Any]:
    choices = {group: choice for group, choice in resolved["choices"].items() if group not in _IRRELEVANT_CHOICES}
    return {**choices, **config.deciding_keys(resolved)}
