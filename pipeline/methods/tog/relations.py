"""`tog.relations`: which relations to follow from one entity of the beam (methods.md §6.13)."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from random import Random
from typing import TYPE_CHECKING, ClassVar

from pipeline.errors import ParseError
from pipeline.llm.prompt import Prompt, Template
from pipeline.methods.instance import Instance
from pipeline.methods.parsing import scored_pairs, twice
from pipeline.methods.rendering import Names, Printer, as_question, one_line, quoted
from pipeline.methods.simulation import next_on_gold_paths, rank_relations
from pipeline.types import Question, Relation

if TYPE_CHECKING:
    from pipeline.llm.oracle import Truth
    from pipeline.retrieval.lexical import LexicalEncoder

_INCOMING = " (incoming)"
_WRITTEN = 5
"""Relations that a simulated model names."""

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
class RelationScores(Prompt[Mapping[Relation, float]]):
    """How well each relation at the end of a chain serves the question; those not worth following are absent."""

    role: ClassVar[str] = "tog.relations"

    question: Question
    chain: Instance
    """How the entity was reached; without hops when it is a topic entity."""
    relations: tuple[Relation, ...]
    """What is offered, sorted."""
    names: Names

    @property
    def template(self) -> Template:
        return RELATIONS

    def inputs(self) -> dict[str, str]:
        printer = Printer(self.names)
        return {
            "question": as_question(self.question.text),
            "facts": printer.chain(self.chain.triples) if self.chain.length else "none",
            "entity": one_line(printer.node(self.chain.end)),
            "relations": "; ".join(map(_print, self.relations)),
        }

    def parse(self, text: str) -> Mapping[Relation, float]:
        return twice(self._read, text)

    def fallback(self, text: str) -> Mapping[Relation, float]:
        """All alike."""
        return dict.fromkeys(self.relations, 1 / len(self.relations))

    def write_as_oracle(self, truth: Truth, slip: Random | None) -> str:
        """Those with which a gold path goes on; off every gold path some, all alike. A slip: others instead."""
        good = next_on_gold_paths(self.chain, truth)
        right = [relation for relation in good if relation in self.relations]
        wrong = [relation for relation in self.relations if relation not in good]
        if slip and wrong:
            return _write(dict.fromkeys(slip.sample(wrong, min(len(wrong), _WRITTEN)), 1.0))
        if right:
            return _write({relation: float(len(right) - place) for place, relation in enumerate(right)})
        return _write(dict.fromkeys(self.relations[:_WRITTEN], 1.0))

    def write_by_similarity(self, encoder: LexicalEncoder) -> str:
        ranking = rank_relations([relation.name for relation in self.relations], self.question.text, encoder)
        best = sorted(self.relations, key=lambda relation: ranking.index(relation.name))[:_WRITTEN]
        return _write({relation: float(len(best) - place) for place, relation in enumerate(best)})

    def _read(self, text: str) -> Mapping[Relation, float]:
        scores: dict[Relation, float] = {}
        for name, score in scored_pairs(text):
            if score > 0 and (relation := self._printed.get(name)):
                scores.setdefault(relation, score)
        if not scores:
            raise ParseError("there is no ('relation', score) pair with a relation of the list and a positive score")
        return {relation: score / sum(scores.values()) for relation, score in scores.items()}

    @cached_property
    def _printed(self) -> Mapping[str, Relation]:
        """Each relation under its printed form, and under its bare name, which means the outgoing one if both exist."""
        bare = {relation.name: relation for relation in sorted(self.relations)}
        return bare | {_print(relation): relation for relation in self.relations}


def _print(relation: Relation) -> str:
    return relation.name + _INCOMING if relation.direction == "in" else relation.name


def _write(weights: Mapping[Relation, float]) -> str:
    total = sum(weights.values())
    return "\n".join(
        f"({quoted(_print(relation))}, {weight / total:.3f}): chosen" for relation, weight in weights.items()
    )
