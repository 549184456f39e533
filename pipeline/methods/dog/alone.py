"""The prompt `dog.alone`: the question, answered by the model alone (specification §16.4)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from pipeline.methods.answering import AnswerWithoutFacts
from pipeline.methods.templates import load_template


@dataclass(frozen=True)
class AnswerAlone(AnswerWithoutFacts):
    """The question as it was asked, without facts and without examples."""

    role: ClassVar[str] = "dog.alone"
    template = load_template(__file__, "alone")
