"""The prompts `srp.answer` and `srp.answer_cot`: answer with or without evidence (specification §3.10)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from pipeline.methods.answering import AnswerFromFacts, AnswerWithoutFacts


@dataclass(frozen=True)
class AnswerFromEvidence(AnswerFromFacts):
    """The question, answered from the evidence."""

    role: ClassVar[str] = "srp.answer"


@dataclass(frozen=True)
class AnswerWithoutEvidence(AnswerWithoutFacts):
    """The question, answered by the model alone: there is no topic entity or no evidence."""

    role: ClassVar[str] = "srp.answer_cot"
