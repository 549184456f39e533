"""`srp.judge`: do the sequences found answer the question (methods.md §3.7)."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import cached_property, lru_cache
from random import Random
from typing import TYPE_CHECKING, ClassVar

from pipeline.errors import ParseError
from pipeline.llm.prompt import Prompt, Template
from pipeline.methods.instance import Instance
from pipeline.methods.parsing import after_last, loose, numbered, read_literal, twice
from pipeline.methods.rendering import Fact, Names, Printer, as_question, print_facts
from pipeline.methods.simulation import hops_on_track, hops_to_answer, most_similar_path
from pipeline.methods.srp.references import print_references
from pipeline.retrieval.port import Reference
from pipeline.types import Question

if TYPE_CHECKING:
    from pipeline.llm.oracle import Truth
    from pipeline.retrieval.lexical import LexicalEncoder

_HAVE = "<HAVE_ANSWER>"
_NO = "<NO_ANSWER>"
_RETAINED = "Retained sequences:"
_VERDICT = re.compile(r"<[ ]?(HAVE|NO)[_ ]ANSWER[ ]?>", re.IGNORECASE)
_THINKING = re.compile(r"\A\s*thinking:", re.IGNORECASE)

JUDGE = Template(
    system=f"""\
You check what a search in a knowledge graph has brought back. You are given a question and numbered
sequences of facts. A fact is ("subject", "relation", "object"); the facts of a sequence hang
together and begin at an entity of the question. <cvt 1>, <cvt 2> … are unnamed nodes that hold a
fact of several parts together.

Think about which sequences, or which of their first facts, lead to what is asked for. End your
thinking with {_HAVE} if the answer stands in the sequences, or with {_NO} if it does not.
Then write `{_RETAINED}` and, under each number, the facts worth keeping: from the first fact
of the sequence onwards, copied as they are, without a gap. Keep nothing, [], of a sequence that
does not help.

Examples

Question: what movies has Lirae Dobson played in?
Sequences:
1. [("Lirae Dobson", "film.actor.film", "<cvt 1>"), ("<cvt 1>", "film.performance.film", "The Salt Road")]
2. [("Lirae Dobson", "film.actor.film", "<cvt 2>"), ("<cvt 2>", "film.performance.film", "Nine Lanterns")]
3. [("Lirae Dobson", "people.person.nationality", "Varnland")]
Thinking: Sequences 1 and 2 go through her roles to the films The Salt Road and Nine Lanterns, which
is what the question asks for. Sequence 3 tells her nationality, which nobody asked about. {_HAVE}
{_RETAINED}
1. [("Lirae Dobson", "film.actor.film", "<cvt 1>"), ("<cvt 1>", "film.performance.film", "The Salt Road")]
2. [("Lirae Dobson", "film.actor.film", "<cvt 2>"), ("<cvt 2>", "film.performance.film", "Nine Lanterns")]
3. []

Question: who leads the country that Tavin Orsa comes from?
Sequences:
1. [("Tavin Orsa", "people.person.nationality", "Quessland"), ("Quessland", "location.country.capital", "Mirravel")]
2. [("Tavin Orsa", "people.person.children", "Edda Orsa"), ("Edda Orsa", "people.person.profession", "Glazier")]
Thinking: The question is about the leader of a country. Sequence 1 finds the country, Quessland, but
goes on to its capital instead of its leader. Sequence 2 is about a daughter. No leader is named. {_NO}
{_RETAINED}
1. [("Tavin Orsa", "people.person.nationality", "Quessland")]
2. []""",
    user="""\
{{references}}Question: {{question}}
Sequences:
{{sequences}}
Thinking:""",
)


@dataclass(frozen=True, slots=True)
class Verdict:
    """What a judge makes of the sequences."""

    have: bool
    """Whether the answer stands in them."""
    retained: tuple[Instance, ...] = ()
    """The parts worth keeping, each from the start of its sequence."""
    message: str = ""
    """The thinking, without the verdict."""
    hallucinated: tuple[int, ...] = ()
    """Numbers under which something was retained that is not how that sequence begins."""


@dataclass(frozen=True)
class Judge(Prompt[Verdict]):
    """Whether the sequences hold the answer, and which parts of them to keep."""

    role: ClassVar[str] = "srp.judge"
    aids: ClassVar[frozenset[str]] = frozenset({"references"})

    question: Question
    sequences: tuple[Instance, ...]
    names: Names
    references: tuple[Reference, ...] = ()

    @property
    def template(self) -> Template:
        return JUDGE

    def inputs(self) -> dict[str, str]:
        return {
            "references": print_references(self.references, answers=True),
            "question": as_question(self.question.text),
            "sequences": _number(self._printed),
        }

    def parse(self, text: str) -> Verdict:
        tokens = list(_VERDICT.finditer(text))
        if not tokens:
            raise ParseError(f"there is neither {_HAVE} nor {_NO}")
        retained, hallucinated = self._read_retained(text)
        return Verdict(
            have=all(token[1].upper() == "HAVE" for token in tokens),
            retained=retained,
            message=_THINKING.sub("", text[: tokens[0].start()]).strip(),
            hallucinated=hallucinated,
        )

    def fallback(self, text: str) -> Verdict:
        return Verdict(have=False)

    def write_as_oracle(self, truth: Truth, slip: Random | None) -> str:
        """HAVE with the parts that lead to a gold answer, else NO with those on a gold path. A slip: the other one."""
        answering = [hops_to_answer(sequence, self.names, truth) for sequence in self.sequences]
        have = any(answering)
        if slip and have:
            return self._write(have=False, lengths=[0] * len(answering))
        if slip:
            chosen = slip.choice(self.sequences)
            return self._write(have=True, lengths=[s.length if s is chosen else 0 for s in self.sequences])
        if have:
            return self._write(have=True, lengths=answering)
        return self._write(have=False, lengths=[hops_on_track(sequence, truth) for sequence in self.sequences])

    def write_by_similarity(self, encoder: LexicalEncoder) -> str:
        """HAVE with the path most like the question: a policy that does not read cannot tell what is missing."""
        best = most_similar_path([sequence.path for sequence in self.sequences], self.question.text, encoder)
        return self._write(have=True, lengths=[s.length if s.path == best else 0 for s in self.sequences])

    def _read_retained(self, text: str) -> tuple[tuple[Instance, ...], tuple[int, ...]]:
        retained: dict[Instance, None] = {}
        hallucinated: list[int] = []
        for number, item in numbered(_after_retained(text)):
            facts = _read_facts(item)
            if facts and 1 <= number <= len(self._printed) and _begins_with(self._printed[number - 1], facts):
                retained[self.sequences[number - 1].first(len(facts))] = None
            elif facts != ():
                hallucinated.append(number)
        return tuple(retained), tuple(hallucinated)

    def _write(self, *, have: bool, lengths: Sequence[int]) -> str:
        kept = [facts[:length] for facts, length in zip(self._printed, lengths, strict=True)]
        thought = "These sequences lead to what is asked for." if have else "None of them reaches what is asked for."
        return f"{thought} {_HAVE if have else _NO}\n{_RETAINED}\n{_number(kept)}"

    @cached_property
    def _printed(self) -> list[list[Fact]]:
        printer = Printer(self.names)
        return [[printer.fact(triple) for triple in sequence.triples] for sequence in self.sequences]


def _number(sequences: Iterable[Iterable[Fact]]) -> str:
    return "\n".join(f"{number}. {print_facts(facts)}" for number, facts in enumerate(sequences, start=1))


def _after_retained(text: str) -> str:
    try:
        return after_last(text, _RETAINED)
    except ParseError:
        return ""


@lru_cache(1024)
def _read_facts(item: str) -> Sequence[tuple[str, ...]] | None:
    """The facts of one retained item; None when they cannot be read. All points of a sweep read the same items."""
    try:
        facts = twice(lambda text: read_literal(text, "["), item)
    except ParseError:
        return None
    assert isinstance(facts, list), "a literal that opens with a bracket is a list"
    lists = [fact for fact in facts if isinstance(fact, list)]
    return tuple(tuple(map(str, fact)) for fact in lists) if len(lists) == len(facts) else None


def _begins_with(sequence: Sequence[Fact], facts: Sequence[tuple[str, ...]]) -> bool:
    first = tuple(sequence[: len(facts)])
    return first == facts or [tuple(map(loose, fact)) for fact in first] == [tuple(map(loose, fact)) for fact in facts]
