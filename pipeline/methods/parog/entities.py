"""`parog.entities`: which of the reached nodes to keep (specification §5.6)."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import ClassVar

from pipeline.errors import ParseError
from pipeline.methods.grounded_path import GroundedPath
from pipeline.methods.parog.plan import Plan, SubGoal
from pipeline.methods.parog.relations import print_left_out, print_plan, print_subgoal
from pipeline.methods.parsing import LenientPrompt, Value, match_key, read_records
from pipeline.methods.rendering import as_question
from pipeline.methods.templates import load_template
from pipeline.types import Question


@dataclass(frozen=True, slots=True)
class CandidateGroup:
    """Nodes to choose from: those that one entity reaches over one relation, or over two with a mediator between."""

    source: str
    """The label of the entity."""
    relations: str
    """The label of the relation path."""
    facts: tuple[tuple[str, GroundedPath], ...]
    """The label of each candidate, and the fact that ends in it."""
    left_out: int = 0
    """Candidates that are not shown."""

    def print(self) -> str:
        """Return what a prompt shows after the number of the group."""
        nodes = "; ".join(text for text, _ in self.facts)
        return f"{self.source}, {self.relations}: {nodes}{print_left_out(self.left_out)}"

    def read(self, value: Value) -> tuple[GroundedPath, ...]:
        """Return the facts of the candidates that a reply names, in its order."""
        texts = value if isinstance(value, list) else [value]
        by_text = {match_key(text): fact for text, fact in self.facts}
        named = (by_text.get(match_key(str(text))) for text in texts)
        return tuple(dict.fromkeys(fact for fact in named if fact is not None))


@dataclass(frozen=True)
class SelectEntities(LenientPrompt[tuple[GroundedPath, ...] | None]):
    """The facts whose ends are worth keeping, group by group; None when no reply could be read."""

    role: ClassVar[str] = "parog.entities"
    template = load_template(__file__, "entities")

    question: Question
    subgoal: SubGoal
    plan: Plan
    groups: tuple[CandidateGroup, ...]

    def inputs(self) -> dict[str, str]:
        groups = (f"{number}. {group.print()}" for number, group in enumerate(self.groups, start=1))
        return {
            "question": as_question(self.question.text),
            "plan": print_plan(self.plan),
            "goal": print_subgoal(self.subgoal),
            "groups": "\n".join(groups),
        }

    def fallback(self, text: str) -> tuple[GroundedPath, ...] | None:
        """Return None: the method then ranks the candidates by similarity."""
        return None

    def read(self, text: str) -> tuple[GroundedPath, ...]:
        records = read_records(text)
        if not records:
            raise ParseError("there is no JSON object")
        reply = _by_number(records[-1])
        known = [number for number in reply if 0 < number <= len(self.groups)]
        if records[-1] and not known:
            raise ParseError("the JSON object has none of the numbers of the groups")
        selected = [fact for number in sorted(known) for fact in self.groups[number - 1].read(reply[number])]
        if not selected and any(reply[number] for number in known):
            raise ParseError("none of the names is one of those offered")
        return tuple(selected)


def _by_number(reply: Mapping[str, Value]) -> dict[int, Value]:
    items = ((key.strip(), value) for key, value in reply.items())
    return {int(key): value for key, value in items if key.isascii() and key.isdigit() and len(key) < 6}
