"""The prompt `srp.judge`: whether the retrieved sequences of facts answer the question (specification §3.7)."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import cached_property, lru_cache
from typing import ClassVar

from pipeline.errors import ParseError
from pipeline.llm.prompt import Prompt
from pipeline.methods.grounded_path import GroundedPath
from pipeline.methods.parsing import after_last, match_key, numbered, parse_leniently, read_literal
from pipeline.methods.rendering import Fact, Names, Printer, as_question, print_facts
from pipeline.methods.srp.references import print_references
from pipeline.methods.templates import load_template
from pipeline.retrieval.interface import Reference
from pipeline.types import Question

HAVE_ANSWER = "<HAVE_ANSWER>"
NO_ANSWER = "<NO_ANSWER>"
RETAINED = "Retained sequences:"
_VERDICT = re.compile(r"<[ ]?(HAVE|NO)[_ ]ANSWER[ ]?>", re.IGNORECASE)
_THINKING = re.compile(r"\A\s*thinking:", re.IGNORECASE)


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
    template = load_template(__file__, "judge")

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
