"""Reads what the traces of a run say beyond the scores: losses, the cost of roles, seconds, and repetitions."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import polars as pl

from pipeline.analysis import losses
from pipeline.analysis.effects import REPEATED

_MOST_GROUPS = 3
"""Groups of questions lost in the same way that are kept of each configuration."""
QUANTILES = (0.5, 0.9, 0.99)
"""Of the seconds of a question."""


@dataclass(frozen=True, slots=True)
class RoleCost:
    """What the calls of one role cost, over all questions of a configuration."""

    role: str
    calls: int
    prompt_tokens: int
    completion_tokens: int
    seconds: float
    """Of the model alone."""
    parse_failures: float
    """The share of calls whose reply could not be read."""

    @property
    def tokens(self) -> int:
        """Prompt and completion tokens."""
        return self.prompt_tokens + self.completion_tokens


@dataclass(frozen=True, slots=True)
class Repetition:
    """The questions on which a method edited, refined or retried so many times."""

    of: str
    """`edits`, `refinements` or `retries`."""
    times: int
    questions: int
    hits_at_1: float | None


@dataclass(frozen=True, slots=True)
class LossGroup:
    """Wrong questions that were lost in the same way."""

    stage: str
    reason: str
    role: str | None
    questions: int
    example: str
    """The id of one of them."""


@dataclass(frozen=True, slots=True)
class Details:
    """What the traces of a configuration say beyond its scores."""

    scored: int = 0
    """Questions with gold answers."""
    lost: Mapping[str, int] | None = None
    """Wrong questions by stage of loss."""
    groups: Sequence[LossGroup] = ()
    """The largest groups of wrong questions."""
    roles: Sequence[RoleCost] = ()
    repetitions: Sequence[Repetition] = ()
    seconds: Sequence[float] = ()
    """The `QUANTILES` of the seconds of a question's own waiting; empty if they are not known."""


TRACE_COLUMNS = tuple(dict.fromkeys((*losses.TRACE_COLUMNS, "critical_s")))
"""The columns of the traces that `Tally.add` reads."""
_GROUP = ("configuration", "stage", "reason", "role")
_ROLE = ("configuration", "role")


class Tally:
    """Counts what the details need, shard by shard: the traces are read once, and may be larger than memory."""

    def __init__(self) -> None:
        """Begin with no shard."""
        self._groups: list[pl.DataFrame] = []
        self._roles: list[pl.DataFrame] = []
        self._times: list[pl.DataFrame] = []
        self._questions: list[pl.DataFrame] = []

    def add(self, rows: pl.DataFrame) -> None:
        """Count the rows of a shard, which have the `TRACE_COLUMNS`."""
        lost = losses.loss_rows(rows).group_by(_GROUP, maintain_order=True)
        self._groups.append(lost.agg(pl.len().alias("questions"), pl.col("question_id").first().alias("example")))
        questions = rows.select(pl.col("point").alias("configuration"), "question_id", "hits_at_1", "critical_s")
        self._questions.append(questions.drop("question_id"))
        steps = _steps(rows)
        calls = steps.filter(pl.col("kind") == "llm").group_by(_ROLE, maintain_order=True)
        sums = pl.col("prompt_tokens", "completion_tokens", "own_s").sum()
        unread = pl.col("error").is_not_null().sum()
        self._roles.append(calls.agg(pl.len().cast(pl.Int64).alias("calls"), sums, unread))
        repeated = steps.filter(pl.col("role").is_in(list(REPEATED)), pl.col("kind") == "decision")
        times = repeated.group_by(*_ROLE, "question_id").agg(pl.len().alias("times"))
        scored = times.join(questions, on=("configuration", "question_id")).group_by(*_ROLE, "times")
        hits = pl.col("hits_at_1")
        self._times.append(scored.agg(pl.len().alias("questions"), hits.sum(), hits.count().alias("scored")))

    def details(self, configurations: int) -> dict[int, Details]:
        """Return the details of each configuration by its number."""
        of_group = pl.concat(self._groups).group_by(_GROUP, maintain_order=True)
        groups = of_group.agg(pl.col("questions").sum(), pl.col("example").first())
        scored = _by_configuration(groups.group_by("configuration").agg(pl.col("questions").sum()))
        wrong = groups.drop_nulls("stage")
        lost = _by_configuration(wrong.group_by("configuration", "stage").agg(pl.col("questions").sum()))
        by_size = wrong.sort("questions", *_GROUP, descending=[True, *(False for _ in _GROUP)], nulls_last=True)
        largest = _by_configuration(by_size.group_by("configuration", maintain_order=True).head(_MOST_GROUPS))
        roles, repetitions = _by_configuration(self._role_costs()), _by_configuration(self._repetitions())
        seconds = _by_configuration(self._seconds())
        return {
            number: Details(
                scored=scored[number][0]["questions"] if number in scored else 0,
                lost={row["stage"]: row["questions"] for row in lost.get(number, ())},
                groups=[LossGroup(**row) for row in largest.get(number, ())],
                roles=[RoleCost(**row) for row in roles.get(number, ())],
                repetitions=[Repetition(**row) for row in repetitions.get(number, ())],
                seconds=[value for row in seconds.get(number, ()) for value in row.values() if value is not None],
            )
            for number in range(configurations)
        }

    def _role_costs(self) -> pl.DataFrame:
        """Return the costs of each role of a configuration, the most tokens first."""
        totals = pl.concat(self._roles).group_by(_ROLE).agg(pl.all().sum())
        shares = totals.with_columns((pl.col("error") / pl.col("calls")).alias("parse_failures")).drop("error")
        ordered = shares.rename({"own_s": "seconds"})
        return ordered.sort("configuration", "prompt_tokens", "role", descending=[False, True, False])

    def _repetitions(self) -> pl.DataFrame:
        """Return the questions with 0, 1, 2, … edits, refinements or retries, where a configuration has any."""
        some = pl.concat(self._times).group_by(*_ROLE, "times").agg(pl.all().sum())
        hits = pl.col("hits_at_1")
        of_all = pl.concat(self._questions).group_by("configuration")
        totals = of_all.agg(pl.len().alias("questions"), hits.sum(), hits.count().alias("scored"))
        counts = ("questions", "hits_at_1", "scored")
        repeated = some.group_by(_ROLE).agg(pl.col(counts).sum()).join(totals, on="configuration", suffix="_of_all")
        rest = repeated.select(*_ROLE, *(pl.col(f"{name}_of_all") - pl.col(name) for name in counts))
        never = rest.rename({f"{name}_of_all": name for name in counts}).filter(pl.col("questions") > 0)
        both = pl.concat([some, never.with_columns(pl.lit(0).alias("times"))], how="diagonal_relaxed")
        shares = both.with_columns(pl.when(pl.col("scored") > 0).then(hits / pl.col("scored")).alias("hits_at_1"))
        named = shares.with_columns(pl.col("role").replace(REPEATED).alias("of"))
        return named.sort("configuration", "of", "times").select("configuration", "of", "times", *counts[:2])

    def _seconds(self) -> pl.DataFrame:
        own = pl.col("critical_s")
        names = {f"p{share}": own.quantile(share, "linear") for share in QUANTILES}
        return pl.concat(self._questions).group_by("configuration").agg(**names)


def _steps(rows: pl.DataFrame) -> pl.DataFrame:
    """Return what is counted of each step."""
    exploded = rows.select(pl.col("point").alias("configuration"), "question_id", "steps").explode("steps")
    fields = ("kind", "role", "own_s", "prompt_tokens", "completion_tokens", "error")
    named = (pl.col("steps").struct.field(name) for name in fields)
    return exploded.drop_nulls("steps").select("configuration", "question_id", *named)


def _by_configuration(frame: pl.DataFrame) -> dict[int, list[dict[str, Any]]]:
    parts = frame.partition_by("configuration", as_dict=True, include_key=False, maintain_order=True)
    return {int(number): part.to_dicts() for (number,), part in parts.items()}
