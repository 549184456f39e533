"""The result of one sub-goal, and its answers."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field

from pipeline.methods.grounded_path import GroundedPath
from pipeline.methods.parog.plan import SubGoal
from pipeline.methods.rendering import Names
from pipeline.normalisation import normalise
from pipeline.types import EntityId, Node


@dataclass(frozen=True, slots=True)
class SubgoalAnswer:
    """One answer of a sub-goal."""

    text: str
    node: Node | None = None
    """The graph node of the answer; None if the model gave an answer that no prompt has shown."""

    @property
    def id(self) -> EntityId | None:
        """The id of an entity; None for a literal or an answer without a node."""
        return self.node if isinstance(self.node, str) else None

    def is_same(self, other: SubgoalAnswer) -> bool:
        """Compare by id if both are entities, else by name."""
        if self.id and other.id:
            return self.id == other.id
        return normalise(self.text) == normalise(other.text)


@dataclass(frozen=True, slots=True)
class SubgoalResult:
    """The answers of a sub-goal, and the facts that support them."""

    subgoal: SubGoal
    answers: tuple[SubgoalAnswer, ...] = ()
    facts: tuple[GroundedPath, ...] = ()
    """The facts that exploration selected, each one hop long, or two hops over a mediator."""
    names: Names = field(default_factory=dict)
    is_grounded: bool = True
    """False if the last refinement rejected the facts as irrelevant: the answers are then the tentative ones."""
    final: tuple[SubgoalAnswer, ...] = ()
    """The answers to the question itself, if a refinement reported that it is answered."""
    raw: str = ""
    """The reply that `final` was read from."""
    tentative: tuple[str, ...] | None = None
    """The model's answers before anything was looked up; None if it was not asked for them."""
    exhausted: bool = False
    """Whether a limit of the budget stopped the sub-goal."""


def last_answers(results: Iterable[SubgoalResult]) -> tuple[SubgoalAnswer, ...]:
    """Return the answers of the last sub-goal that has any."""
    answered = [result.answers for result in results if result.answers]
    return answered[-1] if answered else ()
