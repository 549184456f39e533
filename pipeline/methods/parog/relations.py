"""`parog.relations`: which relations to follow from the frontier (specification §5.6)."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import ClassVar

from pipeline.errors import ParseError
from pipeline.methods.node_labels import relation_label
from pipeline.methods.parog.node_labels import SubgoalLabels
from pipeline.methods.parog.plan import Plan, SubGoal
from pipeline.methods.parog.rendering import print_answers
from pipeline.methods.parog.subgoal_result import SubgoalResult
from pipeline.methods.parsing import LenientPrompt, Value, match_key, read_records
from pipeline.methods.rendering import as_question, one_line
from pipeline.methods.templates import load_template
from pipeline.types import EntityId, Question, Relation


@dataclass(frozen=True, slots=True)
class Offer:
    """The relations of one entity of the frontier, or of a set of entities that share a line of the prompt."""

    text: str
    """The label of the entity, or a text such as `all 12 others`."""
    entities: tuple[EntityId, ...]
    relations: tuple[Relation, ...]
    """Best first; for a set, the relations that any member has."""
    examples: tuple[str, ...] = ()
    """For a set, the labels of its first members."""
    left_out: int = 0
    """Relations that are not offered."""

    def print(self) -> str:
        """Return the line that a prompt shows."""
        examples = f" ({'; '.join(self.examples)}; …)" if self.examples else ""
        relations = "; ".join(map(relation_label, self.relations)) or "none"
        return f"{self.text}{examples}: {relations}{print_left_out(self.left_out)}"

    def read(self, value: Value) -> tuple[Relation, ...]:
        """Return the offered relations that a reply names; a name that matches none exactly matches both directions."""
        texts = value if isinstance(value, list) else [value]
        named = [match_key(text) for text in texts if isinstance(text, str)]
        exact = {match_key(relation_label(relation)): (relation,) for relation in self.relations}
        by_name: dict[str, tuple[Relation, ...]] = {}
        for relation in self.relations:
            by_name[match_key(relation.name)] = (*by_name.get(match_key(relation.name), ()), relation)
        selected = (relation for text in named for relation in exact.get(text) or by_name.get(text.lstrip("^ "), ()))
        return tuple(dict.fromkeys(selected))


@dataclass(frozen=True)
class SelectRelations(LenientPrompt[dict[str, tuple[Relation, ...]] | None]):
    """The relations to follow, by the text of each offer, best first; None when no reply could be read."""

    role: ClassVar[str] = "parog.relations"
    template = load_template(__file__, "relations")

    question: Question
    subgoal: SubGoal
    plan: Plan
    dependencies: tuple[SubgoalResult, ...]
    """The results of the sub-goals that this one uses."""
    offers: tuple[Offer, ...]
    labels: SubgoalLabels
    max_relations: int = field(kw_only=True)
    """Relations to follow from each offer, at most."""

    def inputs(self) -> dict[str, str]:
        return {
            "question": as_question(self.question.text),
            "plan": print_plan(self.plan),
            "known": print_answers(self.dependencies, self.labels),
            "goal": print_subgoal(self.subgoal),
            "relations": "\n".join(offer.print() for offer in self.offers),
        }

    def fallback(self, text: str) -> dict[str, tuple[Relation, ...]] | None:
        """Return None: the method then ranks the relations by similarity."""
        return None

    def read(self, text: str) -> dict[str, tuple[Relation, ...]]:
        offers = {match_key(offer.text): offer for offer in self.offers}
        records = read_records(text)
        if not records:
            raise ParseError("there is no JSON object")
        reply = {match_key(entity): value for entity, value in records[-1].items()}
        selected = {offers[entity].text: offers[entity].read(reply[entity]) for entity in reply if entity in offers}
        if reply and not selected:
            raise ParseError("the JSON object names no entity of the list")
        if any(reply[match_key(text)] for text in selected) and not any(selected.values()):
            raise ParseError("none of the relations is one of those offered")
        return {text: relations[: self.max_relations] for text, relations in selected.items()}


def print_plan(plan: Plan) -> str:
    """Return a plan, one sub-goal on each line."""
    return "\n".join(map(print_subgoal, plan))


def print_left_out(number: int) -> str:
    """Say after a list how many items it leaves out; nothing where it is whole."""
    return f" ({number} less similar left out)" if number else ""


def print_subgoal(subgoal: SubGoal) -> str:
    """Return a sub-goal as one line that starts with its number."""
    return f"{subgoal.id}. {one_line(subgoal.goal)}"
