"""Points of finished runs, and pairs of them over the same questions."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import polars as pl

from pipeline import config
from pipeline.errors import UserError
from pipeline.evaluation.settings import Evaluation
from pipeline.traces.folder import RunFolder
from pipeline.traces.place import Place
from pipeline.traces.reader import read_shards

_COLUMNS = ("question", "dataset", "split", "method", "llm_calls", "prompt_tokens", "completion_tokens", "wall_s")
_SCORING = ("strip_accents", "empty_gold")
"""Settings of the evaluation that decide what a row scores."""


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


def refuse_other_questions(base: RunPoint, point: RunPoint) -> None:
    """Raise UserError, naming what differs, when a point was not asked the base's questions of the base's graph."""
    here, there = base.circumstances, point.circumstances
    if differing := [f"{what} is {here[what]} and {there[what]}" for what in here if here[what] != there[what]]:
        raise UserError(f"{base.name} and {point.name} cannot be compared: {'; '.join(differing)}")
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
