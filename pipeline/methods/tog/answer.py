"""`tog.answer` and `tog.answer_cot`: the answer from the chains, or from the model's own knowledge (methods.md §6.13).

The answer is asked for in SRP's words, so that the two methods differ in nothing but what they find.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import ClassVar

from pipeline.methods.answering import AnswerFromFacts, Answers, AnswerWithoutFacts

_BLOCK = re.compile(r"\{([^{}]*)\}")


@dataclass(frozen=True)
class AnswerFromChains(AnswerFromFacts):
    """The answers that follow from the chains, although they were not found to be enough."""

    role: ClassVar[str] = "tog.answer"

    compat: bool = False
    """Whether the first pair of braces is the answer, else the whole reply, as in the published code."""

    def parse(self, text: str) -> Answers:
        return Answers(first_brace(text), text) if self.compat else super().parse(text)


@dataclass(frozen=True)
class AnswerWithoutChains(AnswerWithoutFacts):
    """The model alone, when there is no topic entity or nothing was found."""

    role: ClassVar[str] = "tog.answer_cot"


def first_brace(text: str) -> tuple[str, ...]:
    """The content of the first pair of braces, else the whole text; nothing when that is blank."""
    found = _BLOCK.search(text)
    answer = (found[1] if found else text).strip()
    return (answer,) if answer else ()
