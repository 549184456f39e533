"""The steps, counters and budget of one question in one configuration (specification §2.5).

The columns of a trace row are in `pipeline/traces/schema.py`.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import orjson

from pipeline import branches
from pipeline.engine.budget import Budget
from pipeline.engine.gold_trail import GoldTrail
from pipeline.errors import BudgetExhausted, OutOfTime
from pipeline.traces.schema import Counters, Step
from pipeline.types import Gold

_TRAIL_EVENTS: Mapping[str, Callable[..., None]] = {"kept": GoldTrail.keep, "cut": GoldTrail.cut}
"""The events of which the trace holds only what concerns the gold answers: all of it would be most of the trace."""


class QuestionRecord:
    """The steps and counters of one question in one configuration."""

    def __init__(
        self,
        budget: Budget,
        most_llm_calls: float = math.inf,
        trail: GoldTrail | None = None,
    ) -> None:
        """Start the clock. The current task is the one that answers the question."""
        self.budget = budget
        self.trail = trail or GoldTrail(Gold())
        self.most_llm_calls = most_llm_calls
        """How many calls the method may make, besides one to answer."""
        self.counters = Counters()
        self.steps: list[Step] = []
        self.exhausted: str | None = None
        self.followed: set[str] = set()
        """The relations that the method followed, and their inverses, which state the same facts."""
        self.critical_steps: Sequence[int] = ()
        """The steps whose `own_s` add up to `critical_s`. Set at the end."""
        self.follows: dict[int, Sequence[int]] = {}
        """The steps that each call and lookup follows."""
        self._began = time.perf_counter()
        self._root = branches.begin_question()

    def open(self, kind: str, role: str) -> Step:
        """Append a step that starts now."""
        step = Step(len(self.steps), kind, role, time.perf_counter() - self._began)
        self.steps.append(step)
        if kind == "decision":
            self._branch().last_decision = step.index
        else:
            self.follows[step.index] = self._branch().add(step.index)
        return step

    def _branch(self) -> branches.Branch:
        """Return the part of the question that the current task runs; the first one for a task of no question."""
        branch = branches.current()
        return branch if branch is not None and branch.root is self._root else self._root

    def close(self, step: Step) -> float:
        """Set the duration of a step and return it, in seconds."""
        step.duration_s = step.own_s = time.perf_counter() - self._began - step.start_s
        return step.duration_s

    def add_decision(self, event: str, /, **payload: object) -> None:
        """Append a decision of the method (specification §2.6)."""
        if event in _TRAIL_EVENTS:
            self._follow(event, payload)
            return
        if event == "cap_hit":
            self.counters.at_limit = 1
        if event == "without_plan":
            self.counters.without_plan = 1
        self.open("decision", event).payload = to_json(payload)

    def _follow(self, event: str, payload: Mapping[str, Any]) -> None:
        """Note in the trail what survived a selection (`kept`) or what code dropped (`cut`)."""
        try:
            _TRAIL_EVENTS[event](self.trail, self._branch().latest, **payload)
        except TypeError as error:
            raise TypeError(f"the event {event} has other fields: {error}") from None

    def spend_call(self, *, last: bool) -> None:
        """Count a model call. Raises BudgetExhausted if a limit is met, except for the `last` call, which answers."""
        if not last:
            self._check("max_llm_calls", self.counters.llm_calls, self.most_llm_calls)
            self._check_clock()
        self.counters.llm_calls += 1

    def spend_lookup(self) -> None:
        """Count a batched lookup. Raises BudgetExhausted if a limit is met."""
        self._check("max_kg_queries", self.counters.kg_lookups, self.budget.max_kg_queries)
        self._check_clock()
        self.counters.kg_lookups += 1

    def finish(self) -> Counters:
        """Stop the clock and return the counters."""
        self.counters.wall_s = time.perf_counter() - self._began
        self.critical_steps = self._longest_sequence()
        waits = [self.steps[index].own_s for index in self.follows]
        path = [self.steps[index].own_s or 0.0 for index in self.critical_steps]
        self.counters.critical_s = None if None in waits else sum(path)
        return self.counters

    def _longest_sequence(self) -> list[int]:
        """Return the sequence of calls and lookups, each of which follows the one before it, that took longest.

        A shared call counts as long as the model took for it, and a step whose `own_s` is not known 0 seconds.
        """
        ends: dict[int, tuple[float, int | None]] = {}
        for index, follows in self.follows.items():
            before = max(follows, key=lambda each: ends[each][0], default=None)
            waited_s = 0.0 if before is None else ends[before][0]
            ends[index] = (waited_s + (self.steps[index].own_s or 0.0), before)
        last = max(ends, key=lambda each: ends[each][0], default=None)
        path: list[int] = []
        while last is not None:
            path.append(last)
            last = ends[last][1]
        return path[::-1]

    def _check_clock(self) -> None:
        self._check("max_wall_s", time.perf_counter() - self._began, self.budget.max_wall_s, OutOfTime)

    def _check(self, limit: str, spent: float, allowed: float, kind: type[BudgetExhausted] = BudgetExhausted) -> None:
        if spent >= allowed:
            if self.exhausted is None:
                self.exhausted = limit
                self.add_decision("cap_hit", cap=limit)
            raise kind(f"{limit} of {allowed} reached")


def to_json(value: Any) -> str:
    """Return compact JSON of a decision or of a prompt's inputs. Raises TypeError for what has no form in JSON."""
    try:
        return orjson.dumps(value, default=_as_json_value).decode()
    except TypeError as error:
        raise TypeError(f"a trace holds only what JSON can hold: {error.__cause__ or error}") from None


def _as_json_value(value: object) -> object:
    if isinstance(value, tuple):
        return list(value)
    hint = ", sort it into a list" if isinstance(value, set | frozenset) else ""
    raise TypeError(f"{type(value).__name__} has no form in JSON{hint}")
