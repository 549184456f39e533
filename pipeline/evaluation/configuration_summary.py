"""Averages a run's trace rows per configuration, for `summary.json` and all tables (specification §9.2, §9.6)."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field, fields
from typing import Any, Protocol, Self, TypeVar

import numpy as np
import polars as pl
from pydantic import TypeAdapter

from pipeline.errors import UserError
from pipeline.evaluation.config import ScoringConfig
from pipeline.evaluation.question_groups import SOURCE, meta_groups, source_labels
from pipeline.evaluation.rescore import SCORES
from pipeline.evaluation.statistics import Estimate, Values, estimate_mean
from pipeline.llm.interface import is_closed_book, is_told_gold, replies_from_gold, simulated
from pipeline.suggestions import did_you_mean
from pipeline.traces.schema import Counters

T = TypeVar("T")

STANDARD_SCORES = {"hits_at_1": "Hits@1", "f1": "F1"}
"""Headings of the scores that every table has, by score."""
SECONDS = "critical_s"
"""The counter of the seconds of a question's own waiting."""
_COUNTERS = tuple(each.name for each in fields(Counters))
SUMMARY_COLUMNS = ("point", "method", "dataset", "status", "gold", "meta", *SCORES, *_COUNTERS)
"""The trace columns that `group_equal_rows` reads."""
_EQUAL_COLUMNS = ("point", "method", "dataset", "status", "empty_gold", "meta", *SCORES)
_MERGE_SIZE = 20_000
"""Groups of several parts are merged when there are more of them than this."""


@dataclass(frozen=True, slots=True)
class RequestedConfiguration:
    """What a run was asked to do for one configuration. Its trace rows do not contain this."""

    overrides: tuple[str, ...] = ()
    """The Hydra overrides of the configuration."""
    label: str | None = None
    """Printed with its scores: the simulated model, such as `oracle`, or `APPROXIMATE`. None for a language model."""
    questions: int | None = None
    """Questions requested; None for the number of rows."""
    retriever: str | None = None
    """The name of its retriever; None if it is not known, as for a file of predictions."""
    departures: tuple[str, ...] = ()
    """Where a preset did not run as published; empty for any other configuration."""
    asked: str | None = None
    """A digest of the choice of questions and of the graph; None if it is not known."""


@dataclass(frozen=True, slots=True)
class Group:
    """The questions of a configuration with one value of a `meta` field."""

    value: str
    questions: int
    """The number of those with gold answers, over which the scores are."""
    scores: Mapping[str, Estimate]


@dataclass(frozen=True, slots=True)
class ConfigurationSummary:
    """The scores and costs of one configuration. Scores are means over questions in [0, 1]; failed ones are wrong."""

    number: int
    """The position in the run, from 0; `point` in `summary.json`."""
    method: str
    dataset: str
    overrides: tuple[str, ...]
    label: str | None
    questions: int
    """Questions requested."""
    not_run: int
    """Requested questions that are not answered yet; scores exclude them. 0 once the run is complete."""
    failed: int
    empty_gold: int
    """Questions without a gold answer; scores exclude them unless `empty_gold` is `strict_empty`."""
    statuses: Mapping[str, int]
    scores: Mapping[str, Estimate]
    """The scores by column name, without those that no question has."""
    confidence: float
    """Coverage of the intervals."""
    counters: Mapping[str, float]
    """Totals over questions, as if the configuration had run alone, without those that a question does not know."""
    breakdown: Mapping[str, Sequence[Group]] = field(default_factory=dict)
    retriever: str | None = None
    """The name of its retriever; None if it is not known."""
    departures: tuple[str, ...] = ()
    """Where a preset did not run as published."""
    asked: str | None = None
    """A digest of the choice of questions and of the graph; None if it is not known."""
    sources: int | None = None
    """The number of sources of the answered questions, by which intervals are clustered; None if they share none."""

    def score(self, name: str) -> float:
        """Return the mean of a score. Raises UserError if no question has it."""
        if name not in self.scores:
            raise UserError(f"no question has the score '{name}'.{did_you_mean(name, self.scores)}")
        return self.scores[name].mean

    @property
    def answered(self) -> int:
        """The questions that were asked so far."""
        return self.questions - self.not_run

    @property
    def simulated(self) -> str | None:
        """What answered in place of a language model, to all prompts or to those of some roles; None if nothing did."""
        return simulated(self.label)

    @property
    def from_gold(self) -> bool:
        """Whether a simulated model replied from the gold answers, to all prompts or to those of some roles."""
        return replies_from_gold(self.label)

    @property
    def closed_book(self) -> bool:
        """Whether such a model replied, and nothing was looked up in the graph: the score is then the model's alone."""
        return is_closed_book(self.label, self.counters.get("llm_calls"), self.counters.get("kg_lookups"))

    @property
    def unreadable_share(self) -> float | None:
        """The share of the model calls with a reply that no parser could read; None if that is not known."""
        calls, unreadable = self.counters.get("llm_calls"), self.counters.get("parse_failures")
        return unreadable / calls if calls and unreadable is not None else None

    def to_dict(self) -> dict[str, Any]:
        """Return the entry of `summary.json`: every score by name, null if no question has it."""
        return {
            "point": self.number,
            "method": self.method,
            "dataset": self.dataset,
            "overrides": list(self.overrides),
            "label": self.label,
            "from_gold": self.from_gold,
            "closed_book": self.closed_book,
            "retriever": self.retriever,
            "departures": list(self.departures),
            "asked": self.asked,
            "sources": self.sources,
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
            "unreadable_share": self.unreadable_share,
            "breakdown": {
                column: [_group_to_dict(group) for group in groups] for column, groups in self.breakdown.items()
            },
        }

    @classmethod
    def from_dict(cls, saved: Mapping[str, Any]) -> Self:
        """Read an entry of `summary.json`. Raises KeyError if a field that `to_dict` writes is missing.

        Raises TypeError or ValueError for values of another type.
        """
        plain = ("method", "dataset", "label", "questions", "not_run", "failed", "empty_gold", "statuses")
        values = {
            "number": saved["point"],
            **{name: saved[name] for name in (*plain, "confidence")},
            "overrides": saved["overrides"],
            **{
                name: saved[name] for name in ("retriever", "departures", "asked", "sources") if name in saved
            },  # newer than some files
            "scores": _scores_from_dict(saved, saved["scored"]),
            "counters": {name: saved[name] for name in (*_COUNTERS, "tokens") if name in saved},
            "breakdown": {field: list(map(_group_from_dict, groups)) for field, groups in saved["breakdown"].items()},
        }
        return TypeAdapter(cls).validate_python(values)


def differing_overrides(overrides: Sequence[Sequence[str]]) -> list[list[str]]:
    """Return, for each configuration, the overrides that not all configurations share."""
    shared = set.intersection(*map(set, overrides))
    return [[word for word in words if word not in shared] for words in overrides]


def rivals(configurations: Sequence[tuple[str | None, int, bool]]) -> list[int]:
    """Return the positions of those of which one can be called the best, by `asked`, `questions` and `is_oracle`.

    They were asked the most questions: early stopping asks the others only some. Oracles are left out if there are
    others. Returns none if two configurations were asked other questions, or of another graph.
    """
    if len({digest for digest, _, _ in configurations}) > 1:
        return []
    most = max(questions for _, questions, _ in configurations)
    asked_all = [position for position, (_, questions, _) in enumerate(configurations) if questions == most]
    return without_oracles(asked_all, lambda position: configurations[position][2])


def without_oracles(candidates: Sequence[T], is_oracle: Callable[[T], bool]) -> list[T]:
    """Return those of which one can be called the best: without oracles, unless all are oracles."""
    return [each for each in candidates if not is_oracle(each)] or list(candidates)


class MayBeOracle(Protocol):
    """A configuration whose score may be that of an oracle."""

    @property
    def method(self) -> str:
        """The method's name in tables."""
        ...

    @property
    def closed_book(self) -> bool:
        """Whether the score is the simulated model's alone."""
        ...


def is_oracle(configuration: MayBeOracle) -> bool:
    """Whether a score cannot be compared: it is the simulated model's alone, or the method was told gold answers."""
    return configuration.closed_book or is_told_gold(configuration.method)


def lacking_in_oracles(best: MayBeOracle, configurations: Iterable[MayBeOracle]) -> list[str]:
    """Return what the best has done, and the oracles have not that `without_oracles` has left out to find it."""
    left_out = [] if is_oracle(best) else [each for each in configurations if is_oracle(each)]
    asked = ["asked the graph or a language model"] * any(each.closed_book for each in left_out)
    return asked + ["got no gold answers"] * any(is_told_gold(each.method) for each in left_out)


def among_others(best: MayBeOracle, configurations: Iterable[MayBeOracle]) -> str:
    """Return ` of those that …`, where `without_oracles` has left some out to find the best; else an empty text."""
    alone = " and ".join(lacking_in_oracles(best, configurations))
    return f" of those that {alone}" if alone else ""


def best_first(summaries: Sequence[ConfigurationSummary]) -> list[int]:
    """Return the positions of the configurations with the highest Hits@1 among `rivals`, the cheapest first.

    The cheapest has the fewest calls, and of equal ones the fewest tokens.
    """
    among = rivals([(each.asked, each.questions, is_oracle(each)) for each in summaries])
    standings = {each: _standing(summaries[each]) for each in among}
    ranked = sorted(among, key=standings.__getitem__, reverse=True)
    return [each for each in ranked if standings[each][0] == standings[ranked[0]][0]]


def standing(hits_at_1: float | None, calls: float, tokens: float) -> tuple[float, float, float]:
    """Return what is largest for the best of some `rivals`: of those with equal Hits@1, the one with the lowest costs.

    Calls and tokens are totals over the questions. Tokens that are not known count as many.
    """
    return -1.0 if hits_at_1 is None else hits_at_1, -calls, -known_tokens(calls, tokens)


def known_tokens(calls: float, tokens: float) -> float:
    """Return the tokens of some calls; infinity if the server did not report them."""
    return math.inf if calls and not tokens else tokens


def _standing(summary: ConfigurationSummary) -> tuple[float, float, float]:
    hits = summary.scores["hits_at_1"].mean if "hits_at_1" in summary.scores else None
    return standing(hits, summary.counters.get("llm_calls", 0), summary.counters.get("tokens", 0))


def group_equal_rows(parts: Iterable[pl.DataFrame]) -> pl.DataFrame:
    """Group rows with equal scores, status and `meta`, so that a run of any length needs little memory.

    Each part needs `SUMMARY_COLUMNS`; the counters may be missing. The result has one row per group, with the number of
    `questions` and the sums of the counters.
    """
    groups: list[pl.DataFrame] = []
    unmerged = 0
    for part in parts:
        groups.append(_merge([_one_row_per_question(part)]))
        unmerged += groups[-1].height
        if unmerged > max(_MERGE_SIZE, groups[0].height):  # the limit grows with the total, so merges stay rare
            groups, unmerged = [_merge(groups)], 0
    return _merge(groups)


def _one_row_per_question(rows: pl.DataFrame) -> pl.DataFrame:
    """Return the columns of the groups, with one row per question."""
    counters = [
        # a sum with an unknown number of seconds is not a number, and not the sum of the others
        pl.col(name).cast(pl.Float64).fill_null(math.nan) if name.endswith("_s") else pl.col(name).cast(pl.Int64)
        for name in _COUNTERS
        if name in rows.columns
    ]
    keys = [name for name in _EQUAL_COLUMNS if name != "empty_gold"]
    return rows.select(*keys, *counters, empty_gold=pl.col("gold").list.len() == 0, questions=1)


def _merge(groups: Sequence[pl.DataFrame]) -> pl.DataFrame:
    return pl.concat(groups).group_by(_EQUAL_COLUMNS, maintain_order=True).sum()


def aggregate(
    groups: pl.DataFrame,
    *,
    configurations: Mapping[int, RequestedConfiguration] | None = None,
    scoring: ScoringConfig,
) -> list[ConfigurationSummary]:
    """Average the questions of each configuration, in order of the numbers. `groups` is from `group_equal_rows`."""
    known = configurations or {}
    parts = (groups.filter(pl.col("point") == number) for number in groups["point"].unique().sort())

    def summarise(rows: pl.DataFrame) -> ConfigurationSummary:
        return _summarise(rows, known.get(rows["point"][0], RequestedConfiguration()), scoring)

    with ThreadPoolExecutor() as pool:  # resampling in NumPy releases the interpreter lock
        return list(pool.map(summarise, parts))


def _summarise(rows: pl.DataFrame, info: RequestedConfiguration, scoring: ScoringConfig) -> ConfigurationSummary:
    rows = rows.with_columns(SOURCE)
    first = rows.row(0, named=True)
    statuses = dict(rows.group_by("status").agg(pl.col("questions").sum()).sort("status").iter_rows())
    answered = int(rows["questions"].sum())
    questions = answered if info.questions is None else info.questions
    return ConfigurationSummary(
        number=first["point"],
        method=first["method"],
        dataset=first["dataset"],
        overrides=info.overrides,
        label=info.label,
        retriever=info.retriever,
        departures=info.departures,
        asked=info.asked,
        questions=questions,
        not_run=questions - answered,
        failed=statuses.get("failed", 0),
        empty_gold=int(rows.filter("empty_gold")["questions"].sum()),
        statuses=statuses,
        scores=_estimates(rows, SCORES, scoring),
        confidence=scoring.confidence,
        counters=_counters(rows),
        breakdown=_breakdown(rows, scoring),
        sources=None if (labels := source_labels(rows)) is None else len(np.unique(labels)),
    )


def _estimates(rows: pl.DataFrame, columns: Iterable[str], scoring: ScoringConfig) -> dict[str, Estimate]:
    return {
        column: estimate_mean(values, clusters=source_labels(scored), **scoring.bootstrap)
        for column in columns
        for scored in [rows.drop_nulls(column)]
        if len(values := _score_per_question(scored, column))
    }


def _score_per_question(scored: pl.DataFrame, column: str) -> Values:
    return np.repeat(scored[column].to_numpy(), scored["questions"].to_numpy())


def _counters(rows: pl.DataFrame) -> dict[str, float]:
    present = [name for name in _COUNTERS if name in rows.columns]
    totals: dict[str, float] = rows.select(pl.col(present).sum()).row(0, named=True) if present else {}
    if "prompt_tokens" in totals:
        totals["tokens"] = totals["prompt_tokens"] + totals["completion_tokens"]
    return {name: total for name, total in totals.items() if not math.isnan(total)}


def _breakdown(rows: pl.DataFrame, scoring: ScoringConfig) -> dict[str, tuple[Group, ...]]:
    """Group the questions by every field of `meta` that has several values, but not too many."""
    return {field: _groups(rows, values, scoring) for field, values in meta_groups(rows).items()}


def _groups(rows: pl.DataFrame, values: pl.Series, scoring: ScoringConfig) -> tuple[Group, ...]:
    ordered = sorted(values.drop_nulls().unique(), key=_natural_order)
    parts = ((value, rows.filter(values == value)) for value in ordered)
    return tuple(
        Group(
            value,
            int(part.drop_nulls("hits_at_1")["questions"].sum()),
            _estimates(part, STANDARD_SCORES, scoring),
        )
        for value, part in parts
    )


def _natural_order(value: str) -> tuple[int, str]:
    """Return a sort key that puts 2 before 10, and words in alphabetical order."""
    return (len(value) if value.isdigit() else 0, value)


def _group_to_dict(group: Group) -> dict[str, Any]:
    means = {name: score.mean for name, score in group.scores.items()}
    intervals = {name: [score.low, score.high] for name, score in group.scores.items()}
    return {"value": group.value, "questions": group.questions, **means, "intervals": intervals}


def _group_from_dict(saved: Mapping[str, Any]) -> dict[str, Any]:
    questions = dict.fromkeys(saved["intervals"], saved["questions"])
    return {"value": saved["value"], "questions": saved["questions"], "scores": _scores_from_dict(saved, questions)}


def _scores_from_dict(saved: Mapping[str, Any], questions: Mapping[str, int]) -> dict[str, Any]:
    return {
        name: {"mean": saved[name], "low": low, "high": high, "questions": questions[name]}
        for name, (low, high) in saved["intervals"].items()
    }
