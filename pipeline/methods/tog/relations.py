"""The prompt `tog.relations`: which relations to follow from one entity of the beam (specification §6.13)."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import ClassVar

from pipeline.errors import ParseError
from pipeline.llm.prompt import Template
from pipeline.methods.grounded_path import GroundedPath
from pipeline.methods.parsing import LenientPrompt, scored_pairs
from pipeline.methods.rendering import Names, Printer, as_question, one_line
from pipeline.types import Question, Relation

_INCOMING = " (incoming)"

RELATIONS = Template(
    system="""\
You steer a search in a knowledge graph, one hop at a time. You are given a question, the entity that
the search has reached, the facts by which it got there, and the relations to go on with. A relation
marked (incoming) has the entity as its object, any other one as its subject. <cvt 1> is an unnamed
node that holds a fact of several parts together.

Pick the relations that bring the search closer to the answer, rarely more than five, and copy them
letter by letter, their marks included. Give each a score between 0 and 1; the scores add up to 1.
Write one line for each relation: ('relation', score), a colon, your reason.

Example

Question: Which river runs through the town where Odo Marrick was born?
Reached: Odo Marrick
By: none
Relations: film.actor.film; people.person.nationality; people.person.place_of_birth; people.person.parents (incoming)
Picked:
('people.person.place_of_birth', 0.85): the river is sought by way of his birthplace.
('people.person.nationality', 0.15): his country narrows the place down, but only roughly.""",
    user="""\
Question: {{question}}
Reached: {{entity}}
By: {{facts}}
Relations: {{relations}}
Picked:""",
)


@dataclass(frozen=True)
class RelationScores(LenientPrompt[Mapping[Relation, float]]):
    """The score of each relation at the end of a chain. Relations that should not be followed are absent."""

    role: ClassVar[str] = "tog.relations"
    template = RELATIONS

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
