"""Prompts that translate a plan back into a question and compare it with the original (specification §7.3, step 6)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from pipeline.errors import ParseError
from pipeline.llm.prompt import Prompt
from pipeline.methods.json_replies import read_flag, read_object
from pipeline.methods.parog.plan import Plan
from pipeline.methods.parog.relations import print_plan
from pipeline.methods.rendering import as_question
from pipeline.methods.templates import load_template
from pipeline.types import Question


@dataclass(frozen=True)
class BackTranslate(Prompt[str]):
    """The question that a plan answers; empty when no reply could be read."""

    role: ClassVar[str] = "parog.back_translate"
    template = load_template(__file__, "back_translate")

    plan: Plan
    constants: tuple[str, ...]
    """The names and values that the question has to mention."""

    def inputs(self) -> dict[str, str]:
        return {"plan": print_plan(self.plan)}

    def parse(self, text: str) -> str:
        lines = (line.strip("\"'` ") for line in text.splitlines() if "```" not in line)
        question = next((line for line in lines if any(map(str.isalnum, line))), None)
        if question is None:
            raise ParseError("there is no question")
        return question

    def fallback(self, text: str) -> str:
        return ""


@dataclass(frozen=True)
class JudgeEquivalent(Prompt[bool]):
    """Whether the original question and the back-translation of its plan ask the same thing."""

    role: ClassVar[str] = "parog.equivalent"
    template = load_template(__file__, "equivalent")

    question: Question
    translated: str
    """The back-translation."""
    constants: tuple[str, ...]
    """The names and values that the translated question has to mention."""

    def inputs(self) -> dict[str, str]:
        return {"first": as_question(self.question.text), "second": as_question(self.translated)}

    def parse(self, text: str) -> bool:
        return read_flag(read_object(text, "equivalent")["equivalent"])

    def fallback(self, text: str) -> bool:
        """Return False: an unreadable reply does not confirm anything."""
        return False
