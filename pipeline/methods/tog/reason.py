"""The prompt `tog.reason`: whether the chains found so far suffice, and the answer if they do (specification §6.13)."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import ClassVar

from pipeline.errors import ParseError
from pipeline.llm.prompt import Prompt, Template
from pipeline.methods.answering import Answers
from pipeline.methods.grounded_path import GroundedPath
from pipeline.methods.parsing import brace_answers, parse_leniently
from pipeline.methods.rendering import Names, Printer, as_question
from pipeline.methods.tog.answer import first_brace
from pipeline.types import Question

_VERDICT = re.compile(r"\{\s*(yes|no)\b[^{}]*\}", re.IGNORECASE)

REASON = Template(
    system="""\
You check what a search in a knowledge graph has found so far. A fact is ("subject", "relation",
"object"); the facts of one line hang together and begin at an entity of the question. <cvt 1>,
<cvt 2> … are unnamed nodes that hold a fact of several parts together: they are never an answer.

Say first whether these facts, with what you know yourself, are enough to answer the question: {Yes}
or {No}. After {Yes}, think in a few sentences and close with the answer in braces: {answer}. Part
several answers by semicolons: {first; second}. Write names as the facts have them; a name that has a
semicolon, a bar or a brace in it goes in double quotes. After {No}, say in a sentence what is missing.

Examples

Question: what movies has Lirae Dobson played in?
Facts:
[("Lirae Dobson", "film.actor.film", "<cvt 1>"), ("<cvt 1>", "film.performance.film", "The Salt Road")]
[("Lirae Dobson", "film.actor.film", "<cvt 2>"), ("<cvt 2>", "film.performance.film", "Nine Lanterns")]
Enough: {Yes} Her two roles are in The Salt Road and in Nine Lanterns. So the answer is {The Salt Road;
Nine Lanterns}.

Question: who leads the country that Tavin Orsa comes from?
Facts:
[("Tavin Orsa", "people.person.nationality", "Quessland"), ("Quessland", "location.country.capital", "Mirravel")]
Enough: {No} The country is Quessland, but its leader is not named.""",
    user="""\
Question: {{question}}
Facts:
{{facts}}
Enough:""",
)


@dataclass(frozen=True)
class Enough(Prompt[Answers | None]):
    """The answers if the chains suffice to give them, else None."""

    role: ClassVar[str] = "tog.reason"
    template = REASON

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
