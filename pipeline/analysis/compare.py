"""Points of finished runs against one of them, on the questions that both answered (methods.md §9.2)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from typing import Any, Literal

import numpy as np
import polars as pl

from pipeline.analysis.noise import Noise
from pipeline.analysis.pairs import RunPoint, Sources, difference, pair_scores, read_points, refuse_other_questions
from pipeline.errors import UserError, nearest
from pipeline.evaluation.settings import Evaluation
from pipeline.evaluation.statistics import Difference, benjamini_hochberg, holm, mcnemar

Correction = Literal["holm", "bh"]
_CORRECT = {"holm": holm, "bh": benjamini_hochberg}


@dataclass(frozen=True, slots=True)
class Cost:
    """What a question costs in the mean, as if the point had run alone."""

    calls: float
    tokens: float
    wall_s: float


@dataclass(frozen=True, slots=True, eq=False)
class Comparison:
    """A point beside the base, over the questions that both score. Scores are means over questions in [0, 1]."""

    point: RunPoint
    questions: int
    sources: int
    """How many sources the questions come from: fewer than questions where some share one."""
    base: float
    changed: float
    difference: Difference
    """Of changed - base; its interval heeds the sources."""
    exact_p: float | None
    """McNemar's, of scores that are 0 or 1; heeds the sources."""
    won: Sequence[str]
    """Ids of the questions that score higher than at the base."""
    lost: Sequence[str]
    """Ids of the questions that score lower than at the base."""
    base_cost: Cost
    cost: Cost
    confidence: float
    corrected_p: float = 1.0
    """`p_value`, corrected over the points compared."""
    noise: float | None = None
    """Largest difference that running the base again would make over as many questions; None when not measured."""

    @property
    def p_value(self) -> float:
        """Two-sided, of no difference: exact where the scores allow it, else the bootstrap's."""
        return self.difference.p_value if self.exact_p is None else self.exact_p

    @property
    def verdict(self) -> str:
        """`same`, `noise`, `not shown`, `better` or `worse` than the base."""
        if not (self.won or self.lost):
            return "same"
        if self.noise and abs(self.difference.mean) <= self.noise:
            return "noise"
        if self.corrected_p > 1 - self.confidence:
            return "not shown"
        return "better" if self.difference.mean > 0 else "worse"

    @property
    def points_per_call(self) -> float | None:
        """Percentage points gained per extra call, or lost per call saved; None where the calls are equally many."""
        extra = self.cost.calls - self.base_cost.calls
        return 100 * self.difference.mean / extra if extra else None

    def to_dict(self) -> dict[str, Any]:
        """The figures, for scripts."""
        return {
            **self.point.to_dict(),
            "questions": self.questions,
            "sources": self.sources,
            "base_score": self.base,
            "score": self.changed,
            "difference": self.difference.mean,
            "interval": [self.difference.low, self.difference.high],
            "won": len(self.won),
            "lost": len(self.lost),
            "test": "bootstrap" if self.exact_p is None else "mcnemar",
            "p_value": self.p_value,
            "corrected_p": self.corrected_p,
            "noise": self.noise,
            "verdict": self.verdict,
            "base_cost": asdict(self.base_cost),
            "cost": asdict(self.cost),
            "points_per_call": self.points_per_call,
        }


@dataclass(frozen=True, slots=True)
class Flip:
    """A question that the base and a point score differently."""

    question_id: str
    question: str
    base: Sequence[str]
    """The base's answers."""
    changed: Sequence[str]
    """The point's answers."""
    gold: Sequence[str]


def base_and_others(points: Sequence[RunPoint], name: str | None) -> tuple[RunPoint, list[RunPoint]]:
    """The point of this name, by default the first, and what to compare with it.

    Raises UserError when there is no such point, or no other, or when one was asked something else.
    """
    names = [point.name for point in points]
    if len(points) == 1:
        raise UserError(f"{points[0].folder.path} holds a single point: name another run to compare it with")
    if name is not None and name not in names:
        raise UserError(f"base={name} is no point of these runs.{nearest(name, names)} Known: {', '.join(names)}")
    base = points[0 if name is None else names.index(name)]
    others = [point for point in points if point is not base]
    for point in others:
        refuse_other_questions(base, point)
    return base, others


def compare(
    base: RunPoint,
    points: Sequence[RunPoint],
    *,
    score: str,
    correction: Correction,
    sources: Sources | None,
    noise: Noise | None,
) -> list[Comparison]:
    """Hold each point against the base. Raises UserError for one that scores no question in common with it."""
    found = [_compare(base, point, score, sources, base.evaluation) for point in points]
    corrected = _CORRECT[correction]([each.p_value for each in found])
    return [
        replace(each, corrected_p=float(p), noise=noise.margin(each.questions) if noise else None)
        for each, p in zip(found, corrected, strict=True)
    ]


def read_flips(base: RunPoint, comparisons: Sequence[Comparison], count: int) -> list[tuple[list[Flip], list[Flip]]]:
    """Per comparison the first `count` questions that score lower than at the base, and those that score higher."""
    wanted = {id for each in comparisons for id in (*each.lost[:count], *each.won[:count])}
    folders = dict.fromkeys(point.folder for point in (base, *(each.point for each in comparisons)))
    rows = {folder: read_points(folder, ["question", "answers", "gold"], questions=wanted) for folder in folders}

    def by_id(point: RunPoint) -> Mapping[str, Any]:
        of_point = rows[point.folder].get(point.number)
        return {} if of_point is None else of_point.rows_by_key("question_id", named=True, unique=True)

    here = by_id(base)

    def flips(ids: Sequence[str], there: Mapping[str, Any]) -> list[Flip]:
        return [
            Flip(id, here[id]["question"], here[id]["answers"], there[id]["answers"], here[id]["gold"])
            for id in ids[:count]
        ]

    return [(flips(each.lost, there), flips(each.won, there)) for each in comparisons for there in [by_id(each.point)]]


def _compare(base: RunPoint, point: RunPoint, score: str, sources: Sources | None, settings: Evaluation) -> Comparison:
    pair = pair_scores(base.rows, point.rows, score)
    if pair.is_empty():
        raise UserError(f"{base.name} and {point.name} have no question in common that has the score {score}")
    before, after = (pair[name].cast(pl.Float64).to_numpy() for name in ("base", "changed"))
    clusters = sources.of_pair(pair) if sources else None
    binary = bool(np.isin([before, after], [0, 1]).all())
    return Comparison(
        point=point,
        questions=pair.height,
        sources=pair.height if clusters is None else len(np.unique(clusters)),
        base=float(before.mean()),
        changed=float(after.mean()),
        difference=difference(pair, sources, settings),
        exact_p=mcnemar(after, before, clusters=clusters).p_value if binary else None,
        won=pair.filter(pl.col("changed") > pl.col("base"))["question_id"].to_list(),
        lost=pair.filter(pl.col("changed") < pl.col("base"))["question_id"].to_list(),
        base_cost=_cost(base, pair),
        cost=_cost(point, pair),
        confidence=settings.confidence,
    )


def _cost(point: RunPoint, pair: pl.DataFrame) -> Cost:
    rows = point.rows.join(pair, on="question_id", how="semi")
    tokens = pl.col("prompt_tokens") + pl.col("completion_tokens")
    return Cost(*rows.select(pl.col("llm_calls").mean(), tokens.mean(), pl.col("wall_s").mean()).row(0))
