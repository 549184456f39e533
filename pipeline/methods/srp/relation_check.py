"""The prompt `srp.relation_check`: which relations of a topic entity to start with (specification §3.5)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from pipeline.errors import ParseError
from pipeline.llm.prompt import Template
from pipeline.methods.parsing import LenientPrompt, scored_pairs
from pipeline.methods.rendering import as_question, one_line
from pipeline.methods.srp.references import print_references
from pipeline.retrieval.interface import Reference
from pipeline.types import Entity, Question

RELATION_CHECK = Template(
    system="""\
You plan a search in a knowledge graph. You are given a question, an entity that it mentions, and
the relations that lead away from this entity or towards it. Pick the relations with which a path
from the entity to the answer most probably begins.

Pick exactly as many relations as you are told to, and copy them letter by letter from the list.
Give each a score between 0 and 1; the scores add up to 1. When similar solved questions are shown,
a relation with which one of their paths begins deserves a higher score. Write one line for each
relation: ('relation', score), a colon, your reason.

Example

Question: Which river runs through the town where Odo Marrick was born?
Entity: Odo Marrick
Relations: film.actor.film; people.person.children; people.person.nationality; people.person.place_of_birth
Number of relations to pick: 3
Picked:
('people.person.place_of_birth', 0.8): the river is sought by way of his birthplace.
('people.person.nationality', 0.15): his country narrows the place down, but only roughly.
('people.person.children', 0.05): his children may have been born there too.""",
    user="""\
{{references}}Question: {{question}}
Entity: {{entity}}
Relations: {{relations}}
Number of relations to pick: {{top_k}}
Picked:""",
)


@dataclass(frozen=True)
class RelationCheck(LenientPrompt[dict[str, float]]):
    """The best relations of one topic entity with their scores, best first."""

    role: ClassVar[str] = "srp.relation_check"
    template = RELATION_CHECK

    question: Question
    entity: Entity
    relations: tuple[str, ...]
    """The candidates, sorted."""
    top_k: int
    references: tuple[Reference, ...] = ()

    def inputs(self) -> dict[str, str]:
        return {
            "references": print_references(self.references),
            "question": as_question(self.question.text),
            "entity": one_line(self.entity.name),
            "relations": "; ".join(self.relations),
            "top_k": str(self.top_k),
        }

    def fallback(self, text: str) -> dict[str, float]:
        """Return no relation: the method then ranks the candidates with the sentence encoder."""
        return {}

    def read(self, text: str) -> dict[str, float]:
        scores: dict[str, float] = {}
        for relation, score in scored_pairs(text):
            if relation in self.relations:
                scores.setdefault(relation, score)
        if not scores:
            raise ParseError("there is no ('relation', score) pair with a relation of the list")
        return dict(sorted(scores.items(), key=lambda pair: (-pair[1], pair[0]))[: self.top_k])
