"""Reads what the traces of a run say beyond the scores: losses, the cost of roles, seconds, and repetitions."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import polars as pl

from pipeline.analysis.losses import clusters, loss_shares
from pipeline.analysis.runs import Run, open_run
from pipeline.traces.storage import StoragePath

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


def read_details(folder: StoragePath) -> dict[int, Details]:
    """Return the details of each configuration of a run by its number. Raises UserError like `open_run`."""
    run = open_run(folder)
    columns = ("configuration", "question_id", "right", "stage", "reason", "role", "departure")
    losses = run.losses().select(columns).collect().lazy()
    scored = _by_configuration(losses.group_by("configuration").agg(pl.len()))
    lost = _by_configuration(loss_shares(losses))
    groups = _by_configuration(clusters(losses, by_path=False).group_by("configuration").head(_MOST_GROUPS))
    roles = _by_configuration(run.role_costs().drop("shared"))
    repetitions = _by_configuration(run.repetition_effects().drop("corrected", "damaged"))
    seconds = _by_configuration(_seconds(run))
    return {
        number: Details(
            scored=scored[number][0]["len"] if number in scored else 0,
            lost={row["stage"]: row["lost"] for row in lost.get(number, ())},
            groups=[LossGroup(**row) for row in groups.get(number, ())],
            roles=[RoleCost(**row) for row in roles.get(number, ())],
            repetitions=[Repetition(**row) for row in repetitions.get(number, ())],
            seconds=[value for row in seconds.get(number, ()) for value in row.values() if value is not None],
        )
        for number in range(len(run.metadata["points"]))
    }


def _seconds(run: Run) -> pl.LazyFrame:
    own = pl.col("critical_s")
    names = {f"p{share}": own.quantile(share, "linear") for share in QUANTILES}
    return run.questions.group_by("configuration").agg(**names)


def _by_configuration(frame: pl.LazyFrame) -> dict[int, list[dict[str, Any]]]:
    parts = frame.collect().partition_by("configuration", as_dict=True, include_key=False, maintain_order=True)
    return {int(number): part.to_dicts() for (number,), part in parts.items()}
