"""The prompt `tog.entities`: which of the nodes that one relation leads to should be kept (specification §6.13)."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import ClassVar

from pipeline.errors import ParseError
from pipeline.methods.grounded_path import GroundedPath
from pipeline.methods.parsing import LenientPrompt, first_line, numbered
from pipeline.methods.rendering import Names, Printer, as_question, one_line, print_facts
from pipeline.methods.templates import load_template
from pipeline.types import Node, Question, Relation

_NUMBER = re.compile(r"-?[0-9]{0,9}\.?[0-9]{1,9}")
_MAX_ITEM_LENGTH = 300
"""The number of characters of an item in which its score is searched."""


@dataclass(frozen=True)
class EntityScores(LenientPrompt[tuple[float, ...]]):
    """The scores of the candidates, in order. They sum to 1, or are all 0 when no candidate helps."""

    role: ClassVar[str] = "tog.entities"
    template = load_template(__file__, "entities")

    question: Question
    chain: GroundedPath
    """The chain to the entity from which the relation is followed."""
    relation: Relation
    candidates: tuple[Node, ...]
    """At least one."""
    names: Names

    def inputs(self) -> dict[str, str]:
        printer = Printer(self.names)
        facts = [printer.fact(triple) for triple in self.chain.triples]
        end, name = printer.node(self.chain.end), self.relation.name
        new_fact = (end, name, "?") if self.relation.direction == "out" else ("?", name, end)
        listed = (one_line(printer.node(candidate)) for candidate in self.candidates)
        return {
            "question": as_question(self.question.text),
            "facts": print_facts([*facts, new_fact]),
            "candidates": "\n".join(f"{number}. {text}" for number, text in enumerate(listed, start=1)),
        }

    def fallback(self, text: str) -> tuple[float, ...]:
        """Return equal scores."""
        return (1 / len(self.candidates),) * len(self.candidates)

    def read(self, text: str) -> tuple[float, ...]:
        scores: dict[int, float] = {}
        for number, item in numbered(text):
            if 1 <= number <= len(self.candidates) and (score := _score(item)) is not None:
                scores.setdefault(number, score)
        if not scores:
            raise ParseError("there is no line with the number of a candidate and its score")
        total = sum(scores.values()) or 1.0
        return tuple(scores.get(number, 0.0) / total for number in range(1, len(self.candidates) + 1))


def _score(item: str) -> float | None:
    """Return the first number from 0 to 1. A name copied in front of it may contain other numbers."""
    numbers = (float(number[0]) for number in _NUMBER.finditer(first_line(item)[:_MAX_ITEM_LENGTH]))
    return next((score for score in numbers if 0 <= score <= 1), None)
