"""Compares configurations of finished runs with one of them, question by question (specification §9.2)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from typing import Any, Literal

import numpy as np
import polars as pl

from pipeline.analysis.paired import (
    Clusters,
    RunConfiguration,
    check_comparable,
    difference,
    pair_scores,
    read_rows,
)
from pipeline.analysis.rerun_variance import RerunVariance
from pipeline.errors import UserError, nearest
from pipeline.evaluation.config import ScoringConfig
from pipeline.evaluation.statistics import Difference, benjamini_hochberg, holm, mcnemar

Correction = Literal["holm", "bh"]
_CORRECT = {"holm": holm, "bh": benjamini_hochberg}


@dataclass(frozen=True, slots=True)
class Cost:
    """The mean cost of a question, as if the configuration had run alone."""

    calls: float
    tokens: float
    wall_s: float


@dataclass(frozen=True, slots=True, eq=False)
class Comparison:
    """A configuration and the base, over the questions that both score. Scores are means over questions in [0, 1]."""

    configuration: RunConfiguration
    questions: int
    sources: int
    """Number of sources of the questions; smaller than `questions` if some share a source."""
    base: float
    other: float
    difference: Difference
    """Other minus base, with an interval clustered by source."""
    exact_p: float | None
    """P-value of McNemar's test, clustered by source; None unless all scores are 0 or 1."""
    won: Sequence[str]
    """Ids of the questions with a higher score than the base."""
    lost: Sequence[str]
    """Ids of the questions with a lower score than the base."""
    base_cost: Cost
    cost: Cost
    confidence: float
    corrected_p: float = 1.0
    """`p_value`, corrected for the number of comparisons."""
    rerun_margin: float | None = None
    """Largest difference that a rerun of the base shows by chance over as many questions; None if not measured."""

    @property
    def p_value(self) -> float:
        """The two-sided p-value: exact if all scores are 0 or 1, otherwise by bootstrap."""
        return self.difference.p_value if self.exact_p is None else self.exact_p

    @property
    def verdict(self) -> str:
        """The result: `same`, `noise`, `not shown`, `better` or `worse` than the base."""
        if not (self.won or self.lost):
            return "same"
        if self.rerun_margin and abs(self.difference.mean) <= self.rerun_margin:
            return "noise"
        if self.corrected_p > 1 - self.confidence:
            return "not shown"
        return "better" if self.difference.mean > 0 else "worse"

    @property
    def points_per_call(self) -> float | None:
        """Percentage points gained per extra call, or lost per call saved; None if the number of calls is equal."""
        extra = self.cost.calls - self.base_cost.calls
        return 100 * self.difference.mean / extra if extra else None

    def to_dict(self) -> dict[str, Any]:
        """Return the figures for JSON output."""
        return {
            **self.configuration.to_dict(),
            "questions": self.questions,
            "sources": self.sources,
            "base_score": self.base,
            "score": self.other,
            "difference": self.difference.mean,
            "interval": [self.difference.low, self.difference.high],
            "won": len(self.won),
            "lost": len(self.lost),
            "test": "bootstrap" if self.exact_p is None else "mcnemar",
            "p_value": self.p_value,
            "corrected_p": self.corrected_p,
            "noise": self.rerun_margin,
            "verdict": self.verdict,
            "base_cost": asdict(self.base_cost),
            "cost": asdict(self.cost),
            "points_per_call": self.points_per_call,
        }


@dataclass(frozen=True, slots=True)
class Flip:
    """A question with different scores in the base and another configuration."""

    question_id: str
    question: str
    base: Sequence[str]
    """The base's answers."""
    other: Sequence[str]
    """The other configuration's answers."""
    gold: Sequence[str]


def base_and_others(
    configurations: Sequence[RunConfiguration], name: str | None
) -> tuple[RunConfiguration, list[RunConfiguration]]:
    """Return the configuration with this name, by default the first, and those to compare with it.

    Raises UserError if there is no such configuration, no other one, or one that has other questions.
    """
    names = [configuration.name for configuration in configurations]
    if len(configurations) == 1:
        raise UserError(
            f"{configurations[0].folder.path} has a single configuration: name another run to compare it with"
        )
    if name is not None and name not in names:
        raise UserError(f"base={name} is not in these runs.{nearest(name, names)} Known: {', '.join(names)}")
    base = configurations[0 if name is None else names.index(name)]
    others = [configuration for configuration in configurations if configuration is not base]
    for other in others:
        check_comparable(base, other)
    return base, others


def compare(
    base: RunConfiguration,
    others: Sequence[RunConfiguration],
    *,
    score: str,
    correction: Correction,
    clusters: Clusters | None,
    variance: RerunVariance | None,
) -> list[Comparison]:
    """Compare each configuration with the base. Raises UserError if one has no scored question in common with it."""
    comparisons = [_compare(base, other, score, clusters, base.scoring) for other in others]
    corrected = _CORRECT[correction]([each.p_value for each in comparisons])
    return [
        replace(each, corrected_p=float(p), rerun_margin=variance.margin(each.questions) if variance else None)
        for each, p in zip(comparisons, corrected, strict=True)
    ]


def read_flips(
    base: RunConfiguration, comparisons: Sequence[Comparison], count: int
) -> list[tuple[list[Flip], list[Flip]]]:
    """Read, per comparison, the first `count` questions of `lost` and of `won`."""
    ids = {id for each in comparisons for id in (*each.lost[:count], *each.won[:count])}
    folders = dict.fromkeys(each.folder for each in (base, *(comparison.configuration for comparison in comparisons)))
    rows = {folder: read_rows(folder, ["question", "answers", "gold"], questions=ids) for folder in folders}

    def by_id(configuration: RunConfiguration) -> Mapping[str, Any]:
        own = rows[configuration.folder].get(configuration.number)
        return {} if own is None else own.rows_by_key("question_id", named=True, unique=True)

    of_base = by_id(base)

    def flips(ids: Sequence[str], other: Mapping[str, Any]) -> list[Flip]:
        return [
            Flip(id, of_base[id]["question"], of_base[id]["answers"], other[id]["answers"], of_base[id]["gold"])
            for id in ids[:count]
        ]

    others = [by_id(each.configuration) for each in comparisons]
    return [(flips(each.lost, other), flips(each.won, other)) for each, other in zip(comparisons, others, strict=True)]


def _compare(
    base: RunConfiguration, other: RunConfiguration, score: str, clusters: Clusters | None, scoring: ScoringConfig
) -> Comparison:
    pair = pair_scores(base.rows, other.rows, score)
    if pair.is_empty():
        raise UserError(f"{base.name} and {other.name} have no question in common with the score {score}")
    before, after = (pair[name].cast(pl.Float64).to_numpy() for name in ("base", "other"))
    labels = clusters.of_pair(pair) if clusters else None
    binary = bool(np.isin([before, after], [0, 1]).all())
    return Comparison(
        configuration=other,
        questions=pair.height,
        sources=pair.height if labels is None else len(np.unique(labels)),
        base=float(before.mean()),
        other=float(after.mean()),
        difference=difference(pair, clusters, scoring),
        exact_p=mcnemar(after, before, clusters=labels).p_value if binary else None,
        won=pair.filter(pl.col("other") > pl.col("base"))["question_id"].to_list(),
        lost=pair.filter(pl.col("other") < pl.col("base"))["question_id"].to_list(),
        base_cost=_cost(base, pair),
        cost=_cost(other, pair),
        confidence=scoring.confidence,
    )


def _cost(configuration: RunConfiguration, pair: pl.DataFrame) -> Cost:
    rows = configuration.rows.join(pair, on="question_id", how="semi")
    tokens = pl.col("prompt_tokens") + pl.col("completion_tokens")
    return Cost(*rows.select(pl.col("llm_calls").mean(), tokens.mean(), pl.col("wall_s").mean()).row(0))
