"""What runs measured: their points, put together where they were asked the same questions."""

from __future__ import annotations

import hashlib
import json
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import chain
from typing import Any

import numpy as np
import numpy.typing as npt
import polars as pl

from pipeline import config
from pipeline.errors import UserError
from pipeline.evaluation.compat import PRINTED_BESIDE, printed_beside
from pipeline.evaluation.settings import Evaluation
from pipeline.evaluation.statistics import Estimate, Values, bootstrap_means
from pipeline.evaluation.summary import COLUMNS, Point, PointSummary, aggregate, tally
from pipeline.traces.folder import RunFolder
from pipeline.traces.place import Place
from pipeline.traces.reader import read_shards

_STANDARD = ("hits_at_1", "f1", "exact_match", "rouge_l", "grbench_em", "grbench_f1")
_PAPERS = tuple(dict.fromkeys(chain(*PRINTED_BESIDE.values())))
CHARTED = tuple(dict.fromkeys((*_STANDARD, *_PAPERS)))
"""The scores that a reader can choose from, as far as the points have them and the methods' papers print them."""
Group = tuple[str, str | None, str | None]
"""Points with the same are drawn in one colour: method, label, and the model if it is a language model."""

_NO_SETTINGS = {"engine"}
"""Groups whose choice decides nothing of what is computed."""


@dataclass(frozen=True, slots=True)
class Run:
    """One run folder."""

    name: str
    path: Place
    facts: Mapping[str, Any]
    """`run.yaml` without its points."""
    totals: Mapping[str, Any] | None
    """`summary.json` without its points; None while the run is not complete."""
    evaluation: Evaluation


@dataclass(frozen=True)
class Measured:
    """One point of a run."""

    run: Run
    summary: PointSummary
    family: str
    """The choice of `method=`; presets of one method share it."""
    settings: Mapping[str, Any]
    """What decides its answers: the choices of groups, and all keys under their dotted names."""
    served: Mapping[str, Any]
    """`model`, `label`, `graph` and `roles`, as in `run.yaml`."""
    rows: pl.DataFrame
    """`question`, a hash of its id and text, its `source`, and the charted scores; in the order of the hashes."""

    @cached_property
    def asked(self) -> bytes:
        """The same for points that answered the same questions."""
        return hashlib.blake2b(self.rows["question"].to_numpy().tobytes()).digest()

    @property
    def asks(self) -> str:
        """The same for points of a run that have the same questions to answer."""
        return config.canonical(
            {key: value for key, value in self.settings.items() if key.startswith("dataset.") or key == "run.limit"}
        )

    @property
    def group(self) -> Group:
        """What it is drawn as."""
        label = self.summary.label
        return self.family, label, None if label else self.served["model"]

    def cost(self, counter: str) -> float | None:
        """Per answered question; None where it was not counted."""
        answered = self.summary.questions - self.summary.not_run
        total = self.summary.counters.get(counter)
        return None if total is None or not answered else total / answered

    @property
    def price(self) -> tuple[float, float]:
        """What makes it the cheaper one: model calls per question, and of equally many, tokens."""
        calls, tokens = self.cost("llm_calls"), self.cost("tokens")
        return (calls or 0.0, tokens or 0.0)


@dataclass(frozen=True, slots=True)
class Answers:
    """What the points of a block score on each question."""

    values: Values
    """Shape (questions, points)."""
    sources: npt.NDArray[Any] | None
    """What each question was built from; None where no two share it."""
    evaluation: Evaluation

    def means(self, columns: npt.ArrayLike) -> list[Estimate]:
        """The means of columns made of the values, shape (questions, columns), with intervals over the questions."""
        return bootstrap_means(columns, clusters=self.sources, **self.evaluation.bootstrap)


@dataclass(frozen=True)
class Block:
    """Points of one dataset that were asked the same questions, from one run or several."""

    points: Sequence[Measured]

    @property
    def evaluation(self) -> Evaluation:
        """How its points are compared."""
        return self.points[0].run.evaluation

    @property
    def rescored(self) -> bool:
        """Whether a summary has other scores than the rows, which keep those that they were written with."""
        return any(
            not math.isclose(np.nanmean(point.rows[name].to_numpy()), point.summary.scores[name].mean, abs_tol=1e-4)
            for point in self.points
            for name in self.charted
            if name in point.summary.scores
        )

    @property
    def fullest(self) -> Measured:
        """The first of the points that answered most questions."""
        return max(self.points, key=lambda point: point.rows.height)

    @cached_property
    def comparable(self) -> list[int]:
        """Indices of the points that answered all of the questions: only these are compared."""
        asked = self.fullest.asked
        return [index for index, point in enumerate(self.points) if point.asked == asked]

    @cached_property
    def charted(self) -> list[str]:
        """The scores that all of these have, in the order of the page's choice."""
        families = {point.family for point in self.points}
        scores = {*_STANDARD, *chain(*map(printed_beside, families))}
        summaries = [self.points[index].summary for index in self.comparable]
        return [name for name in CHARTED if name in scores and all(name in each.scores for each in summaries)]

    def answers(self, score: str) -> Answers:
        """A charted score of each question; of a point that is not comparable, nan.

        Questions that not all have it of (for want of a gold answer) are left out.
        """
        columns = np.full((self.fullest.rows.height, len(self.points)), np.nan)
        for index in self.comparable:
            columns[:, index] = self.points[index].rows[score].to_numpy()
        there: npt.NDArray[np.bool_] = ~np.isnan(columns[:, self.comparable]).any(axis=1)
        sources = self.fullest.rows["source"].to_numpy()[there]
        return Answers(columns[there], sources if 1 < len(set(sources)) < len(sources) else None, self.evaluation)

    @property
    def shares_sources(self) -> bool:
        """Whether several of its questions were built from one, so that they are no independent evidence."""
        sources = self.fullest.rows["source"]
        return 1 < sources.n_unique() < len(sources)


def read_blocks(folders: Sequence[Place]) -> list[Block]:
    """Read the points of runs, finished or not. Raises UserError for a folder that is none, or of another version."""
    together: dict[tuple[str, bytes], list[Measured]] = {}
    for folder in folders:
        of_run: dict[str, list[Measured]] = {}
        for point in _read_points(RunFolder(folder)):
            of_run.setdefault(point.asks, []).append(point)
        for points in of_run.values():
            fullest = Block(points).fullest
            together.setdefault((fullest.summary.dataset, fullest.asked), []).extend(points)
    return [Block(points) for points in together.values()]


def _read_points(folder: RunFolder) -> list[Measured]:
    run = folder.read_run()
    if run is None:
        raise UserError(f"{folder.path} is not a run folder: it has no run.yaml")
    saved = _read_summary(folder)
    evaluation = config.build("evaluation", run["points"][0]["config"])
    summaries = _so_far(folder, run, evaluation) if saved is None else _summaries(folder, saved)
    known = Run(
        name=folder.path.resolve().name,
        path=folder.path,
        facts={key: value for key, value in run.items() if key not in {"points", "served"}},
        totals=saved and {key: value for key, value in saved.items() if key != "points"},
        evaluation=evaluation,
    )
    configs = [point["config"] for point in run["points"]]
    rows = _read_rows(folder)
    return [
        Measured(
            known,
            summary,
            configs[summary.point]["choices"]["method"],
            _settings(configs[summary.point]),
            run["served"][summary.point],
            rows[summary.point],
        )
        for summary in summaries
    ]


def _read_summary(folder: RunFolder) -> dict[str, Any] | None:
    try:
        return folder.read_summary()
    except json.JSONDecodeError:
        raise UserError(f"{folder.path}/summary.json cannot be read: kgqa score {folder.path} renews it") from None


def _summaries(folder: RunFolder, saved: Mapping[str, Any]) -> list[PointSummary]:
    try:
        return [PointSummary.from_dict(point) for point in saved["points"]]
    except KeyError as missing:
        raise UserError(
            f"{folder.path}/summary.json was written by another version of this project, without {missing}: "
            f"kgqa score {folder.path} renews it"
        ) from None


def _so_far(folder: RunFolder, run: Mapping[str, Any], evaluation: Evaluation) -> list[PointSummary]:
    """The summaries of a run that is not complete, from the shards that it has."""
    points = {
        index: Point(tuple(point["overrides"]), served["label"])
        for index, (point, served) in enumerate(zip(run["points"], run["served"], strict=True))
    }
    return aggregate(tally(read_shards(folder, COLUMNS)), points=points, settings=evaluation)


def _read_rows(folder: RunFolder) -> dict[int, pl.DataFrame]:
    """By point its questions with their scores, in an order that does not depend on the run."""
    keys = {
        "question": pl.concat_str("question_id", "question", separator="\0").hash(),
        "source": pl.coalesce(pl.col("meta").str.json_path_match("$.source"), "question_id"),
    }
    shards = read_shards(folder, ["point", "question_id", "question", "meta", *CHARTED])
    rows = pl.concat(shard.select("point", *CHARTED, **keys) for shard in shards)
    parts = rows.sort("question").partition_by("point", as_dict=True, include_key=False)
    return {int(point): part for (point,), part in parts.items()}


def _settings(resolved: Mapping[str, Any]) -> dict[str, Any]:
    choices = {group: choice for group, choice in resolved["choices"].items() if group not in _NO_SETTINGS}
    return {**choices, **config.computed(resolved)}
