"""The prompt `srp.judge`: whether the retrieved sequences of facts answer the question (specification §3.7)."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property, lru_cache
from itertools import groupby, islice
from operator import itemgetter
from typing import ClassVar, TypeAlias

from pipeline.errors import ParseError
from pipeline.llm.prompt import Prompt
from pipeline.methods.grounded_path import GroundedPath
from pipeline.methods.parsing import after_last, match_key, numbered, parse_leniently, read_literal, straighten
from pipeline.methods.rendering import Fact, Names, Printer, as_question, one_line, print_facts
from pipeline.methods.srp.references import print_references
from pipeline.methods.templates import load_template
from pipeline.retrieval.interface import Reference
from pipeline.types import Entity, Question

HAVE_ANSWER = "<HAVE_ANSWER>"
NO_ANSWER = "<NO_ANSWER>"
RETAINED = "Retained sequences:"
_VERDICT = re.compile(r"<[ ]?(HAVE|NO)[_ ]ANSWER[ ]?>", re.IGNORECASE)
_THINKING = re.compile(r"\A\s*thinking:", re.IGNORECASE)
_COPIED_FACTS = re.compile(r"\[\s*[\[(]")
_ITEM = re.compile(
    r"\b(?P<first>[0-9]{1,4})(?:[ ]?(?:-|to)[ ]?(?P<last>[0-9]{1,4}))?\b[.):]?"
    r"(?:[ ]?(?P<nothing>\[[ ]?\])|[ ]?\(?(?:the )?first (?P<length>[0-9]{1,3})\b(?: facts?)?\)?)?",
    re.IGNORECASE,
)
_OTHER_WORDS = re.compile(r"(?!\b(?:sequences?|and|all|whole|facts?)\b)\b\w+", re.IGNORECASE)
_FIRST_NUMBER = re.compile(r"\s*([0-9]{1,4})\b")
_SEPARATOR = re.compile(r"[\n,;]")
_MAX_ITEMS = 10_000
"""Items of a reply that are read."""

_Retained: TypeAlias = tuple[int, int | None]
"""The number of a sequence → how many of its first facts are kept; None if that cannot be read."""


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
    entity: Entity
    """The topic entity from which the sequences were found."""
    sequences: tuple[GroundedPath, ...]
    names: Names
    left_out: int = 0
    """Sequences that were found and are not shown."""
    references: tuple[Reference, ...] = ()

    def inputs(self) -> dict[str, str]:
        return {
            "references": print_references(self.references, answers=True),
            "question": as_question(self.question.text),
            "entity": one_line(self.entity.name),
            "sequences": "\n".join(self._lines()),
        }

    def _lines(self) -> Iterator[str]:
        yield from (f"{number}. {print_facts(facts)}" for number, facts in enumerate(self.facts, start=1))
        if self.left_out:
            yield f"({self.left_out} more were found)"

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
        retained = _after_retained(text)
        listed = numbered(retained)
        copied = any(_COPIED_FACTS.match(item) for _, item in listed)
        lengths: dict[int, int] = {}
        invalid_items: list[int] = []
        for number, length in islice(self._copied(listed) if copied else self._by_number(retained), _MAX_ITEMS):
            if length is None or not 1 <= number <= len(self.sequences):
                invalid_items.append(number)
            elif length:
                lengths[number] = max(length, lengths.get(number, 0))
        return lengths, invalid_items

    def _copied(self, items: Iterable[tuple[int, str]]) -> Iterator[_Retained]:
        """Read the facts of each item: the first ones of the sequence with its number, or none."""
        for number, item in items:
            facts = _read_facts(item)
            known = self.facts[number - 1] if 1 <= number <= len(self.facts) else []
            yield number, len(facts) if facts is not None and _begins_with(known, facts) else None

    def _by_number(self, text: str) -> Iterator[_Retained]:
        """Read items such as `1-3` and `7 (first 1)`. One with other words is prose, or cannot be read."""
        for part in _SEPARATOR.split(straighten(text)):
            if _OTHER_WORDS.search(_ITEM.sub("", part)):
                if unread := _FIRST_NUMBER.match(part):
                    yield int(unread[1]), None
                continue
            for item in _ITEM.finditer(part):
                first, last = int(item["first"]), int(item["last"] or item["first"])
                for number in range(first, min(last, first + len(self.sequences)) + 1):
                    yield number, self._length(number, item)

    def _length(self, number: int, item: re.Match[str]) -> int | None:
        """Return the number of facts that an item keeps of this sequence, at most all of them."""
        if item["nothing"]:
            return 0
        known = self.sequences[number - 1].length if 1 <= number <= len(self.sequences) else 0
        return known if item["length"] is None else min(known, int(item["length"]))


def print_retained(lengths: Sequence[int], sequences: Sequence[GroundedPath]) -> str:
    """Write how many first facts to keep of each sequence, in the form that the prompt asks for."""
    items = []
    kept = [(length, length == sequence.length) for length, sequence in zip(lengths, sequences, strict=True)]
    for (length, whole), group in groupby(enumerate(kept, start=1), key=itemgetter(1)):
        numbers = [number for number, _ in group]
        span = f"{numbers[0]}-{numbers[-1]}" if len(numbers) > 1 else str(numbers[0])
        if length:
            items.append(span if whole else f"{span} (first {length})")
    return f"{RETAINED} {', '.join(items) or 'none'}"


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
