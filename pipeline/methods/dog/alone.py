"""The prompt `dog.alone`: the question, answered by the model alone (specification §16.4)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from pipeline.methods.answering import AnswerPrompt
from pipeline.methods.rendering import as_question
from pipeline.methods.templates import load_template
from pipeline.types import Question


@dataclass(frozen=True)
class AnswerAlone(AnswerPrompt):
    """The question as it was asked, without facts and without examples."""

    role: ClassVar[str] = "dog.alone"
    template = load_template(__file__, "alone")

    question: Question

    def inputs(self) -> dict[str, str]:
        return {"question": as_question(self.question.text)}
