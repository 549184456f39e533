"""Points of finished runs, and pairs of them over the same questions."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
import orjson
import polars as pl

from pipeline import config
from pipeline.errors import UserError
from pipeline.evaluation.settings import Evaluation
from pipeline.evaluation.statistics import Difference, paired_bootstrap
from pipeline.kg.fingerprint import agree
from pipeline.traces.folder import RunFolder
from pipeline.traces.place import Place
from pipeline.traces.reader import read_shards

_COLUMNS = ("question", "dataset", "split", "method", "llm_calls", "prompt_tokens", "completion_tokens", "wall_s")
_SCORING = ("strip_accents", "empty_gold")
"""Settings of the evaluation that decide what a row scores."""


_SOURCE = "source"
"""The field of `meta` in which CWQ names the WebQSP question that a question was built from."""


@dataclass(frozen=True, slots=True)
class Sources:
    """Which questions share a source, and so are no independent evidence."""

    field: str
    """Of the questions' `meta`."""
    of: pl.DataFrame
    """`question_id` and a number for its `source`; a question that names none is a source of its own."""

    def of_pair(self, pair: pl.DataFrame) -> npt.NDArray[np.uint32] | None:
        """The source of each question of `pair_scores`; None when no two of them share one.

        Raises UserError when all of them share one.
        """
        sources = pair.join(self.of, on="question_id", maintain_order="left")["source"]
        different = sources.n_unique()
        if different == 1 < len(sources):
            raise UserError(
                f"all {len(sources)} common questions have one {self.field}, and tell nothing of others: "
                "ask more, or kgqa compare with cluster=none takes them as they are"
            )
        return sources.to_numpy() if different < len(sources) else None


@dataclass(frozen=True, slots=True, eq=False)
class RunPoint:
    """One point of a run, with the questions that it has finished."""

    name: str
    """Its number within the run, after the run's name where there are several: `3`, `srp:3`."""
    folder: RunFolder
    number: int
    overrides: tuple[str, ...]
    config: Mapping[str, Any]
    """Resolved."""
    served: Mapping[str, Any]
    """The model and the graph that it ran on."""
    rows: pl.DataFrame
    """`question_id`, `_COLUMNS` and the score that was asked for; a row per question."""

    @property
    def method(self) -> str:
        """As tables name it."""
        return str(self.rows["method"][0])

    @property
    def dataset(self) -> str:
        """As tables name it."""
        return str(self.rows["dataset"][0])

    @property
    def label(self) -> str | None:
        """Printed in every table when the answers are not a language model's."""
        label: str | None = self.served["label"]
        return label

    @property
    def evaluation(self) -> Evaluation:
        """How its answers were scored, and how scores are averaged."""
        settings: Evaluation = config.build("evaluation", self.config)
        return settings

    @property
    def circumstances(self) -> dict[str, object]:
        """What points must have in common to be compared."""
        scoring = {f"evaluation.{key}": self.config["evaluation"].get(key) for key in _SCORING}
        return {"dataset": self.dataset, "split": self.rows["split"][0], "graph": self.served["graph"], **scoring}

    def to_dict(self) -> dict[str, Any]:
        """What it is, for scripts."""
        return {
            "name": self.name,
            "run": str(self.folder.path),
            "point": self.number,
            "method": self.method,
            "label": self.label,
            "overrides": list(self.overrides),
        }


def read_run_points(runs: Sequence[Place], score: str) -> list[RunPoint]:
    """All points of the runs, in order. Raises UserError for a folder that is no run, or has no finished question."""
    folders = list({run.resolve(): RunFolder(run) for run in runs}.values())
    short = [folder.path.resolve().name for folder in folders]
    names = short if len(set(short)) == len(short) else [str(folder.path) for folder in folders]
    prefixes = [""] if len(names) == 1 else [f"{name}:" for name in names]
    return [
        point for folder, prefix in zip(folders, prefixes, strict=True) for point in _points_of(folder, prefix, score)
    ]


def read_points(
    folder: RunFolder, columns: Sequence[str], *, questions: Collection[str] | None = None
) -> dict[int, pl.DataFrame]:
    """Per point of a run `question_id` and these columns, a row per finished question, or for each of `questions`.

    Raises UserError when no shard is finished, or when one lacks a column.
    """
    shards = read_shards(folder, ["point", "question_id", *columns])
    if questions is not None:
        shards = (rows.filter(pl.col("question_id").is_in(questions)) for rows in shards)
    points = pl.concat(shards).partition_by("point", as_dict=True, include_key=False)
    return {point: rows for (point,), rows in points.items()}


def pair_scores(base: pl.DataFrame, changed: pl.DataFrame, score: str) -> pl.DataFrame:
    """The questions that both points score: `question_id`, `base`, `changed`, in an order that does not vary."""
    of_base, of_changed = base.select("question_id", base=score), changed.select("question_id", changed=score)
    return of_base.join(of_changed, on="question_id").drop_nulls().sort("question_id")


def difference(pair: pl.DataFrame, sources: Sources | None, settings: Evaluation) -> Difference:
    """Of the second point of `pair_scores` - the first, with an interval that heeds shared sources."""
    before, after = (pair[name].cast(pl.Float64).to_numpy() for name in ("base", "changed"))
    clusters = None if sources is None else sources.of_pair(pair)
    return paired_bootstrap(after, before, clusters=clusters, **settings.bootstrap)


def sources_of(rows: pl.DataFrame, field: str = "auto") -> Sources | None:
    """What questions, with `question_id` and `meta`, name as their source in this field of `meta`; None for none.

    `none` is no field, and `auto` is CWQ's where questions have it. Raises UserError for a field that no question has.
    """
    if field == "none":
        return None
    metas: list[dict[str, Any]] = [orjson.loads(meta) for meta in rows["meta"]]
    name = _SOURCE if field == "auto" else field
    named = [None if meta.get(name) is None else orjson.dumps(meta[name]).decode() for meta in metas]
    if not any(named):
        if field == "auto":
            return None
        known = ", ".join(sorted({each for meta in metas for each in meta})) or "nothing"
        raise UserError(f"cluster={field}: no question has this field of `meta`, which holds {known}")
    own = ("own " + rows["question_id"]).to_list()
    sources = pl.Series("source", [given or id for given, id in zip(named, own, strict=True)])
    return Sources(name, pl.DataFrame([rows["question_id"], sources.cast(pl.Categorical).to_physical()]))


def refuse_other_questions(base: RunPoint, point: RunPoint) -> None:
    """Raise UserError, naming what differs, when a point was not asked the base's questions of the base's graph."""
    here, there = base.circumstances, point.circumstances
    same_graph = agree(base.served["graph"], point.served["graph"])
    differing = [what for what in here if here[what] != there[what] and not (what == "graph" and same_graph)]
    if differing:
        listed = "; ".join(f"{what} is {here[what]} and {there[what]}" for what in differing)
        raise UserError(f"{base.name} and {point.name} cannot be compared: {listed}")
    common = base.rows.join(point.rows, on="question_id", suffix="_there")
    if common.is_empty():
        raise UserError(f"{base.name} and {point.name} have no question in common: name runs over the same ones")
    if (other := common.filter(pl.col("question") != pl.col("question_there"))).height:
        raise UserError(
            f"{base.name} and {point.name} cannot be compared: question {other['question_id'].sort()[0]} "
            "has another text in each"
        )


def _points_of(folder: RunFolder, prefix: str, score: str) -> list[RunPoint]:
    run = folder.read_run()
    if run is None:
        raise UserError(f"{folder.path} is not a run folder: it has no run.yaml")
    rows = read_points(folder, [*_COLUMNS, score])
    if lacking := [number for number in range(len(run["points"])) if number not in rows]:
        raise UserError(f"point {lacking[0]} of {folder.path} has no finished question yet")
    return [
        RunPoint(
            name=f"{prefix}{number}",
            folder=folder,
            number=number,
            overrides=tuple(point["overrides"]),
            config=point["config"],
            served=served,
            rows=rows[number],
        )
        for number, (point, served) in enumerate(zip(run["points"], run["served"], strict=True))
    ]
