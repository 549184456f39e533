"""Reads configurations of finished runs, and pairs their scores on the same questions."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
import numpy.typing as npt
import orjson
import polars as pl

from pipeline import config
from pipeline.errors import UserError
from pipeline.evaluation.config import ScoringConfig
from pipeline.evaluation.simulated import answered_by
from pipeline.evaluation.statistics import Difference, mcnemar, paired_bootstrap
from pipeline.kg.fingerprint import may_be_same_graph
from pipeline.llm.interface import is_closed_book, simulated
from pipeline.traces.folder import RunFolder
from pipeline.traces.reader import read_shards
from pipeline.traces.run_file import code_of
from pipeline.traces.storage import StoragePath

_COLUMNS = (
    *("question", "gold", "dataset", "split", "method", "status"),
    *("llm_calls", "llm_calls_shared", "prompt_tokens", "completion_tokens", "kg_lookups", "wall_s", "at_limit"),
)
GOLD_DIGEST = pl.col("gold").list.sort().list.join("\0").hash().alias("gold_digest")
"""A digest of the gold answers of a question."""
_SCORING_KEYS = ("strip_accents", "empty_gold")
"""Keys of `evaluation` that change scores; the others change only the intervals."""
_NAME_OTHERS = "name runs over the same questions and the same graph"
_SOURCE = "source"
"""The field of `meta` in which CWQ stores the WebQSP question that a question was built from."""


@dataclass(frozen=True, slots=True)
class Clusters:
    """Groups of questions that share a source, and so are not independent."""

    field: str
    """The field of the questions' `meta` that names the source."""
    labels: pl.DataFrame
    """`question_id` and `source`, a number per source. A question without source is a source of its own."""

    def of_pair(self, pair: pl.DataFrame) -> npt.NDArray[np.uint32] | None:
        """Return the source of each question of `pair_scores`; None if no two questions share a source.

        Raises UserError if all questions share one source.
        """
        sources = pair.join(self.labels, on="question_id", maintain_order="left")["source"]
        count = sources.n_unique()
        if count == 1 < len(sources):
            raise UserError(
                f"all {len(sources)} common questions have the same {self.field}, which is too few sources for a "
                "test: compare runs over more questions, or use cluster=none to ignore sources"
            )
        return sources.to_numpy() if count < len(sources) else None


@dataclass(frozen=True, eq=False)
class RunConfiguration:
    """One configuration of a run, with the scores of its finished questions."""

    name: str
    """The number in the run, prefixed with the run's name if there are several runs: `3`, `srp:3`."""
    folder: RunFolder
    number: int
    overrides: tuple[str, ...]
    config: Mapping[str, Any]
    """The resolved configuration."""
    served: Mapping[str, Any]
    """The model and the graph of the run, as in `run.yaml`."""
    code: Mapping[str, str | None]
    """Digests of its sources, as `code_of` returns them."""
    rows: pl.DataFrame
    """One row per question: `question_id`, `_COLUMNS` and the requested score."""

    @property
    def method(self) -> str:
        """The method's name in tables."""
        return str(self.rows["method"][0])

    @property
    def dataset(self) -> str:
        """The dataset's name in tables."""
        return str(self.rows["dataset"][0])

    @property
    def label(self) -> str | None:
        """Printed in every table if no language model answered; otherwise None."""
        label: str | None = self.served["label"]
        return label

    @property
    def closed_book(self) -> bool:
        """Whether a simulated model replied from the gold answers, and nothing was looked up in the graph."""
        return is_closed_book(self.label, int(self.rows["llm_calls"].sum()), int(self.rows["kg_lookups"].sum()))

    @property
    def failed(self) -> int:
        """The number of its finished questions that failed. They count as wrong."""
        return int((self.rows["status"] == "failed").sum())

    def limited_share(self, questions: pl.Series) -> float:
        """Return the share that met a limit, of these questions; older traces do not say which, and count as none."""
        asked = self.rows.filter(pl.col("question_id").is_in(questions.implode()))
        share: float | None = asked.select(pl.col("at_limit").cast(pl.Float64).mean()).item()
        return share or 0.0

    def mean(self, score: str) -> float | None:
        """Return the mean of a score over the finished questions that have it; None if none has."""
        mean: float | None = self.rows.select(pl.col(score).mean()).item()
        return mean

    @property
    def retriever(self) -> str | None:
        """The name of its retriever; None if it has none."""
        return config.retriever(self.config)

    @property
    def departures(self) -> tuple[str, ...]:
        """Where a preset did not run as published."""
        return config.departures(self.config)

    @property
    def answered_by(self) -> str:
        """The model and those of single roles, or what answered in their place."""
        if simulated(self.label):
            return answered_by(self.label)
        roles = (self.served.get("roles") or {}).items()
        return ", ".join([str(self.served["model"]), *(f"{role} by {model}" for role, model in roles)])

    @cached_property
    def parameters(self) -> dict[str, Any]:
        """The choices of configuration groups, and by dotted name all keys that can change answers."""
        return {**self.config.get("choices", {}), **config.deciding_keys(self.config)}

    @property
    def set_keys(self) -> list[str]:
        """The keys that its overrides set, dotted; for the override of a section, all keys of the section."""
        words = set(map(config.key_of, self.overrides))
        known = self.parameters
        sections = tuple(f"{word}." for word in words - known.keys())
        return [key for key in known if key in words or key.startswith(sections)]

    @property
    def scoring(self) -> ScoringConfig:
        """How answers were scored and scores are averaged."""
        return config.build_plain(ScoringConfig, "evaluation", self.config)

    @property
    def conditions(self) -> dict[str, object]:
        """The properties that configurations must have in common to be compared."""
        scoring = {f"evaluation.{key}": self.config["evaluation"].get(key) for key in _SCORING_KEYS}
        return {"graph": self.served["graph"], **scoring}

    @property
    def names(self) -> dict[str, str]:
        """The names of its dataset. Questions may have other names elsewhere, and are compared by ids and texts."""
        return {"dataset": self.dataset, "split": self.rows["split"][0]}

    def to_dict(self) -> dict[str, Any]:
        """Return the identifying fields for JSON output."""
        return {
            "name": self.name,
            "run": str(self.folder.path),
            "point": self.number,
            "method": self.method,
            "label": self.label,
            "retriever": self.retriever,
            "departures": list(self.departures),
            "overrides": list(self.overrides),
            "failed": self.failed,
        }


def read_configurations(runs: Sequence[StoragePath], score: str) -> list[RunConfiguration]:
    """Read the configurations of the runs that have a finished question, in order.

    Raises UserError for a folder that is not a run, or has no finished question.
    """
    folders = list({run.resolve(): RunFolder(run) for run in runs}.values())
    short = [folder.path.resolve().name for folder in folders]
    names = short if len(set(short)) == len(short) else [str(folder.path) for folder in folders]
    prefixes = [""] if len(names) == 1 else [f"{name}:" for name in names]
    return [
        configuration
        for folder, prefix in zip(folders, prefixes, strict=True)
        for configuration in _configurations_of(folder, prefix, score)
    ]


def read_rows(
    folder: RunFolder, columns: Sequence[str], *, questions: Collection[str] | None = None
) -> dict[int, pl.DataFrame]:
    """Read `question_id` and these columns, by configuration number, for all finished questions or some of them.

    Raises UserError if the run has no finished shard, or a shard lacks a column.
    """
    shards = read_shards(folder, ["point", "question_id", *columns])
    if questions is not None:
        shards = (rows.filter(pl.col("question_id").is_in(questions)) for rows in shards)
    parts = pl.concat(shards).partition_by("point", as_dict=True, include_key=False)
    return {number: rows for (number,), rows in parts.items()}


WON, LOST = pl.col("other") > pl.col("base"), pl.col("other") < pl.col("base")
"""Whether a row of `pair_scores` has a higher, or a lower, score than in the base."""


def pair_scores(base: pl.DataFrame, other: pl.DataFrame, score: str) -> pl.DataFrame:
    """Join the questions that both configurations score: `question_id`, `base`, `other`, sorted by id."""
    base_scores, other_scores = base.select("question_id", base=score), other.select("question_id", other=score)
    return base_scores.join(other_scores, on="question_id").drop_nulls().sort("question_id")


def difference(pair: pl.DataFrame, clusters: Clusters | None, scoring: ScoringConfig) -> Difference:
    """Return the mean of other minus base in `pair_scores`, with an interval clustered by source."""
    before, after = (pair[name].to_numpy() for name in ("base", "other"))
    labels = None if clusters is None else clusters.of_pair(pair)
    return paired_bootstrap(after, before, clusters=labels, **scoring.bootstrap)


def exact_p(pair: pl.DataFrame, clusters: Clusters | None) -> float | None:
    """Return the p-value of McNemar's test of `pair_scores`; None for scores other than 0 and 1."""
    before, after = (pair[name].to_numpy() for name in ("base", "other"))
    if not np.isin([before, after], [0, 1]).all():
        return None
    return mcnemar(after, before, clusters=None if clusters is None else clusters.of_pair(pair))


def question_clusters(rows: pl.DataFrame, field: str = "auto") -> Clusters | None:
    """Group questions, given as `question_id` and `meta`, by a field of `meta`; return None without groups.

    `none` means no field. `auto` means CWQ's field, if the questions have it. Raises UserError for a field that no
    question has.
    """
    if field == "none":
        return None
    metas: list[dict[str, Any]] = [orjson.loads(meta) for meta in rows["meta"]]
    name = _SOURCE if field == "auto" else field
    sources = [None if meta.get(name) is None else orjson.dumps(meta[name]).decode() for meta in metas]
    if not any(sources):
        if field == "auto":
            return None
        known = ", ".join(sorted({key for meta in metas for key in meta})) or "no field"
        raise UserError(f"cluster={field}: no question has this field in `meta`, which has {known}")
    own = ("own " + rows["question_id"]).to_list()
    labels = pl.Series("source", [source or id for source, id in zip(sources, own, strict=True)])
    return Clusters(name, pl.DataFrame([rows["question_id"], labels.cast(pl.Categorical).to_physical()]))


def incomparable(base: RunConfiguration, other: RunConfiguration) -> str | None:
    """Say why two configurations cannot be compared, and what to do; None if questions, graph and scoring agree."""
    expected, actual = base.conditions, other.conditions
    same_graph = may_be_same_graph(base.served["graph"], other.served["graph"])
    differing = [key for key in expected if expected[key] != actual[key] and not (key == "graph" and same_graph)]
    if differing:
        reason = "; ".join(f"{key} is {expected[key]} and {actual[key]}" for key in differing)
        only_scoring = all(key.startswith("evaluation.") for key in differing)
        reuse = config.shell_override("run.reuse", [str(other.folder.path)])
        again = f"run one again with the other value and {reuse}, which needs no new calls"
        return f"{reason} ({again if only_scoring else _NAME_OTHERS})"
    common = base.rows.join(other.rows, on="question_id", suffix="_other")
    names = "".join(
        f"{key} is {name} and {other.names[key]}; " for key, name in base.names.items() if name != other.names[key]
    )
    if common.is_empty():
        return f"{names}they have no question in common ({_NAME_OTHERS})"
    if (changed := common.filter(pl.col("question") != pl.col("question_other"))).height:
        return f"{names}question {changed['question_id'].sort()[0]} has a different text in each ({_NAME_OTHERS})"
    base_gold, gold = (each.rows.select("question_id", GOLD_DIGEST) for each in (base, other))
    return other_gold(base_gold, gold)


def other_gold(rows: pl.DataFrame, others: pl.DataFrame) -> str | None:
    """Name a question that has other gold answers in two runs; None if there is none.

    Both frames have `question_id` and the column of `GOLD_DIGEST`.
    """
    common = rows.join(others, on="question_id", suffix="_other")
    changed = common.filter(pl.col("gold_digest") != pl.col("gold_digest_other"))["question_id"]
    if changed.is_empty():
        return None
    return (
        f"question {changed.sort()[0]} has other gold answers in each (if both ask the same file, run the commands of "
        "both again: rows are scored by the gold answers of the dataset as it is now, without a call)"
    )


def same_questions(base: RunConfiguration, other: RunConfiguration) -> bool:
    """Return whether both have answered the same questions."""
    common = base.rows.join(other.rows, on="question_id", how="semi").height
    return common == base.rows.height == other.rows.height


def _configurations_of(folder: RunFolder, prefix: str, score: str) -> list[RunConfiguration]:
    run = folder.require_run()
    rows = read_rows(folder, [*_COLUMNS, score])
    return [
        RunConfiguration(
            name=f"{prefix}{number}",
            folder=folder,
            number=number,
            overrides=tuple(saved["overrides"]),
            config=saved["config"],
            served=served,
            code=code_of(run, number),
            rows=rows[number],
        )
        for number, (saved, served) in enumerate(zip(run["points"], run["served"], strict=True))
        if number in rows
    ]
