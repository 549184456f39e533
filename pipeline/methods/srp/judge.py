"""The prompt `srp.judge`: whether the retrieved sequences of facts answer the question (specification §3.7)."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import cached_property, lru_cache
from typing import ClassVar

from pipeline.errors import ParseError
from pipeline.llm.prompt import Prompt, Template
from pipeline.methods.grounded_path import GroundedPath
from pipeline.methods.parsing import after_last, match_key, numbered, parse_leniently, read_literal
from pipeline.methods.rendering import Fact, Names, Printer, as_question, print_facts
from pipeline.methods.srp.references import print_references
from pipeline.retrieval.interface import Reference
from pipeline.types import Question

HAVE_ANSWER = "<HAVE_ANSWER>"
NO_ANSWER = "<NO_ANSWER>"
RETAINED = "Retained sequences:"
_VERDICT = re.compile(r"<[ ]?(HAVE|NO)[_ ]ANSWER[ ]?>", re.IGNORECASE)
_THINKING = re.compile(r"\A\s*thinking:", re.IGNORECASE)

JUDGE = Template(
    system=f"""\
You check what a search in a knowledge graph has brought back. You are given a question and numbered
sequences of facts. A fact is ("subject", "relation", "object"); the facts of a sequence hang
together and begin at an entity of the question. <cvt 1>, <cvt 2> … are unnamed nodes that hold a
fact of several parts together.

Think about which sequences, or which of their first facts, lead to what is asked for. End your
thinking with {HAVE_ANSWER} if the answer stands in the sequences, or with {NO_ANSWER} if it does not.
Then write `{RETAINED}` and, under each number, the facts worth keeping: from the first fact
of the sequence onwards, copied as they are, without a gap. Keep nothing, [], of a sequence that
does not help.

Examples

Question: what movies has Lirae Dobson played in?
Sequences:
1. [("Lirae Dobson", "film.actor.film", "<cvt 1>"), ("<cvt 1>", "film.performance.film", "The Salt Road")]
2. [("Lirae Dobson", "film.actor.film", "<cvt 2>"), ("<cvt 2>", "film.performance.film", "Nine Lanterns")]
3. [("Lirae Dobson", "people.person.nationality", "Varnland")]
Thinking: Sequences 1 and 2 go through her roles to the films The Salt Road and Nine Lanterns, which
is what the question asks for. Sequence 3 tells her nationality, which nobody asked about. {HAVE_ANSWER}
{RETAINED}
1. [("Lirae Dobson", "film.actor.film", "<cvt 1>"), ("<cvt 1>", "film.performance.film", "The Salt Road")]
2. [("Lirae Dobson", "film.actor.film", "<cvt 2>"), ("<cvt 2>", "film.performance.film", "Nine Lanterns")]
3. []

Question: who leads the country that Tavin Orsa comes from?
Sequences:
1. [("Tavin Orsa", "people.person.nationality", "Quessland"), ("Quessland", "location.country.capital", "Mirravel")]
2. [("Tavin Orsa", "people.person.children", "Edda Orsa"), ("Edda Orsa", "people.person.profession", "Glazier")]
Thinking: The question is about the leader of a country. Sequence 1 finds the country, Quessland, but
goes on to its capital instead of its leader. Sequence 2 is about a daughter. No leader is named. {NO_ANSWER}
{RETAINED}
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
    """The judge's decision."""

    have: bool
    """Whether the sequences contain the answer."""
    retained: tuple[GroundedPath, ...] = ()
    """The parts to keep, each a prefix of its sequence."""
    message: str = ""
    """The reasoning, without the verdict."""
    invalid_items: tuple[int, ...] = ()
    """Numbers of the items that the judge retained although they do not begin the sequence with that number."""


@dataclass(frozen=True)
class Judge(Prompt[Verdict]):
    """Whether the sequences contain the answer, and which parts of them to keep."""

    role: ClassVar[str] = "srp.judge"
    template = JUDGE

    question: Question
    sequences: tuple[GroundedPath, ...]
    names: Names
    references: tuple[Reference, ...] = ()

    def inputs(self) -> dict[str, str]:
        return {
            "references": print_references(self.references, answers=True),
            "question": as_question(self.question.text),
            "sequences": print_sequences(self.facts),
        }

    @cached_property
    def facts(self) -> list[list[Fact]]:
        """The facts of each sequence, as rendered in the prompt."""
        printer = Printer(self.names)
        return [[printer.fact(triple) for triple in sequence.triples] for sequence in self.sequences]

    def parse(self, text: str) -> Verdict:
        tokens = list(_VERDICT.finditer(text))
        if not tokens:
            raise ParseError(f"there is neither {HAVE_ANSWER} nor {NO_ANSWER}")
        retained, invalid_items = self._read_retained(text)
        return Verdict(
            have=all(token[1].upper() == "HAVE" for token in tokens),
            retained=retained,
            message=_THINKING.sub("", text[: tokens[0].start()]).strip(),
            invalid_items=invalid_items,
        )

    def fallback(self, text: str) -> Verdict:
        return Verdict(have=False)

    def _read_retained(self, text: str) -> tuple[tuple[GroundedPath, ...], tuple[int, ...]]:
        retained: dict[GroundedPath, None] = {}
        invalid_items: list[int] = []
        for number, item in numbered(_after_retained(text)):
            facts = _read_facts(item)
            if facts and 1 <= number <= len(self.facts) and _begins_with(self.facts[number - 1], facts):
                retained[self.sequences[number - 1].first(len(facts))] = None
            elif facts != ():
                invalid_items.append(number)
        return tuple(retained), tuple(invalid_items)


def print_sequences(sequences: Iterable[Iterable[Fact]]) -> str:
    """Render sequences of facts as a numbered list."""
    return "\n".join(f"{number}. {print_facts(facts)}" for number, facts in enumerate(sequences, start=1))


def _after_retained(text: str) -> str:
    try:
        return after_last(text, RETAINED)
    except ParseError:
        return ""


@lru_cache(1024)
def _read_facts(item: str) -> Sequence[tuple[str, ...]] | None:
    """Return the facts of a retained item; None when they cannot be read. Configurations of a sweep repeat items."""
    try:
        facts = parse_leniently(lambda text: read_literal(text, "["), item)
    except ParseError:
        return None
    assert isinstance(facts, list), "a literal that opens with a bracket is a list"
    lists = [fact for fact in facts if isinstance(fact, list)]
    return tuple(tuple(map(str, fact)) for fact in lists) if len(lists) == len(facts) else None


def _begins_with(sequence: Sequence[Fact], facts: Sequence[tuple[str, ...]]) -> bool:
    first = tuple(sequence[: len(facts)])
    return first == facts or [tuple(map(match_key, fact)) for fact in first] == [
        tuple(map(match_key, fact)) for fact in facts
    ]
