"""Compares configurations of finished runs with one of them, question by question (specification §9.2)."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from functools import reduce
from math import isinf
from typing import Any, Literal

import numpy as np
import polars as pl

from pipeline.analysis.paired import (
    LOST,
    WON,
    Clusters,
    RunConfiguration,
    difference,
    exact_p,
    incomparable,
    pair_scores,
    read_rows,
)
from pipeline.analysis.rerun_variance import RerunVariance
from pipeline.errors import UserError
from pipeline.evaluation.config import ScoringConfig
from pipeline.evaluation.configuration_summary import is_oracle, known_tokens, standing, without_oracles
from pipeline.evaluation.statistics import Difference, benjamini_hochberg, holm
from pipeline.llm.interface import simulated
from pipeline.suggestions import did_you_mean
from pipeline.text import counted

Correction = Literal["holm", "bh"]
_CORRECT = {"holm": holm, "bh": benjamini_hochberg}
BEST = "best"
"""The base of this name is the configuration with the highest score."""
_COMPUTED = ("llm_calls", "prompt_tokens", "completion_tokens")
"""What configurations that computed the same have in common, beside the score."""
_LISTED = 10
"""Longer lists of names are shortened in a message."""


@dataclass(frozen=True, slots=True)
class Cost:
    """The mean cost of a question, as if the configuration had run alone."""

    calls: float
    tokens: float
    wall_s: float | None
    """None for a simulated model, whose seconds mean nothing."""


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
    base_failed: int
    failed: int
    """Questions of both that failed in the base, and in this one."""
    base_cost: Cost
    cost: Cost
    confidence: float
    corrected_p: float = 1.0
    """`p_value`, corrected for the number of tests."""
    tests: int = 1
    """The number of configurations that are compared with the base, without those that compute the same as another."""
    rerun_margin: float | None = None
    """Largest difference that a rerun of the base shows by chance over as many questions; None if not measured."""

    @property
    def p_value(self) -> float:
        """The two-sided p-value: exact if all scores are 0 or 1, otherwise by bootstrap."""
        return self.difference.p_value if self.exact_p is None else self.exact_p

    @property
    def verdict(self) -> str:
        """The result: `same`, `noise`, `inconclusive`, `better` or `worse` than the base."""
        if not (self.won or self.lost):
            return "same"
        if self.rerun_margin and abs(self.difference.mean) <= self.rerun_margin:
            return "noise"
        if self.corrected_p > 1 - self.confidence:
            return "inconclusive"
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
            "base_failed": self.base_failed,
            "failed": self.failed,
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


@dataclass(frozen=True, slots=True)
class Selection:
    """A base, and the other configurations."""

    base: RunConfiguration
    others: Sequence[RunConfiguration]
    """Those to compare with the base."""
    left_out: Mapping[RunConfiguration, str]
    """Those that cannot be compared with the base, and why."""


@dataclass(frozen=True, slots=True)
class Flips:
    """The questions with different scores in the base and another configuration."""

    other: RunConfiguration
    lost: Sequence[Flip]
    """With a lower score than the base; for scores of 0 and 1, right → wrong."""
    won: Sequence[Flip]
    """With a higher score than the base."""

    def to_dict(self) -> dict[str, Any]:
        """Return the figures for JSON output."""
        return {
            **self.other.to_dict(),
            "lost": [asdict(flip) for flip in self.lost],
            "won": [asdict(flip) for flip in self.won],
        }


def select(configurations: Sequence[RunConfiguration], base: str | None, score: str) -> Selection:
    """Find the base by name, by default the first configuration, and those that can be compared with it.

    `best` is the one with the highest score over the questions that all have scored, among those that can be compared
    with the first; of equal ones it is the one with the fewest calls, and of these the fewest tokens. It is one whose
    score is not the oracle's alone, if there is one. Raises UserError if there is no such configuration, or none to
    compare with it.
    """
    if len(configurations) == 1:
        folder = configurations[0].folder
        count = len(folder.require_run()["points"])
        has_one = (
            "has a single configuration"
            if count == 1
            else f"has finished questions of one of {counted(count, 'configuration')}"
        )
        raise UserError(f"{folder.path} {has_one}: name another run to compare it with")
    found = configurations[0] if base in (None, BEST) else find(configurations, "base", str(base))
    reasons = {each: incomparable(found, each) for each in configurations if each is not found}
    others = [each for each, reason in reasons.items() if reason is None]
    if not others:
        first, reason = next(iter(reasons.items()))
        raise UserError(f"{found.name} and {first.name} cannot be compared: {reason}")
    if base == BEST:
        candidates = [found, *others]
        found = _best(candidates, score)
        others = [each for each in candidates if each is not found]
    return Selection(found, others, {each: reason for each, reason in reasons.items() if reason is not None})


def find(configurations: Sequence[RunConfiguration], key: str, name: str) -> RunConfiguration:
    """Find a configuration by its name, also with the path of its run, or by its run alone if that has no other one.

    Raises UserError.
    """
    names = [each.name for each in configurations]
    paths = [f"{each.folder.path}:{each.number}" for each in configurations]
    runs = [each.name.rpartition(":")[0] for each in configurations]
    for known_as in (names, paths):
        if name in known_as:
            return configurations[known_as.index(name)]
    if name and runs.count(name) == 1:
        return configurations[runs.index(name)]
    known = ", ".join(names) if len(names) <= _LISTED else f"{', '.join(names[: _LISTED - 1])}, … {names[-1]}"
    similar = did_you_mean(name, names)
    raise UserError(
        f"{key}={name}: these runs have no configuration of this name with a finished question.{similar} They have "
        f"{known}"
    )


def _best(configurations: Sequence[RunConfiguration], score: str) -> RunConfiguration:
    scored = [each.rows.drop_nulls(score) for each in configurations]
    common = reduce(lambda rows, other: rows.join(other, on="question_id", how="semi"), scored)
    if common.is_empty():
        raise UserError(f"base={BEST} needs a question that every configuration has scored by {score}: name a base")
    rows = [each.join(common, on="question_id", how="semi") for each in scored]
    tokens = pl.col("prompt_tokens") + pl.col("completion_tokens")
    figures = [each.select(pl.col(score).mean(), pl.col("llm_calls").mean(), tokens.mean()).row(0) for each in rows]
    among = without_oracles(range(len(configurations)), lambda position: is_oracle(configurations[position]))
    return configurations[max(among, key=lambda position: standing(*figures[position]))]


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
    computations = [_computation(each, base, score) for each in others]
    p_values = {computed: each.p_value for computed, each in zip(computations, comparisons, strict=True)}
    p_values.pop(_computation(base, base, score), None)
    corrected = dict(zip(p_values, map(float, _CORRECT[correction](list(p_values.values()))), strict=True))
    return [
        replace(
            each,
            corrected_p=corrected.get(computed, 1.0),
            tests=len(corrected),
            rerun_margin=variance.margin(each.questions) if variance else None,
        )
        for computed, each in zip(computations, comparisons, strict=True)
    ]


def _computation(configuration: RunConfiguration, base: RunConfiguration, score: str) -> tuple[object, bytes]:
    """Return what is equal for configurations that computed the same: they differ in keys that decided nothing.

    They are those of one run, or of the batches of one search, which make no call twice, and had equal scores, calls
    and tokens for every question that they have in common with the base. If the servers count no tokens, nothing tells.
    """
    folder = configuration.folder
    rows = configuration.rows.join(base.rows, on="question_id", how="semi").sort("question_id")
    content = hashlib.blake2b("\0".join(rows["question_id"]).encode())
    content.update(rows.select(*_COMPUTED, score).cast(pl.Float64).to_numpy().tobytes())
    calls, *tokens = map(int, rows.select(_COMPUTED).sum().row(0))
    if isinf(known_tokens(calls, sum(tokens))):
        content.update(str(configuration.number).encode())
    return folder.search or folder.path, content.digest()


def read_flips(base: RunConfiguration, comparison: Comparison) -> Flips:
    """Read the questions with different scores in the base and the other configuration of a comparison."""
    other = comparison.configuration
    ids = [*comparison.lost, *comparison.won]
    if not ids:
        return Flips(other, (), ())
    columns = ["question", "answers", "gold"]
    before, after = (
        read_rows(each.folder, columns, questions=ids)[each.number].rows_by_key("question_id", named=True, unique=True)
        for each in (base, other)
    )

    def flips(ids: Sequence[str]) -> list[Flip]:
        return [
            Flip(id, before[id]["question"], before[id]["answers"], after[id]["answers"], before[id]["gold"])
            for id in ids
        ]

    return Flips(other, flips(comparison.lost), flips(comparison.won))


def _compare(
    base: RunConfiguration, other: RunConfiguration, score: str, clusters: Clusters | None, scoring: ScoringConfig
) -> Comparison:
    pair = pair_scores(base.rows, other.rows, score)
    if pair.is_empty():
        raise UserError(f"{base.name} and {other.name} have no question in common with the score {score}")
    before, after = (pair[name].to_numpy() for name in ("base", "other"))
    labels = clusters.of_pair(pair) if clusters else None
    return Comparison(
        configuration=other,
        questions=pair.height,
        sources=pair.height if labels is None else len(np.unique(labels)),
        base=float(before.mean()),
        other=float(after.mean()),
        difference=difference(pair, clusters, scoring),
        exact_p=exact_p(pair, clusters),
        won=pair.filter(WON)["question_id"].to_list(),
        lost=pair.filter(LOST)["question_id"].to_list(),
        base_failed=count_failed(base, pair),
        failed=count_failed(other, pair),
        base_cost=mean_cost(base, pair),
        cost=mean_cost(other, pair),
        confidence=scoring.confidence,
    )


def count_failed(configuration: RunConfiguration, questions: pl.DataFrame) -> int:
    """Count those of the questions whose `question_id` is given that failed."""
    return configuration.rows.join(questions, on="question_id", how="semi").filter(pl.col("status") == "failed").height


def mean_cost(configuration: RunConfiguration, questions: pl.DataFrame) -> Cost:
    """Return the mean cost of the questions whose `question_id` is given."""
    rows = configuration.rows.join(questions, on="question_id", how="semi")
    both = pl.col("prompt_tokens") + pl.col("completion_tokens")
    calls, tokens, wall_s = rows.select(pl.col("llm_calls").mean(), both.mean(), pl.col("wall_s").mean()).row(0)
    return Cost(calls, tokens, None if simulated(configuration.label) else wall_s)
