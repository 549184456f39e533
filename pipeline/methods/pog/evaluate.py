"""The prompt `pog.evaluate`: whether the question can be answered from what is known (specification §16.3)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from pipeline.methods.parsing import LenientPrompt
from pipeline.methods.pog.facts import ShownFacts, Status, print_status
from pipeline.methods.pog.verdict import Verdict, read_verdict
from pipeline.methods.rendering import as_question
from pipeline.methods.templates import load_template
from pipeline.types import Question


@dataclass(frozen=True)
class Evaluate(LenientPrompt[Verdict]):
    """Whether memory and facts suffice, and the answers if they do; not sufficient when no reply can be read."""

    role: ClassVar[str] = "pog.evaluate"
    template = load_template(__file__, "evaluate")

    question: Question
    status: Status
    facts: ShownFacts

    def inputs(self) -> dict[str, str]:
        return {
            "question": as_question(self.question.text),
            "status": print_status(self.status),
            "facts": str(self.facts),
        }

    def fallback(self, text: str) -> Verdict:
        return Verdict(raw=text)

    def read(self, text: str) -> Verdict:
        return read_verdict(text, ["sufficient"], self.facts.shown_names)
