"""Reads what the traces of a run say beyond the scores: losses, the cost of roles, seconds, and repetitions."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import polars as pl

from pipeline.analysis import losses
from pipeline.analysis.effects import REPEATED, add_role_counts, count_roles, repetition_effects

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
    """The share of the replies that could not be read."""

    @property
    def tokens(self) -> int:
        """Prompt and completion tokens."""
        return self.prompt_tokens + self.completion_tokens


@dataclass(frozen=True, slots=True)
class Repetition:
    """The questions on which a method edited, refined or reflected so many times."""

    of: str
    """`edits`, `refinements` or `reflections`."""
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


TRACE_COLUMNS = tuple(dict.fromkeys((*losses.TRACE_COLUMNS, "corrected", "damaged", "critical_s")))
"""The columns of the traces that `Tally.add` reads."""
_LOSS = ("configuration", "question_id", "right", "stage", "reason", "role")


class Tally:
    """Keeps what the details need, shard by shard, so that the traces are read once."""

    def __init__(self) -> None:
        """Begin with no shard."""
        self._losses: list[pl.DataFrame] = []
        self._roles: list[pl.DataFrame] = []
        self._repeated: list[pl.DataFrame] = []
        self._questions: list[pl.DataFrame] = []

    def add(self, rows: pl.DataFrame) -> None:
        """Add the rows of a shard, which have the `TRACE_COLUMNS`."""
        configuration = pl.col("point").alias("configuration")
        self._losses.append(losses.loss_rows(rows).select(_LOSS))
        self._questions.append(
            rows.select(configuration, "question_id", "hits_at_1", "corrected", "damaged", "critical_s")
        )
        steps = _steps(rows)
        self._roles.append(count_roles(steps.lazy()).collect())
        self._repeated.append(steps.filter(pl.col("kind") == "decision", pl.col("role").is_in(list(REPEATED))))

    def details(self, configurations: int) -> dict[int, Details]:
        """Return the details of each configuration by its number."""
        lost_rows, questions, repeated = (
            pl.concat(parts).lazy() for parts in (self._losses, self._questions, self._repeated)
        )
        scored = _by_configuration(lost_rows.group_by("configuration").agg(pl.len()))
        lost = _by_configuration(losses.loss_shares(lost_rows))
        groups = losses.clusters(lost_rows, by_path=False).group_by("configuration", maintain_order=True)
        largest = _by_configuration(groups.head(_MOST_GROUPS))
        roles = _by_configuration(add_role_counts(pl.concat(self._roles).lazy()).drop("shared"))
        repetitions = _by_configuration(repetition_effects(questions, repeated).drop("corrected", "damaged"))
        seconds = _by_configuration(_seconds(questions))
        return {
            number: Details(
                scored=scored[number][0]["len"] if number in scored else 0,
                lost={row["stage"]: row["lost"] for row in lost.get(number, ())},
                groups=[LossGroup(**row) for row in largest.get(number, ())],
                roles=[RoleCost(**row) for row in roles.get(number, ())],
                repetitions=[Repetition(**row) for row in repetitions.get(number, ())],
                seconds=[value for row in seconds.get(number, ()) for value in row.values() if value is not None],
            )
            for number in range(configurations)
        }


def _seconds(questions: pl.LazyFrame) -> pl.LazyFrame:
    own = pl.col("critical_s")
    names = {f"p{share}": own.quantile(share, "linear") for share in QUANTILES}
    return questions.group_by("configuration").agg(**names)


def _steps(rows: pl.DataFrame) -> pl.DataFrame:
    """Return what is counted of each step."""
    exploded = rows.select(pl.col("point").alias("configuration"), "question_id", "steps").explode("steps")
    fields = ("kind", "role", "shared", "own_s", "prompt_tokens", "completion_tokens", "error")
    named = (pl.col("steps").struct.field(name) for name in fields)
    return exploded.drop_nulls("steps").select("configuration", "question_id", *named)


def _by_configuration(frame: pl.LazyFrame) -> dict[int, list[dict[str, Any]]]:
    parts = frame.collect().partition_by("configuration", as_dict=True, include_key=False, maintain_order=True)
    return {int(number): part.to_dicts() for (number,), part in parts.items()}
