"""`parog.relations`: which relations to follow from the frontier (methods.md §5.6)."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from random import Random
from typing import TYPE_CHECKING, ClassVar

from pipeline.errors import ParseError
from pipeline.llm.prompt import Prompt, Template
from pipeline.methods.parog.guidance import GoldStep, steps_towards
from pipeline.methods.parog.plan import Plan, SubGoal
from pipeline.methods.parog.showing import label
from pipeline.methods.parsing import Value, loose, read_records, twice
from pipeline.methods.rendering import Names, as_question, one_line
from pipeline.methods.simulation import rank_relations
from pipeline.retrieval.relations import as_text
from pipeline.types import EntityId, Question, Relation

if TYPE_CHECKING:
    from pipeline.llm.oracle import Truth
    from pipeline.retrieval.lexical import LexicalEncoder

RELATIONS = Template(
    system="""\
You explore a knowledge graph for one sub-goal of a question. For each entity you are given the relations
that it has. Pick those worth following now for the sub-goal, as few as will do; copy them letter by
letter. A relation with ^ before it is followed from its object to its subject. An entity that is of no
use for the sub-goal, or from which nothing more is needed, gets an empty list. A line such as
"all 12 others (Edda Orsa; Odo Marrick; …)" stands for many entities at once: call it "all 12 others".

Reply with a JSON object: {"entity": ["relation", …], …}.

Example

Question: what do people speak in the country that Tavin Orsa comes from?
Plan:
1. Find the country that Tavin Orsa comes from
2. Find the languages spoken in the country found in 1
Sub-goal: 2. Find the languages spoken in the country found in 1
Relations:
Tavin Orsa: people.person.nationality; people.person.profession
Quessland: location.country.capital; location.country.languages_spoken; ^people.person.nationality
{"Tavin Orsa": [], "Quessland": ["location.country.languages_spoken"]}""",
    user="""\
Question: {{question}}
Plan:
{{plan}}
Sub-goal: {{goal}}
Relations:
{{relations}}""",
)


@dataclass(frozen=True, slots=True)
class Offer:
    """A line of the frontier: an entity, or a set of entities that is explored as one, and the relations there."""

    text: str
    entities: tuple[EntityId, ...]
    relations: tuple[Relation, ...]
    """Sorted; for a set, those of any member."""
    examples: tuple[str, ...] = ()
    """For a set, the texts of its first members."""

    def print(self) -> str:
        """The line that a prompt shows."""
        examples = f" ({'; '.join(self.examples)}; …)" if self.examples else ""
        return f"{self.text}{examples}: {'; '.join(map(label, self.relations)) or 'none'}"

    def read(self, listed: Value) -> tuple[Relation, ...]:
        """The offered relations that a reply names; without its caret a name stands for both directions."""
        texts = listed if isinstance(listed, list) else [listed]
        named = [loose(text) for text in texts if isinstance(text, str)]
        exact = {loose(label(relation)): (relation,) for relation in self.relations}
        by_name: dict[str, tuple[Relation, ...]] = {}
        for relation in self.relations:
            by_name[loose(relation.name)] = (*by_name.get(loose(relation.name), ()), relation)
        picked = (relation for text in named for relation in exact.get(text) or by_name.get(text.lstrip("^ "), ()))
        return tuple(dict.fromkeys(picked))


@dataclass(frozen=True)
class SelectRelations(Prompt[dict[str, tuple[Relation, ...]] | None]):
    """The relations to follow by the text of each offer, the best first; None when no reply could be read."""

    role: ClassVar[str] = "parog.relations"

    question: Question
    subgoal: SubGoal
    plan: Plan
    offers: tuple[Offer, ...]
    names: Names
    max_relations: int = 5
    """Per offer."""

    @property
    def template(self) -> Template:
        return RELATIONS

    def inputs(self) -> dict[str, str]:
        return {
            "question": as_question(self.question.text),
            "plan": "\n".join(print_subgoal(subgoal) for subgoal in self.plan),
            "goal": print_subgoal(self.subgoal),
            "relations": "\n".join(offer.print() for offer in self.offers),
        }

    def parse(self, text: str) -> dict[str, tuple[Relation, ...]] | None:
        return twice(self._read, text)

    def fallback(self, text: str) -> dict[str, tuple[Relation, ...]] | None:
        """None: the method then ranks the relations with the encoder."""
        return None

    def write_as_oracle(self, truth: Truth, slip: Random | None) -> str:
        """The relations that the sub-goal's step on the gold path takes; with a slip, other ones.

        For a sub-goal that no perfect plan has, the relations that its sentence names, else the first.
        """
        good = {offer.text: self._good(truth, offer) for offer in self.offers}
        if slip:
            wrong = {
                offer.text: [relation for relation in offer.relations if relation not in good[offer.text]]
                for offer in self.offers
            }
            return self._write({text: slip.sample(others, min(1, len(others))) for text, others in wrong.items()})
        return self._write(good)

    def write_by_similarity(self, encoder: LexicalEncoder) -> str:
        """From each entity the relation whose words are most like the sub-goal's."""
        best = {}
        for offer in self.offers:
            ranked = rank_relations([relation.name for relation in offer.relations], self.subgoal.goal, encoder)[:1]
            best[offer.text] = [relation for relation in offer.relations if relation.name in ranked]
        return self._write(best)

    def _good(self, truth: Truth, offer: Offer) -> list[Relation]:
        steps = self._steps(truth)
        if steps:
            wanted = {relation for step in steps for relation in self._taken_by(step, offer)}
            return [relation for relation in offer.relations if relation in wanted]
        named = [relation for relation in offer.relations if as_text(relation.name) in self.subgoal.goal]
        return named or list(offer.relations[:1])

    def _steps(self, truth: Truth) -> tuple[GoldStep, ...]:
        """The sub-goal's own step if the frontier is where it sets out; else also those that lead there."""
        steps = steps_towards(truth, self.subgoal)
        can_start = any(self._taken_by(step, offer) for step in steps[-1:] for offer in self.offers)
        is_whole = self.subgoal.goal == truth.question.text
        return steps[-1:] if can_start and not is_whole else steps

    def _taken_by(self, step: GoldStep, offer: Offer) -> set[Relation]:
        return {relation for id in offer.entities for relation in step.relations_from(id, self.names.get(id))}

    def _read(self, text: str) -> dict[str, tuple[Relation, ...]]:
        offers = {loose(offer.text): offer for offer in self.offers}
        records = read_records(text)
        if not records:
            raise ParseError("there is no JSON object")
        reply = {loose(entity): listed for entity, listed in records[-1].items()}
        picked = {
            offers[entity].text: offers[entity].read(listed) for entity, listed in reply.items() if entity in offers
        }
        if reply and not picked:
            raise ParseError("the JSON object names no entity of the list")
        if any(reply[loose(text)] for text in picked) and not any(picked.values()):
            raise ParseError("none of the relations is one of those offered")
        return {text: relations[: self.max_relations] for text, relations in picked.items()}

    def _write(self, picked: Mapping[str, list[Relation]]) -> str:
        reply = {text: [label(relation) for relation in relations] for text, relations in picked.items()}
        return json.dumps(reply, ensure_ascii=False)


def print_subgoal(subgoal: SubGoal) -> str:
    """A sub-goal on one line, under its number."""
    return f"{subgoal.id}. {one_line(subgoal.goal)}"
