"""The stages that an answer has to pass, and the reasons why it is lost at one.

`stage_rules` decides on the stage of an answer. docs/how-to/find-out-why.md has the same names, held by a test.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal, NamedTuple, TypeAlias, get_args

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
"""A stage that an answer has to pass; `STAGE_TEXTS` says what each means."""

Reason: TypeAlias = Literal[
    "beam",
    "cap",
    "model",
    "parse failure",
    "graph",
    "match rule",
    "error",
    "no topic entity",
    "no gold path",
    "old trace",
]
"""
What lost the answer: a beam; another limit of the method or of the budget (a depth, a prefilter, a sample, a budget);
the model; a reply that could not be read; the graph, which does not have
the topic entity, does not lead on, or has no name for the gold answer; the rule that compares answers; an error that
ended the question. `no topic entity`: the question names none. `no gold path`: the dataset does not say how the answer
is found, so nobody can tell which relation was missing.
"""

STAGES: tuple[Stage, ...] = get_args(Stage)
"""In the order in which an answer passes them."""


class StageText(NamedTuple):
    """The wording of a stage, for all tables, pages and documents."""

    passed: str
    """When an answer passes it."""
    lost: str
    """What it means that an answer was lost at it."""
    heading: str
    """Of the questions that were lost at it."""


_OLD_TRACE = "an older version made the run, or its gold answers or gold paths have changed since"
"""Why a trace cannot tell where an answer was lost."""

STAGE_TEXTS: Mapping[Stage, StageText] = {
    "topic known": StageText(
        "the question names an entity of the graph to start from",
        "the question names no entity of the graph to start from",
        "topic unknown",
    ),
    "relation offered": StageText(
        "the next relation of a gold path is among those from which the method chooses",
        "the next relation of a gold path was not among those to choose from",
        "relation not offered",
    ),
    "relation chosen": StageText(
        "the method follows it",
        "it was offered, and not followed",
        "relation not chosen",
    ),
    "node reached": StageText(
        "it leads to the next node, at the last hop to a gold answer",
        "it was followed, and did not lead to the next node",
        "node not reached",
    ),
    "node kept": StageText(
        "the node survives the selections",
        "the node was found, and dropped",
        "node not kept",
    ),
    "shown": StageText(
        "a gold answer stands in the prompt of the call that answers",
        "a gold answer was found, and the call that answers did not read it",
        "not shown",
    ),
    "answered": StageText(
        "it is the first answer that the method gives",
        "the call that answers read it, and answered something else",
        "not answered",
    ),
    "matched": StageText(
        "the rule that compares answers recognises it",
        "the answer is nearly right, and the rule that compares answers did not recognise it",
        "not matched",
    ),
    "unknown": StageText(
        f"the trace cannot tell: {_OLD_TRACE}",
        f"the trace cannot tell: {_OLD_TRACE}",
        "unknown",
    ),
}
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
        return f"{STAGE_TEXTS[self.stage].heading}{hop}{step}, by the {_CAUSES[self.reason]}{path}"


_CAUSES = {
    "cap": "limit of the method or the budget",
    "graph": "graph, which has no topic entity, no relation that leads on, no gold answer at the end of the path, or "
    "no name for it",
    "no topic entity": "dataset: the question names no topic entity",
    "no gold path": "search; the dataset has no gold path to say more",
    "old trace": f"trace, which cannot tell: {_OLD_TRACE}",
}
_CAUSES |= {reason: reason for reason in REASONS if reason not in _CAUSES}
REASON_TEXTS: Mapping[str, str] = {
    **{reason: reason for reason in REASONS},
    "old trace": f"old trace: {_OLD_TRACE}",
}
"""The reasons in a table of losses."""
REASON_MEANINGS: Mapping[Reason, str] = {
    "beam": "a reply named the candidate, or gave it a score above 0, and the width of the search kept others",
    "cap": "another limit than the width of the search, such as a depth, a prefilter, a sample, a budget, the "
    "directions that are followed (method.directions of DoG), or a rule against the same relation at the next hop",
    "model": "a reply, which left the candidate out or gave it a score of 0, for example",
    "parse failure": "a reply that could not be read, or an edit of SRP that proposes a path again",
    "graph": "the graph does not have the topic entity, offers no relation that leads on, has no gold answer at the "
    "end of the gold path, or has no name for it",
    "no topic entity": "the question names none",
    "match rule": "the answer is nearly right, and the rule that compares answers did not recognise it",
    "error": "the question failed",
    "no gold path": "the dataset does not say how the answer is found",
    "old trace": _OLD_TRACE,
}
"""What each reason means, for readers of a table."""
