"""What has become of a sub-goal."""

from __future__ import annotations

from dataclasses import dataclass, field

from pipeline.methods.instance import Instance
from pipeline.methods.parog.plan import SubGoal
from pipeline.methods.rendering import Names
from pipeline.text import normalise
from pipeline.types import EntityId, Node


@dataclass(frozen=True, slots=True)
class Found:
    """One answer of a sub-goal."""

    text: str
    node: Node | None = None
    """The node that it has been linked to; None for what a model said and the search did not show."""

    @property
    def id(self) -> EntityId | None:
        """The id of an entity; None for a literal, or a text that was not linked."""
        return self.node if isinstance(self.node, str) else None

    def is_same(self, other: Found) -> bool:
        """Whether both mean one thing: by id where both are entities, else by name."""
        if self.id and other.id:
            return self.id == other.id
        return normalise(self.text) == normalise(other.text)


@dataclass(frozen=True, slots=True)
class Outcome:
    """The answers of a sub-goal, and what they rest on."""

    subgoal: SubGoal
    answers: tuple[Found, ...] = ()
    facts: tuple[Instance, ...] = ()
    """What exploring brought, each from an entity over one relation, or over two through a mediator."""
    names: Names = field(default_factory=dict)
    is_grounded: bool = True
    """False when the facts were found to be beside the point, so that the answers are the model's own."""
    final: tuple[Found, ...] = ()
    """The answers to the question itself, where a refinement has reported it answered."""
    raw: str = ""
    """The reply that `final` was read from."""
    tentative: tuple[str, ...] = ()
    """What the model answered before anything was looked up."""
    exhausted: bool = False
