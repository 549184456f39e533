"""The stages that an answer has to pass, and the reasons why it is lost at one."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal, TypeAlias, get_args

Stage: TypeAlias = Literal[
    "topic known",
    "relation offered",
    "relation chosen",
    "node reached",
    "node kept",
    "shown",
    "answered",
    "matched",
    "unknown",
]
"""
- `topic known`: the question names an entity of the graph to start from;
- `relation offered`: the next relation of a gold path is among those from which the method chooses;
- `relation chosen`: it is followed;
- `node reached`: following it leads to the next node, at the last hop to a gold answer;
- `node kept`: the node survives the selections;
- `shown`: a gold answer stands in the prompt of the call that answers;
- `answered`: it is the first answer that the method gives;
- `matched`: the rule that compares answers recognises it;
- `unknown`: the trace is too old to tell.
"""

Reason: TypeAlias = Literal[
    "beam", "cap", "model", "parse failure", "graph", "match rule", "error", "no gold path", "old trace"
]
"""
What lost the answer: a beam; another limit of the method or of the budget (a depth, a prefilter, a sample, a budget);
the model; a reply that could not be read; the graph, which does not lead on; the rule that compares answers; an error
that ended the question. `no gold path`: the dataset does not say how the answer is found, so nobody can tell which
relation was missing.
"""

STAGES: tuple[Stage, ...] = get_args(Stage)
"""In the order in which an answer passes them."""
NOT_PASSED: Mapping[Stage, str] = {
    "topic known": "topic unknown",
    "relation offered": "relation not offered",
    "relation chosen": "relation not chosen",
    "node reached": "node not reached",
    "node kept": "node not kept",
    "shown": "not shown",
    "answered": "not answered",
    "matched": "not matched",
    "unknown": "unknown",
}
"""Headings of the questions that were lost at each stage."""
REASONS: tuple[Reason, ...] = get_args(Reason)


@dataclass(frozen=True, slots=True)
class Loss:
    """Where and why a wrong question lost its answer: the last chance that it had, and what was made of it."""

    stage: Stage
    reason: Reason
    step: int | None = None
    """The number of the step at which it was lost; None if the question has no step."""
    hop: int | None = None
    """The hop of the gold path, from 1, for a stage of the search."""
    departure: str | None = None
    """The gold path up to where it was left, as in `topic → film.film.directed_by ✗ people.person.spouse_s`."""

    def __str__(self) -> str:
        hop = "" if self.hop is None else f", hop {self.hop}"
        step = "" if self.step is None else f", step {self.step}"
        path = "" if self.departure is None else f": {self.departure}"
        return f"{self.stage}{hop}{step}, by the {_CAUSES[self.reason]}{path}"


_CAUSES = {
    "cap": "limit of the method or the budget",
    "graph": "graph, which does not lead on",
    "no gold path": "search; the dataset has no gold path to say more",
    "old trace": "trace, which does not say: an older version wrote it, or its gold answers have changed since",
}
_CAUSES |= {reason: reason for reason in REASONS if reason not in _CAUSES}
