"""The prompts `pog.reflect` and `pog.backtrack`: whether to go back, and to which entities (specification §16.3)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from pipeline.errors import ParseError
from pipeline.methods.json_replies import read_flag
from pipeline.methods.node_labels import NodeLabels
from pipeline.methods.parsing import LenientPrompt, read_list, read_records
from pipeline.methods.pog.facts import ShownFacts, Status, print_status
from pipeline.methods.pog.selection import Selection, checked, select
from pipeline.methods.pog.verdict import flat
from pipeline.methods.rendering import as_question
from pipeline.methods.templates import load_template
from pipeline.types import EntityId, Question


@dataclass(frozen=True, slots=True)
class Reflection:
    """The parsed reply of `pog.reflect`."""

    add: bool = False
    """Whether earlier entities must be explored again."""
    reason: str = ""


@dataclass(frozen=True)
class Reflect(LenientPrompt[Reflection]):
    """Whether it is enough to go on from the frontier; it is when no reply can be read."""

    role: ClassVar[str] = "pog.reflect"
    template = load_template(__file__, "reflect")

    question: Question
    frontier: tuple[EntityId, ...]
    """The entities that are explored next; they have labels."""
    status: Status
    facts: ShownFacts

    def inputs(self) -> dict[str, str]:
        return {
            "question": as_question(self.question.text),
            "frontier": "; ".join(map(self.facts.labels.label, self.frontier)) or "none",
            "status": print_status(self.status),
            "facts": str(self.facts),
        }

    def fallback(self, text: str) -> Reflection:
        return Reflection()

    def read(self, text: str) -> Reflection:
        for record in reversed(read_records(text)):
            fields = flat(record)
            if "add" in fields:
                return Reflection(read_flag(fields["add"]), str(fields.get("reason", "")))
        raise ParseError('there is no JSON object with "add"')


@dataclass(frozen=True)
class ChooseBack(LenientPrompt[Selection]):
    """The earlier entities to explore again; none when no reply can be read."""

    role: ClassVar[str] = "pog.backtrack"
    template = load_template(__file__, "backtrack")

    question: Question
    reason: str
    candidates: tuple[EntityId, ...]
    """At least one; they have labels."""
    status: Status
    labels: NodeLabels

    def inputs(self) -> dict[str, str]:
        return {
            "question": as_question(self.question.text),
            "reason": " ".join(self.reason.split()) or "none given",
            "candidates": "; ".join(map(self.labels.label, self.candidates)),
            "status": print_status(self.status),
        }

    def fallback(self, text: str) -> Selection:
        return Selection()

    def read(self, text: str) -> Selection:
        return checked([select(read_list(text), [self.labels.label(entity) for entity in self.candidates])])
