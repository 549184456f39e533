"""The points of a run in numbers: what `summary.json` holds and every table prints (methods.md §9.2, §9.6)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from typing import Any

import orjson
import polars as pl

from pipeline.evaluation.rescore import SCORES
from pipeline.evaluation.settings import DEFAULT, Evaluation
from pipeline.evaluation.statistics import Estimate, bootstrap_mean

_MOST_GROUPS = 50
"""A field with more values than this is no kind of question."""
_GROUP_SCORES = ("hits_at_1", "f1")
_COUNTERS = (
    "llm_calls",
    "llm_calls_shared",
    "prompt_tokens",
    "completion_tokens",
    "kg_lookups",
    "kg_queries",
    "kg_rows",
    "parse_failures",
    "llm_s",
    "kg_s",
    "wall_s",
)


@dataclass(frozen=True, slots=True)
class Point:
    """What a run knows of one of its points besides the rows."""

    overrides: tuple[str, ...] = ()
    """The Hydra overrides that tell it from the other points."""
    label: str | None = None
    """Printed with it everywhere: `oracle`, `similarity`; None for a language model's answers."""
    questions: int | None = None
    """Questions requested; None for as many as there are rows."""


@dataclass(frozen=True, slots=True)
class Group:
    """A part of a point's questions."""

    value: str
    questions: int
    scores: Mapping[str, Estimate]


@dataclass(frozen=True, slots=True)
class PointSummary:
    """One row of a results table. Scores are means over questions in [0, 1], failed questions counting as wrong."""

    point: int
    method: str
    dataset: str
    overrides: tuple[str, ...]
    label: str | None
    questions: int
    """Questions requested."""
    not_run: int
    """Of those, not answered yet: the scores do not count them. 0 once the run is complete."""
    failed: int
    empty_gold: int
    """Questions without a gold answer, left out of the scores unless they are scored strictly."""
    statuses: Mapping[str, int]
    scores: Mapping[str, Estimate]
    """By column name; a score that no question has is absent."""
    confidence: float
    """Coverage of the intervals."""
    counters: Mapping[str, float]
    """Totals over questions, as if the point had run alone."""
    breakdown: Mapping[str, Sequence[Group]] = field(default_factory=dict)

    def to_dict(self) -> dict[str, Any]:
        """The point as `summary.json` holds it: every score under its name, null where no question has it."""
        return {
            "point": self.point,
            "method": self.method,
            "dataset": self.dataset,
            "overrides": list(self.overrides),
            "label": self.label,
            "questions": self.questions,
            "not_run": self.not_run,
            "failed": self.failed,
            "empty_gold": self.empty_gold,
            "statuses": dict(self.statuses),
            **{name: self.scores[name].mean if name in self.scores else None for name in SCORES},
            "intervals": {name: [score.low, score.high] for name, score in self.scores.items()},
            "confidence": self.confidence,
            "scored": {name: score.questions for name, score in self.scores.items()},
            **self.counters,
            "breakdown": {
                column: [_group_to_dict(group) for group in groups] for column, groups in self.breakdown.items()
            },
        }


def aggregate(
    frame: pl.DataFrame, *, points: Mapping[int, Point] | None = None, settings: Evaluation = DEFAULT
) -> list[PointSummary]:
    """Average the rows of each point, one row per (point, question), in order of the points.

    Needs the columns `point`, `method`, `dataset`, `status`, `gold`, `meta`, the scores and, where there are any, the
    counters. Leave the steps out, for speed.
    """
    known = points or {}
    parts = frame.sort("point", maintain_order=True).partition_by("point", maintain_order=True)

    def summarise(rows: pl.DataFrame) -> PointSummary:
        return _summarise(rows, known.get(rows["point"][0], Point()), settings)

    with ThreadPoolExecutor() as pool:  # the resampling lets go of the interpreter lock
        return list(pool.map(summarise, parts))


def _summarise(rows: pl.DataFrame, point: Point, settings: Evaluation) -> PointSummary:
    first = rows.row(0, named=True)
    statuses = dict(rows.group_by("status").len().sort("status").iter_rows())
    questions = rows.height if point.questions is None else point.questions
    return PointSummary(
        point=first["point"],
        method=first["method"],
        dataset=first["dataset"],
        overrides=point.overrides,
        label=point.label,
        questions=questions,
        not_run=questions - rows.height,
        failed=statuses.get("failed", 0),
        empty_gold=int((rows["gold"].list.len() == 0).sum()),
        statuses=statuses,
        scores=_estimates(rows, SCORES, settings),
        confidence=settings.confidence,
        counters=_counters(rows),
        breakdown=_breakdown(rows, settings),
    )


def _estimates(rows: pl.DataFrame, columns: Sequence[str], settings: Evaluation) -> dict[str, Estimate]:
    scored = {column: rows[column].drop_nulls().to_numpy() for column in columns}
    return {
        column: bootstrap_mean(
            values,
            resamples=settings.bootstrap_resamples,
            confidence=settings.confidence,
            seed=settings.bootstrap_seed,
        )
        for column, values in scored.items()
        if len(values)
    }


def _counters(rows: pl.DataFrame) -> dict[str, float]:
    wide = [
        pl.col(name).cast(pl.Float64 if name.endswith("_s") else pl.Int64).sum()
        for name in _COUNTERS
        if name in rows.columns
    ]
    totals: dict[str, float] = rows.select(wide).row(0, named=True) if wide else {}
    if "prompt_tokens" in totals:
        totals["tokens"] = totals["prompt_tokens"] + totals["completion_tokens"]
    return totals


def _breakdown(rows: pl.DataFrame, settings: Evaluation) -> dict[str, tuple[Group, ...]]:
    """The groups of every field that tells kinds of questions apart."""
    kinds = {field: values for field, values in _kinds(rows).items() if 1 < values.n_unique() <= _MOST_GROUPS}
    return {field: _groups(rows, values, settings) for field, values in kinds.items()}


def _kinds(rows: pl.DataFrame) -> dict[str, pl.Series]:
    """Per field of the questions' `meta` its value in each row, as text."""
    fields = {field for text in rows["meta"].unique() for field in orjson.loads(text)}
    return {field: rows["meta"].str.json_path_match(f"$.{field}") for field in sorted(fields) if field.isidentifier()}


def _groups(rows: pl.DataFrame, values: pl.Series, settings: Evaluation) -> tuple[Group, ...]:
    in_order = sorted(values.drop_nulls().unique(), key=_natural)
    parts = ((value, rows.filter(values == value)) for value in in_order)
    return tuple(Group(value, part.height, _estimates(part, _GROUP_SCORES, settings)) for value, part in parts)


def _natural(value: str) -> tuple[int, str]:
    """Sorts 2 before 10, and words by the alphabet."""
    return (len(value) if value.isdigit() else 0, value)


def _group_to_dict(group: Group) -> dict[str, Any]:
    means = {name: score.mean for name, score in group.scores.items()}
    intervals = {name: [score.low, score.high] for name, score in group.scores.items()}
    return {"value": group.value, "questions": group.questions, **means, "intervals": intervals}
