"""The prompts `pog.answer` and `pog.alone`: answer from the facts of a search, or without (specification §16.3)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from pipeline.methods.parsing import LenientPrompt
from pipeline.methods.pog.facts import ShownFacts
from pipeline.methods.pog.verdict import Verdict, read_verdict
from pipeline.methods.rendering import as_question
from pipeline.methods.templates import load_template
from pipeline.types import Question


@dataclass(frozen=True)
class AnswerFromTriples(LenientPrompt[Verdict]):
    """The question, answered from all kept facts and the model's own knowledge."""

    role: ClassVar[str] = "pog.answer"
    template = load_template(__file__, "answer")

    question: Question
    facts: ShownFacts

    def inputs(self) -> dict[str, str]:
        return {"question": as_question(self.question.text), "facts": str(self.facts)}

    def fallback(self, text: str) -> Verdict:
        """Return no answers, and the reply as raw text."""
        return Verdict(raw=text)

    def read(self, text: str) -> Verdict:
        return read_verdict(text, ["answers", "answer"], self.facts.shown_names)


@dataclass(frozen=True)
class AnswerAlone(LenientPrompt[Verdict]):
    """The question, answered by the model alone."""

    role: ClassVar[str] = "pog.alone"
    template = load_template(__file__, "alone")

    question: Question

    def inputs(self) -> dict[str, str]:
        return {"question": as_question(self.question.text)}

    def fallback(self, text: str) -> Verdict:
        """Return no answers, and the reply as raw text."""
        return Verdict(raw=text)

    def read(self, text: str) -> Verdict:
        return read_verdict(text, ["answers", "answer"])
