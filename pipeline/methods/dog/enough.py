"""The prompt `dog.enough`: whether the facts of a turn suffice, and the answer if they do (specification §16.4)."""

from __future__ import annotations

import re
from collections.abc import Collection, Iterator
from dataclasses import dataclass
from typing import ClassVar

from pipeline.errors import ParseError
from pipeline.llm.prompt import Prompt
from pipeline.methods.answering import Answers
from pipeline.methods.grounded_path import GroundedPath
from pipeline.methods.parsing import answers_without_braces, brace_answers, first_line, parse_leniently
from pipeline.methods.rendering import Names, Printer, as_question, names_of
from pipeline.methods.templates import load_template
from pipeline.types import Question

_VERDICTS = tuple(
    re.compile(pattern, re.IGNORECASE)
    for pattern in (r"\A\W*+(yes|no)\b(?![ \t]++\w)", r"\{\s*+(yes|no)\s*+\}", r"\b(yes|no)\b")
)
"""The verdict is a word at the beginning, else the first one in braces, else the first one. Names contain others."""
_AROUND = " \t,;:.!-*_}{"
"""What may stand around an answer without braces."""


@dataclass(frozen=True)
class Enough(Prompt[Answers | None]):
    """The answers if the facts of the turn suffice to give them, else None."""

    role: ClassVar[str] = "dog.enough"
    template = load_template(__file__, "enough")

    question: Question
    """With the text of this turn, which a debate may have simplified."""
    chains: tuple[GroundedPath, ...]
    """The facts of this turn alone."""
    names: Names

    def inputs(self) -> dict[str, str]:
        printer = Printer(self.names)
        facts = "\n".join(printer.chain(chain.triples) for chain in self.chains)
        return {"question": as_question(self.question.text), "facts": facts}

    def parse(self, text: str) -> Answers | None:
        shown = names_of((node for chain in self.chains for node in chain.nodes), self.names)
        return parse_leniently(lambda plain: _read(plain, text, set(shown.values())), text)

    def fallback(self, text: str) -> Answers | None:
        """Return None: the search goes on."""
        return None


def _read(plain: str, raw: str, shown: Collection[str]) -> Answers | None:
    verdict = next(filter(None, (pattern.search(plain) for pattern in _VERDICTS)), None)
    if verdict is None:
        raise ParseError("there is neither {Yes} nor {No}")
    if verdict[1].lower() == "no":
        return None
    readings = _readings(plain, plain[verdict.end() :])
    texts = next(filter(None, (_proper(answers, shown) for answers in readings)), ())
    if not texts:
        raise ParseError("there is no answer after {Yes}")
    return Answers(texts, raw)


def _readings(whole: str, rest: str) -> Iterator[tuple[str, ...]]:
    """Yield the answers in braces after the verdict, those in all braces, and the text after the verdict."""
    for text in (rest, whole):
        try:
            answers = brace_answers(text)
        except ParseError:
            continue
        yield answers
    yield answers_without_braces(rest)
    yield (first_line(rest.strip(_AROUND)).strip(_AROUND),)


def _proper(answers: tuple[str, ...], shown: Collection[str]) -> tuple[str, ...]:
    """Return the answers that are names which the prompt shows, or more than a verdict or punctuation."""
    return tuple(
        text for text in answers if text in shown or (text.lower() not in {"yes", "no"} and any(map(str.isalnum, text)))
    )
