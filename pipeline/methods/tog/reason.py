"""`tog.reason`: do the chains found so far answer the question, and how (methods.md §6.13)."""

from __future__ import annotations

import re
from dataclasses import dataclass
from random import Random
from typing import TYPE_CHECKING, ClassVar

from pipeline.errors import ParseError
from pipeline.llm.prompt import Prompt, Template
from pipeline.methods.answering import Answers, write_answers
from pipeline.methods.instance import Instance
from pipeline.methods.parsing import brace_answers, twice
from pipeline.methods.rendering import Names, Printer, as_question, names_of
from pipeline.methods.simulation import answers_shown, most_similar_path
from pipeline.methods.tog.answer import first_brace
from pipeline.types import Question

if TYPE_CHECKING:
    from pipeline.llm.oracle import Truth
    from pipeline.retrieval.lexical import LexicalEncoder

_VERDICT = re.compile(r"\{\s*(yes|no)\b[^{}]*\}", re.IGNORECASE)
_NO = "{No} What is asked for does not stand in these facts."

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
    """The answers, if the chains are enough to give them; otherwise None."""

    role: ClassVar[str] = "tog.reason"

    question: Question
    chains: tuple[Instance, ...]
    names: Names
    compat: bool = False
    """Whether the first pair of braces is the answer, as in the published code: there it holds the "Yes"."""

    @property
    def template(self) -> Template:
        return REASON

    def inputs(self) -> dict[str, str]:
        printer = Printer(self.names)
        facts = "\n".join(printer.chain(chain.triples) for chain in self.chains)
        return {"question": as_question(self.question.text), "facts": facts}

    def parse(self, text: str) -> Answers | None:
        return twice(lambda plain: self._read(plain, text), text)

    def fallback(self, text: str) -> Answers | None:
        """Not enough: the search goes on."""
        return None

    def write_as_oracle(self, truth: Truth, slip: Random | None) -> str:
        """Yes with what the chains show of what is sought, for a count not before they show all of it; else No.

        A slip: No, or Yes with something else.
        """
        shown = names_of((node for chain in self.chains for node in chain.nodes[1:]), self.names)
        right = answers_shown(shown, truth)
        wrong = [name for name in shown.values() if name not in right]
        if slip and not right and wrong:
            return _write_yes([slip.choice(wrong)])
        enough = bool(right) and truth.counted.issubset(shown)
        return _write_yes(right) if enough and not slip else _NO

    def write_by_similarity(self, encoder: LexicalEncoder) -> str:
        """Yes with what the path most like the question ends in, or No when that is unnamed."""
        best = most_similar_path([chain.path for chain in self.chains], self.question.text, encoder)
        ends = names_of((chain.end for chain in self.chains if chain.path == best), self.names)
        return _write_yes(list(dict.fromkeys(ends.values()))) if ends else _NO

    def _read(self, plain: str, raw: str) -> Answers | None:
        verdict = _VERDICT.search(plain)
        if verdict is None:
            raise ParseError("there is neither {Yes} nor {No}")
        if verdict[1].lower() == "no":
            return None
        return Answers(first_brace(plain) if self.compat else brace_answers(plain[verdict.end() :]), raw)


def _write_yes(texts: list[str]) -> str:
    return f"{{Yes}} {write_answers(texts)}"
