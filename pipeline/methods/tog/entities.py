"""`tog.entities`: which of the nodes that one relation leads to are worth keeping (methods.md §6.13)."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from random import Random
from typing import TYPE_CHECKING, ClassVar

from pipeline.errors import ParseError
from pipeline.llm.prompt import Prompt, Template
from pipeline.methods.instance import Instance
from pipeline.methods.parsing import first_line, numbered, twice
from pipeline.methods.rendering import Names, Printer, as_question, node_name, one_line, print_facts
from pipeline.types import Node, Question, Relation

if TYPE_CHECKING:
    from pipeline.llm.oracle import Truth
    from pipeline.retrieval.lexical import LexicalEncoder

_NUMBER = re.compile(r"-?[0-9]{0,9}\.?[0-9]{1,9}")
_ITEM_READ = 300
"""Characters of an item in which its score is sought."""

ENTITIES = Template(
    system="""\
You steer a search in a knowledge graph, one hop at a time. You are given a question, the facts by
which the search has come to an entity, a relation that it follows from there, and the numbered
candidates that this relation leads to. <cvt 1>, <cvt 2> … are unnamed nodes that hold a fact of
several parts together.

Score how much each candidate helps to answer the question: 0 for one that does not help at all. The
scores add up to 1. Write one line for each candidate: its number, a full stop, its score.

Example

Question: Which film of Lirae Dobson is set in Port Hallow?
Facts: [("Lirae Dobson", "film.director.film", "?")]
Candidates:
1. The Salt Road
2. Winter in Hallow
3. Nine Lanterns
Scores:
1. 0.2
2. 0.7
3. 0.1""",
    user="""\
Question: {{question}}
Facts: {{facts}}
Candidates:
{{candidates}}
Scores:""",
)


@dataclass(frozen=True)
class EntityScores(Prompt[tuple[float, ...]]):
    """The score of each candidate, in their order; they add up to 1, or are all 0 when none helps."""

    role: ClassVar[str] = "tog.entities"

    question: Question
    chain: Instance
    """How the entity was reached from which the relation is followed."""
    relation: Relation
    candidates: tuple[Node, ...]
    """At least one."""
    names: Names

    @property
    def template(self) -> Template:
        return ENTITIES

    def inputs(self) -> dict[str, str]:
        printer = Printer(self.names)
        facts = [printer.fact(triple) for triple in self.chain.triples]
        end, name = printer.node(self.chain.end), self.relation.name
        followed = (end, name, "?") if self.relation.direction == "out" else ("?", name, end)
        listed = (one_line(printer.node(candidate)) for candidate in self.candidates)
        return {
            "question": as_question(self.question.text),
            "facts": print_facts([*facts, followed]),
            "candidates": "\n".join(f"{number}. {text}" for number, text in enumerate(listed, start=1)),
        }

    def parse(self, text: str) -> tuple[float, ...]:
        return twice(self._read, text)

    def fallback(self, text: str) -> tuple[float, ...]:
        """All alike."""
        return (1 / len(self.candidates),) * len(self.candidates)

    def write_as_oracle(self, truth: Truth, slip: Random | None) -> str:
        """What is sought alone, else what leads there, else all alike. A slip: something else."""
        sought = [truth.is_sought(node, node_name(node, self.names)) for node in self.candidates]
        good = sought if any(sought) else [node in truth.waypoints for node in self.candidates]
        if slip:
            wrong = [place for place, right in enumerate(good) if not right] or range(len(good))
            chosen = slip.choice(wrong)
            return _write([float(place == chosen) for place in range(len(good))])
        return _write([float(right) for right in good] if any(good) else [1.0] * len(good))

    def write_by_similarity(self, encoder: LexicalEncoder) -> str:
        names = [node_name(node, self.names) or "" for node in self.candidates]
        similarities = encoder.similarities(self.question.text, names)
        return _write([max(similarity, 0.0) + 0.01 for similarity in similarities])

    def _read(self, text: str) -> tuple[float, ...]:
        scores: dict[int, float] = {}
        for number, item in numbered(text):
            if 1 <= number <= len(self.candidates) and (score := _score(item)) is not None:
                scores.setdefault(number, score)
        if not scores:
            raise ParseError("there is no line with the number of a candidate and its score")
        total = sum(scores.values()) or 1.0
        return tuple(scores.get(number, 0.0) / total for number in range(1, len(self.candidates) + 1))


def _score(item: str) -> float | None:
    """The first number from 0 to 1: a name that was copied before it may hold others."""
    found = (float(number[0]) for number in _NUMBER.finditer(first_line(item)[:_ITEM_READ]))
    return next((score for score in found if 0 <= score <= 1), None)


def _write(weights: Sequence[float]) -> str:
    total = sum(weights)
    return "\n".join(f"{number}. {weight / total:.3f}" for number, weight in enumerate(weights, start=1))
