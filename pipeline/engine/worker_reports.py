"""What workers report while a run goes on: the figures of the progress bar (`progress.py`).

A figure of the bar needs a field here, which is summed over the rows of all workers.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple, TypeVar

import orjson

from pipeline.text import error_kind
from pipeline.traces.schema import TraceRow

NumberT = TypeVar("NumberT", int, float)

LONG_WAIT_S = 30.0
"""Seconds of a model call or of a lookup after which the progress bar shows what waits for it."""


@dataclass(frozen=True, slots=True)
class FinishedRows:
    """Sums over rows that have finished."""

    questions: int = 0
    hits: float = 0.0
    scored: int = 0
    """Rows with gold answers: the denominator of `hits`."""
    failed: int = 0
    loop_lag_s: float = 0.0
    """The longest time that anything blocked the worker's event loop."""
    of_configurations: Mapping[int, tuple[float, int]] = field(default_factory=dict)
    """`hits` and `scored` per configuration."""
    errors: Mapping[str, str] = field(default_factory=dict)
    """Kind of error → one such error of a failed row, with its traceback."""
    replayed: int = 0
    """Rows whose calls the run had all made before it went on, which say nothing about its speed."""
    failing: frozenset[tuple[str, str, str]] = frozenset()
    """Dataset, split and id of each question that failed, also if it failed in several configurations."""
    calls_of: Mapping[int, tuple[int, int]] = field(default_factory=dict)
    """Model calls per configuration, and those with a reply that could not be read."""

    @classmethod
    def of(cls, row: TraceRow, *, is_replayed: bool = False) -> FinishedRows:
        """Return the sums of one row."""
        question, hit = row.example.question, row.scores.hits_at_1
        scored = (hit or 0.0, int(hit is not None))
        failed = row.answer.status == "failed"
        errors = {error_kind(row.error or ""): _details(row)} if failed else {}
        of_configurations = {row.configuration: scored}
        counts = (1, *scored, int(failed))
        return cls(
            *counts,
            of_configurations=of_configurations,
            errors=errors,
            replayed=int(is_replayed),
            failing=frozenset([(question.dataset, question.split, question.id)] if failed else []),
            calls_of={row.configuration: (row.counters.llm_calls, row.counters.parse_failures)},
        )

    def __add__(self, other: FinishedRows) -> FinishedRows:
        return FinishedRows(
            self.questions + other.questions,
            self.hits + other.hits,
            self.scored + other.scored,
            self.failed + other.failed,
            max(self.loop_lag_s, other.loop_lag_s),
            _added(self.of_configurations, other.of_configurations),
            {**other.errors, **self.errors},
            self.replayed + other.replayed,
            self.failing | other.failing,
            _added(self.calls_of, other.calls_of),
        )


def _added(
    one: Mapping[int, tuple[NumberT, int]], other: Mapping[int, tuple[NumberT, int]]
) -> dict[int, tuple[NumberT, int]]:
    """Return the sums of two pairs of figures per configuration."""
    both = dict(one)
    for configuration, (first, second) in other.items():
        so_far = both.get(configuration)
        both[configuration] = (first, second) if so_far is None else (so_far[0] + first, so_far[1] + second)
    return both


class LongCalls(NamedTuple):
    """The questions of a worker that wait long for a reply of their model, which the progress bar shows."""

    questions: int
    """Their number."""
    longest_s: float
    """Seconds that the longest of their calls has taken so far."""
    question_id: str
    """The question that waits for it."""
    is_oracle: bool = False
    """Whether the oracle replies, which looks the answer up in the graph."""


class LongLookups(NamedTuple):
    """The lookups that wait long for a graph server, which the progress bar shows."""

    servers: Sequence[str]
    """The servers that they wait for."""
    longest_s: float
    """Seconds that the longest of them has taken so far."""


WaitT = TypeVar("WaitT", LongCalls, LongLookups)


class Standing(NamedTuple):
    """What a worker is doing at present."""

    calls: LongCalls | None = None
    lookups: LongLookups | None = None
    open_rows: Mapping[int, int] = {}
    """The number of an unfinished shard → its rows that have finished, of which `on_progress` does not know yet."""

    @classmethod
    def of_all(cls, standings: Sequence[Standing]) -> Standing:
        """Return that of several workers, of which two may run the same shard."""
        calls = [each.calls for each in standings if each.calls]
        lookups = [each.lookups for each in standings if each.lookups]
        rows: dict[int, int] = {}
        for shard, number in (pair for each in standings for pair in each.open_rows.items()):
            rows[shard] = max(number, rows.get(shard, 0))
        return cls(
            calls=_longest(calls)._replace(questions=sum(each.questions for each in calls)) if calls else None,
            lookups=_longest(lookups)._replace(servers=sorted({url for each in lookups for url in each.servers}))
            if lookups
            else None,
            open_rows=rows,
        )


def _longest(waits: Sequence[WaitT]) -> WaitT:
    return max(waits, key=lambda wait: wait.longest_s)


def _details(row: TraceRow) -> str:
    """Return the traceback of a failed row; its error if there is none."""
    recorded = [orjson.loads(step.payload) for step in row.steps if step.role == "error" and step.payload]
    return str(recorded[-1].get("traceback", row.error)).rstrip() if recorded else str(row.error)
