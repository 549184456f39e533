"""The prompt `pog.relations`: which relations to follow from the entities of the frontier (specification §16.3)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from pipeline.llm.prompt import Template
from pipeline.methods.grounded_path import GroundedPath
from pipeline.methods.pog.facts import print_numbered, print_objectives
from pipeline.methods.pog.selection import Listed, SelectionPrompt
from pipeline.methods.rendering import as_question
from pipeline.methods.templates import load_template
from pipeline.types import EntityId, Question, Relation

_ONE, _SEVERAL = load_template(__file__, "relations"), load_template(__file__, "relations_batched")


@dataclass(frozen=True, slots=True)
class RelationOffer:
    """The relations of one entity."""

    entity: EntityId
    label: str
    paths: tuple[GroundedPath, ...]
    """The walks from topic entities that end in the entity. A prompt shows the entity alone."""
    relations: tuple[Relation, ...]
    """Sorted; at least one."""

    @property
    def names(self) -> tuple[str, ...]:
        """The name of each relation once, also if the entity has it in both directions."""
        return tuple(dict.fromkeys(relation.name for relation in self.relations))


@dataclass(frozen=True)
class SelectRelations(SelectionPrompt):
    """The relations to follow from each entity. An empty selection means not to explore it."""

    role: ClassVar[str] = "pog.relations"

    question: Question
    objectives: tuple[str, ...]
    offers: tuple[RelationOffer, ...]
    batched: bool

    @property
    def template(self) -> Template:
        return _SEVERAL if self.batched else _ONE

    @property
    def lists(self) -> tuple[Listed, ...]:
        return tuple(Listed(offer.label, offer.names) for offer in self.offers)

    def inputs(self) -> dict[str, str]:
        shared = {"question": as_question(self.question.text), "objectives": print_objectives(self.objectives)}
        if self.batched:
            lines = print_numbered(f"{heading}: {'; '.join(names)}" for heading, names in self.lists)
            return {**shared, "entities": lines}
        ((heading, names),) = self.lists
        return {**shared, "entity": heading, "relations": "; ".join(names)}
