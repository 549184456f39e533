"""The prompt `tog.relations`: which relations to follow from one entity of the beam (specification §6.13)."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import ClassVar

from pipeline.errors import ParseError
from pipeline.methods.grounded_path import GroundedPath
from pipeline.methods.parsing import LenientPrompt, scored_pairs
from pipeline.methods.rendering import Names, Printer, as_question, one_line
from pipeline.methods.templates import load_template
from pipeline.types import Question, Relation

_INCOMING = " (incoming)"


@dataclass(frozen=True)
class RelationScores(LenientPrompt[Mapping[Relation, float]]):
    """The score of each relation at the end of a chain. Relations that should not be followed are absent."""

    role: ClassVar[str] = "tog.relations"
    template = load_template(__file__, "relations")

    question: Question
    chain: GroundedPath
    """The chain to the entity; it has no hops when the entity is a topic entity."""
    relations: tuple[Relation, ...]
    """The candidates, sorted."""
    names: Names

    def inputs(self) -> dict[str, str]:
        printer = Printer(self.names)
        return {
            "question": as_question(self.question.text),
            "facts": printer.chain(self.chain.triples) if self.chain.length else "none",
            "entity": one_line(printer.node(self.chain.end)),
            "relations": "; ".join(map(print_relation, self.relations)),
        }

    def fallback(self, text: str) -> Mapping[Relation, float]:
        """Return equal scores."""
        return dict.fromkeys(self.relations, 1 / len(self.relations))

    def read(self, text: str) -> Mapping[Relation, float]:
        scores: dict[Relation, float] = {}
        for name, score in scored_pairs(text):
            if score > 0 and (relation := self._by_name.get(name)):
                scores.setdefault(relation, score)
        if not scores:
            raise ParseError("there is no ('relation', score) pair with a relation of the list and a positive score")
        return {relation: score / sum(scores.values()) for relation, score in scores.items()}

    @cached_property
    def _by_name(self) -> Mapping[str, Relation]:
        """Each relation by its rendered form and by its bare name, which means the outgoing one if both exist."""
        bare_names = {relation.name: relation for relation in sorted(self.relations)}
        return bare_names | {print_relation(relation): relation for relation in self.relations}


def print_relation(relation: Relation) -> str:
    """Return the name of a relation, marked if it is incoming."""
    return relation.name + _INCOMING if relation.direction == "in" else relation.name
