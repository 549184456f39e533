"""The prompt `srp.judge`: whether the retrieved sequences of facts answer the question (specification §3.7)."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
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
    pruned: Mapping[GroundedPath, GroundedPath] = field(default_factory=dict)
    """Each sequence in the order shown → its first facts, those that the judge keeps, if any. Empty if
    no sequence was judged."""
    message: str = ""
    """The reasoning, without the verdict."""
    invalid_items: tuple[int, ...] = ()
    """Numbers of the items that the judge retained although they do not begin the sequence with that number."""

    @property
    def retained(self) -> tuple[GroundedPath, ...]:
        """The distinct parts to keep."""
        return tuple(dict.fromkeys(kept for kept in self.pruned.values() if kept.length))


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
        lengths, invalid_items = self._read_retained(text)
        return Verdict(
            have=all(token[1].upper() == "HAVE" for token in tokens),
            pruned={each: each.first(lengths.get(number, 0)) for number, each in enumerate(self.sequences, 1)},
            message=_THINKING.sub("", text[: tokens[0].start()]).strip(),
            invalid_items=tuple(invalid_items),
        )

    def fallback(self, text: str) -> Verdict:
        return Verdict(have=False)

    def _read_retained(self, text: str) -> tuple[dict[int, int], list[int]]:
        """Return the number of facts to keep of each retained sequence, and the numbers of the invalid items."""
        lengths: dict[int, int] = {}
        invalid_items: list[int] = []
        for number, item in numbered(_after_retained(text)):
            facts = _read_facts(item)
            if facts and 1 <= number <= len(self.facts) and _begins_with(self.facts[number - 1], facts):
                lengths[number] = max(len(facts), lengths.get(number, 0))
            elif facts != ():
                invalid_items.append(number)
        return lengths, invalid_items


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
