"""A wrong question as its trace row shows it: the events of its trail, its gold paths, and its steps."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence, Set
from dataclasses import dataclass
from functools import cached_property
from typing import Any, NamedTuple

from pipeline.analysis.losses.stage_names import Reason
from pipeline.traces.schema import OVER_LIMIT, REFUSED_REPLIES
from pipeline.traces.trail import number_edges

NOT_EXPLORED = frozenset({"depth", "plan"})
"""What cuts nodes from further exploration only: their facts are still known."""


_DECIDED = frozenset({"beam", "sample", "similarity", "cap", "evidence"})
"""What drops something in a decision, which is recorded after it."""
_LOOKUPS = frozenset({"listed", "followed", "passed", "reached"})
"""The events of lookups along the edges of gold paths."""


class Event(NamedTuple):
    """An event of the trail, and its place in it."""

    at: int
    step: int
    event: str
    edge: int | None
    number: int | None
    of: int | None
    by: str | None


@dataclass(frozen=True)
class NumberedPath:
    """A gold path, with the numbers of its edges."""

    topic: str
    relations: Sequence[str]
    edges: Sequence[int]

    def departure(self, hop: int) -> str:
        """Print the path up to the edge at which it was left, from 0."""
        walked = " → ".join(["topic", *self.relations[:hop]])
        return f"{walked} ✗ {self.relations[hop]}" if hop < len(self.relations) else f"{walked} ✗"


def deciding_step(by: str | None, step: int, kinds: Sequence[str]) -> int:
    """Return the step at which code dropped something: the decision that it made, which comes after the event.

    The step of the event is the last one before it: a call or a lookup of any of the branches, or the decision of
    another branch. `kinds` are those of all steps. Where a limit of hops or a plan dropped it, no decision of its own
    follows.
    """
    has_decided = by in _DECIDED and step + 1 < len(kinds) and kinds[step + 1] == "decision"
    return step + 1 if has_decided else step


class TracedQuestion:
    """What the trail and the steps of a wrong question say. The rules for its loss build on it."""

    def __init__(self, row: Mapping[str, Any]) -> None:
        self._row = row
        self._steps: Sequence[Mapping[str, Any]] = row["steps"] or ()
        events = (tuple(event[name] for name in Event._fields[1:]) for event in row["trail"])
        self._search_end = math.inf
        self._events: Sequence[Event] = [Event(at, *event) for at, event in enumerate(events)]
        self._leave_out_later_lookups()

    @property
    def last_step(self) -> int | None:
        """The number of the last step; None without steps."""
        return self._steps[-1]["index"] if self._steps else None

    def _of(self, event: str, edge: int | None = None) -> list[Event]:
        return [each for each in self._events if each.event == event and each.edge == edge]

    def _step(self, number: int) -> Mapping[str, Any]:
        return self._steps[number] if number < len(self._steps) else {}  # a trace may come from anybody

    def _steps_of(self, kind: str) -> list[Mapping[str, Any]]:
        """Return the calls, or the lookups of the search."""
        until = self._search_end if kind == "kg" else math.inf
        return [step for step in self._steps if step["kind"] == kind and step["index"] <= until]

    def _leave_out_later_lookups(self) -> None:
        """Leave out the lookups along gold paths that code made after the call that answers: no model lost one there.

        If that call was not the last one, or chose relations, or code found a gold answer afterwards, the search went
        on. What the engine itself has looked up stands in the trail after the event `answered`.
        """
        answered = next((each for each in reversed(self._events) if each.event == "answered"), None)
        if answered is None or answered.step != max(self._calls(), default=None):
            return
        of_call = (each for each in self._events if each.step == answered.step and each.event == "written")
        later = [each for each in self._events if each.step > answered.step and each.at < answered.at]
        if any(each.edge is not None for each in of_call) or any(each.event == "found" for each in later):
            return
        self._search_end = answered.step
        left_out = {each.at for each in later if each.event in _LOOKUPS}
        self._events = [each for each in self._events if each.at not in left_out]

    @cached_property
    def _paths(self) -> Sequence[NumberedPath]:
        paths = [(path["topic"], path["relations"]) for path in self._row["gold_paths"] or ()]
        return [NumberedPath(*path, edges) for path, edges in zip(paths, number_edges(paths), strict=True)]

    @property
    def _is_counted(self) -> bool:
        """Whether the gold answer is a number, and a gold path was followed to at least so many nodes: a count."""
        numbers = [name for name in self._row["gold"] if name.isascii() and name.isdigit()]
        if len(numbers) != 1 or len(self._row["gold"]) != 1:
            return False
        ends = [event for path in self._paths for event in self._of("reached", path.edges[-1])]
        return bool(ends) and max(event.number or 0 for event in ends) >= int(numbers[0])

    @property
    def _at_limit(self) -> bool:
        return bool(self._row["at_limit"]) or self._row["status"] == "budget_exhausted"

    def _graph_or_cap(self, lookup: int) -> Reason:
        return "cap" if self._step(lookup).get("truncated") else "graph"

    def _model_reason(self, call: int | None) -> Reason:
        """Return `parse failure` if the reply of a call could not be read, `cap` if a limit refused it, or `model`."""
        if call is None:  # no call followed, so code ended the search
            return "cap"
        error = self._step(call).get("error") or ""
        return "cap" if error.startswith(OVER_LIMIT) else "parse failure" if error else "model"

    def _cause_of(self, cut: Event, offered: int) -> tuple[Reason, int]:
        """Return what cut something that was offered at a step, and the step: a beam only of replies that were read.

        Where code chose in place of a reply, the reply is the cause.
        """
        reason: Reason = "beam" if cut.by == "beam" else "cap"
        call = max((call for call in self._calls() if offered < call <= cut.step), default=None)
        if reason == "beam" and call is not None and self._step(call).get("error"):
            return self._model_reason(call), call
        decided = deciding_step(cut.by, cut.step, [step["kind"] for step in self._steps])
        if self._step(decided).get("role") in REFUSED_REPLIES:
            calls = (call for call in self._calls() if call < decided and self._step(call).get("error"))
            if (refused := max(calls, default=None)) is not None:
                return self._model_reason(refused), refused
        return reason, decided

    def _next_hop_after(self, step: int) -> float:
        """Return the number of the next lookup of neighbours; infinity if there is none."""
        hops = (each["index"] for each in self._steps_of("kg") if each["role"] == "neighbours")
        return min((hop for hop in hops if hop > step), default=math.inf)

    @property
    def _answering(self) -> set[int]:
        return {event.step for event in self._of("answered")}

    @cached_property
    def _tries_of_the_answer(self) -> set[int]:
        """The calls from which an answer was read, with the tries before them whose replies could not be read."""
        tries = set(self._answering)
        for step in reversed(self._steps_of("llm")):  # a try comes after the one that it repeats
            if step["index"] in tries and step.get("parent") is not None:
                tries.add(step["parent"])
        return tries

    def _last_try(self, call: int) -> int:
        """Return the last of the calls that asked again because the reply before could not be read."""
        for step in self._steps_of("llm"):
            if step.get("parent") == call:
                call = step["index"]
        return call

    def _lookups_after(self, step: int) -> bool:
        lookups = {"relations", "neighbours", "degrees"}
        return any(each["index"] > step and each["role"] in lookups for each in self._steps_of("kg"))

    def _calls(self) -> Iterator[int]:
        return (step["index"] for step in self._steps_of("llm"))

    def _call_before(self, step: int) -> int | None:
        return max((call for call in self._calls() if call < step), default=None)

    def _call_after(self, step: int) -> int | None:
        return min((call for call in self._calls() if call > step), default=None)

    @cached_property
    def _acting(self) -> Set[int]:
        """The calls of an agent that decide, if the answering call is one of several such calls: not its thoughts."""
        roles = {step["role"] for step in self._steps if step["index"] in self._answering}
        calls = [step for step in self._steps_of("llm") if step["role"] in roles]
        is_agent = sum(step.get("parent") is None for step in calls) > 1  # a retry is no further call
        return {step["index"] for step in calls} if is_agent else set()

    def _ending_call(self, after: int) -> int | None:
        """Return the call after a step that ended the search: the next one of an agent that decides, else the next."""
        return min((call for call in self._acting if call > after), default=self._call_after(after))

    def _answer_that_ended(self, after: int) -> int | None:
        """Return the call that has answered in place of going on, up to a step; None if code has ended the search."""
        answered = [event.step for event in self._of("answered") if event.number and event.step <= after]
        return max(answered, default=None)

    def _call_in(self, after: int, until: int | None) -> int | None:
        """Return the last call after a step, until another one; without that, the first call after the step."""
        if until is None:
            return self._call_after(after)
        return max((call for call in self._calls() if after < call <= until), default=None)
