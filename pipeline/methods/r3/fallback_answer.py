"""`r3.guess`: an answer from the knowledge path, if no attempt has finished (specification §6.9)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from pipeline.methods.answering import AnswerPrompt
from pipeline.methods.r3.memory import Step, elide
from pipeline.methods.rendering import as_question
from pipeline.methods.templates import load_template
from pipeline.types import Question


@dataclass(frozen=True)
class FallbackAnswer(AnswerPrompt):
    """The best answer that the knowledge path of a halted attempt supports."""

    role: ClassVar[str] = "r3.guess"
    template = load_template(__file__, "fallback_answer")

    question: Question
    path: tuple[str, ...]
    """The knowledge path, line by line."""
    steps: tuple[Step, ...] = ()
    """The steps of the same attempt, for simulators."""
    max_characters: int = 40_000
    """Maximum length of the path in the prompt."""

    def inputs(self) -> dict[str, str]:
        return {"question": as_question(self.question.text), "path": elide(self.path, self.max_characters) or "nothing"}
