"""The points of a run in numbers: what `summary.json` holds and every table prints (methods.md §9.2, §9.6)."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from typing import Any, Self

import numpy as np
import orjson
import polars as pl

from pipeline.errors import UserError, nearest
from pipeline.evaluation.rescore import SCORES
from pipeline.evaluation.settings import DEFAULT, Evaluation
from pipeline.evaluation.statistics import Estimate, Values, bootstrap_mean

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
COLUMNS = ("point", "method", "dataset", "status", "gold", "meta", *SCORES, *_COUNTERS)
"""The trace columns that `tally` reads."""
_ALIKE = ("point", "method", "dataset", "status", "empty_gold", "meta", *SCORES)
_WAITING = 20_000
"""At least so many rows of tallies are put together at a time."""


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

    def score(self, name: str) -> float:
        """The mean of a score. Raises UserError when no question has it."""
        if name not in self.scores:
            raise UserError(f"no question has the score '{name}'.{nearest(name, self.scores)}")
        return self.scores[name].mean

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

    @classmethod
    def from_dict(cls, saved: Mapping[str, Any]) -> Self:
        """A point of `summary.json`. Raises KeyError when it lacks what `to_dict` writes."""
        plain = ("point", "method", "dataset", "label", "questions", "not_run", "failed", "empty_gold", "statuses")
        return cls(
            **{name: saved[name] for name in (*plain, "confidence")},
            overrides=tuple(saved["overrides"]),
            scores={
                name: Estimate(saved[name], low, high, saved["scored"][name])
                for name, (low, high) in saved["intervals"].items()
            },
            counters={name: saved[name] for name in (*_COUNTERS, "tokens") if name in saved},
            breakdown={field: tuple(map(_group_from_dict, groups)) for field, groups in saved["breakdown"].items()},
        )


def own_words(overrides: Sequence[Sequence[str]]) -> list[list[str]]:
    """Of the overrides of each point those that not all points share."""
    shared = set.intersection(*map(set, overrides))
    return [[word for word in of_point if word not in shared] for of_point in overrides]


def tally(parts: Iterable[pl.DataFrame]) -> pl.DataFrame:
    """Count together the rows that are alike in all that is averaged, so that a run of any length needs little memory.

    Each part needs `COLUMNS`, the counters only where there are any. The tally has one row per kind of row, with
    `questions`, how many there are, and with the sums of their counters.
    """
    tallies: list[pl.DataFrame] = []
    waiting = 0
    for part in parts:
        tallies.append(_put_together([_as_tally(part)]))
        waiting += tallies[-1].height
        if waiting > max(_WAITING, tallies[0].height):  # with the total growing, a row is put together a few times only
            tallies, waiting = [_put_together(tallies)], 0
    return _put_together(tallies)


def _as_tally(rows: pl.DataFrame) -> pl.DataFrame:
    """Each row as a kind of its own."""
    counters = [
        pl.col(name).cast(pl.Float64 if name.endswith("_s") else pl.Int64) for name in _COUNTERS if name in rows.columns
    ]
    alike = [name for name in _ALIKE if name != "empty_gold"]
    return rows.select(*alike, *counters, empty_gold=pl.col("gold").list.len() == 0, questions=1)


def _put_together(tallies: Sequence[pl.DataFrame]) -> pl.DataFrame:
    return pl.concat(tallies).group_by(_ALIKE, maintain_order=True).sum()


def aggregate(
    tallied: pl.DataFrame, *, points: Mapping[int, Point] | None = None, settings: Evaluation = DEFAULT
) -> list[PointSummary]:
    """Average the questions of each point, in order of the points. `tallied` is what `tally` made of the rows."""
    known = points or {}
    parts = (tallied.filter(pl.col("point") == point) for point in tallied["point"].unique().sort())
    with ThreadPoolExecutor() as pool:  # the resampling lets go of the interpreter lock
        return list(pool.map(lambda rows: _summarise(rows, known.get(rows["point"][0], Point()), settings), parts))


def _summarise(rows: pl.DataFrame, point: Point, settings: Evaluation) -> PointSummary:
    first = rows.row(0, named=True)
    statuses = dict(rows.group_by("status").agg(pl.col("questions").sum()).sort("status").iter_rows())
    answered = int(rows["questions"].sum())
    questions = answered if point.questions is None else point.questions
    return PointSummary(
        point=first["point"],
        method=first["method"],
        dataset=first["dataset"],
        overrides=point.overrides,
        label=point.label,
        questions=questions,
        not_run=questions - answered,
        failed=statuses.get("failed", 0),
        empty_gold=int(rows.filter("empty_gold")["questions"].sum()),
        statuses=statuses,
        scores=_estimates(rows, SCORES, settings),
        confidence=settings.confidence,
        counters=_counters(rows),
        breakdown=_breakdown(rows, settings),
    )


def _estimates(rows: pl.DataFrame, columns: Sequence[str], settings: Evaluation) -> dict[str, Estimate]:
    return {
        column: bootstrap_mean(values, **settings.bootstrap)
        for column in columns
        if len(values := _score_per_question(rows, column))
    }


def _score_per_question(rows: pl.DataFrame, column: str) -> Values:
    scored = rows.select(column, "questions").drop_nulls()
    return np.repeat(scored[column].to_numpy(), scored["questions"].to_numpy())


def _counters(rows: pl.DataFrame) -> dict[str, float]:
    there = [name for name in _COUNTERS if name in rows.columns]
    totals: dict[str, float] = rows.select(pl.col(there).sum()).row(0, named=True) if there else {}
    if "prompt_tokens" in totals:
        totals["tokens"] = totals["prompt_tokens"] + totals["completion_tokens"]
    return totals


def _breakdown(rows: pl.DataFrame, settings: Evaluation) -> dict[str, tuple[Group, ...]]:
    """The groups of every field that tells kinds of questions apart."""
    kinds = {field: values for field, values in _kinds(rows).items() if 1 < values.n_unique() <= _MOST_GROUPS}
    return {field: _groups(rows, values, settings) for field, values in kinds.items()}


def _kinds(rows: pl.DataFrame) -> dict[str, pl.Series]:
    """Per field of the questions' `meta` its value in each row, as text."""
    metas: dict[str, dict[str, Any]] = {text: orjson.loads(text) for text in rows["meta"].unique()}
    fields = sorted({field for meta in metas.values() for field in meta})
    return {
        field: rows["meta"].replace_strict(
            {text: _as_text(meta.get(field)) for text, meta in metas.items()}, return_dtype=pl.String
        )
        for field in fields
    }


def _as_text(value: object) -> str | None:
    return value if value is None or isinstance(value, str) else orjson.dumps(value).decode()


def _groups(rows: pl.DataFrame, values: pl.Series, settings: Evaluation) -> tuple[Group, ...]:
    in_order = sorted(values.drop_nulls().unique(), key=_natural)
    parts = ((value, rows.filter(values == value)) for value in in_order)
    return tuple(
        Group(value, int(part["questions"].sum()), _estimates(part, _GROUP_SCORES, settings)) for value, part in parts
    )


def _natural(value: str) -> tuple[int, str]:
    """Sorts 2 before 10, and words by the alphabet."""
    return (len(value) if value.isdigit() else 0, value)


def _group_to_dict(group: Group) -> dict[str, Any]:
    means = {name: score.mean for name, score in group.scores.items()}
    intervals = {name: [score.low, score.high] for name, score in group.scores.items()}
    return {"value": group.value, "questions": group.questions, **means, "intervals": intervals}


def _group_from_dict(saved: Mapping[str, Any]) -> Group:
    questions = saved["questions"]
    scores = {name: Estimate(saved[name], low, high, questions) for name, (low, high) in saved["intervals"].items()}
    return Group(saved["value"], questions, scores)
