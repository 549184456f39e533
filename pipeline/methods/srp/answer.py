"""`srp.answer` and `srp.answer_cot`: the answer from the evidence, or without any (methods.md §3.10)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from pipeline.methods.answering import AnswerFromFacts, AnswerWithoutFacts


@dataclass(frozen=True)
class AnswerFromEvidence(AnswerFromFacts):
    """The answers that follow from the evidence."""

    role: ClassVar[str] = "srp.answer"


@dataclass(frozen=True)
class AnswerWithoutEvidence(AnswerWithoutFacts):
    """The model alone, when there is no topic entity or nothing was found."""

    role: ClassVar[str] = "srp.answer_cot"
