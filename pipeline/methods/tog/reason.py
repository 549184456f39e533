"""The prompt `tog.reason`: whether the chains found so far suffice, and the answer if they do (specification §6.13)."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import ClassVar

from pipeline.errors import ParseError
from pipeline.llm.prompt import Prompt
from pipeline.methods.answering import Answers
from pipeline.methods.grounded_path import GroundedPath
from pipeline.methods.parsing import brace_answers, parse_leniently
from pipeline.methods.rendering import Names, Printer, as_question
from pipeline.methods.templates import load_template
from pipeline.methods.tog.answer import first_brace
from pipeline.types import Question

_VERDICT = re.compile(r"\{\s*(yes|no)\b[^{}]*\}", re.IGNORECASE)


@dataclass(frozen=True)
class Enough(Prompt[Answers | None]):
    """The answers if the chains suffice to give them, else None."""

    role: ClassVar[str] = "tog.reason"
    template = load_template(__file__, "reason")

    question: Question
    chains: tuple[GroundedPath, ...]
    names: Names
    compat: bool = False
    """Whether to read the first pair of braces, which contains the "Yes", as the published code does."""

    def inputs(self) -> dict[str, str]:
        printer = Printer(self.names)
        facts = "\n".join(printer.chain(chain.triples) for chain in self.chains)
        return {"question": as_question(self.question.text), "facts": facts}

    def parse(self, text: str) -> Answers | None:
        return parse_leniently(lambda plain: self._read(plain, text), text)

    def fallback(self, text: str) -> Answers | None:
        """Return None: the search continues."""
        return None

    def _read(self, plain: str, raw: str) -> Answers | None:
        verdict = _VERDICT.search(plain)
        if verdict is None:
            raise ParseError("there is neither {Yes} nor {No}")
        if verdict[1].lower() == "no":
            return None
        return Answers(first_brace(plain) if self.compat else brace_answers(plain[verdict.end() :]), raw)
