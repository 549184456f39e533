"""The prompts `tog.answer` and `tog.answer_cot`: answer with or without chains (specification §6.13).

They have the text of SRP's prompts, so that the two methods differ only in the facts that they find.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import ClassVar

from pipeline.methods.answering import AnswerFromFacts, Answers, AnswerWithoutFacts

_BRACES = re.compile(r"\{([^{}]*)\}")


@dataclass(frozen=True)
class AnswerFromChains(AnswerFromFacts):
    """The question, answered from chains that `tog.reason` did not find sufficient."""

    role: ClassVar[str] = "tog.answer"

    compat: bool = False
    """Whether to read the first pair of braces, else the whole reply, as the published code does."""

    def parse(self, text: str) -> Answers:
        return Answers(first_brace(text), text) if self.compat else super().parse(text)


@dataclass(frozen=True)
class AnswerWithoutChains(AnswerWithoutFacts):
    """The question, answered by the model alone: there is no topic entity or no chain."""

    role: ClassVar[str] = "tog.answer_cot"


def first_brace(text: str) -> tuple[str, ...]:
    """Return the content of the first pair of braces, else the whole text; nothing when it is blank."""
    match = _BRACES.search(text)
    answer = (match[1] if match else text).strip()
    return (answer,) if answer else ()
