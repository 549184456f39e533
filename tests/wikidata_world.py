"""The synthetic world in Wikidata's shape: items, properties, statements with qualifiers, two languages, redirects.

Each relation of the world is a property. A fact is a statement with a rank, and a truthy triple. A mediator is a
statement with a main value and qualifiers. Relations that only state the facts of others from the other end do not
exist, as in Wikidata.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from functools import cached_property
from itertools import count
from pathlib import Path
from typing import Literal

from pipeline.datasets.gold_paths import SparqlPaths
from pipeline.datasets.interface import Reject
from pipeline.simulation.world import SyntheticWorld
from pipeline.simulation.world.facts import INVERSES, MEDIATORS
from pipeline.types import Entity, EntityId, Example, Gold, GoldAnswer, LiteralNode, Node, Triple
from tests.kg.support import vocabulary
from tests.support import refuse

LABEL = "http://www.w3.org/2000/01/rdf-schema#label"
ALIAS = "http://www.w3.org/2004/02/skos/core#altLabel"
SAME_AS = "http://www.w3.org/2002/07/owl#sameAs"
RDF_TYPE = "http://www.w3.org/1999/02/22-rdf-syntax-ns#type"
WIKIBASE = "http://wikiba.se/ontology#"

HOSTILE = 'a "quoted" -> {label}\\ ; # \n <http://x> . } ☃ \u2028'
"""A label that a careless reader takes for a part of a query or of a prompt."""

MAIN_VALUES = {
    "award.award_winner.awards_won": "award.award_honor.award",
    "film.film.runtime": "film.film_cut.runtime",
    "film.film.starring": "film.performance.actor",
    "government.politician.government_positions_held": "government.government_position_held.office_position_or_title",
    "location.statistical_region.population": "measurement_unit.dated_integer.number",
    "people.person.education": "education.education.institution",
    "people.person.spouse_s": "people.marriage.spouse",
}
"""Relation from an entity to a mediator → the relation from there to the main value of the statement."""
OWNERS = {main: owner for owner, main in MAIN_VALUES.items()}
MIRRORS = {mirror: relation for relation, mirror in INVERSES.items()}
"""Relation that Wikidata would not state → the one that it states from the other end."""
NOT_STATED = frozenset(
    {"type.object.name", "common.topic.alias", "common.topic.description"}
    | {"type.object.key", "freebase.type_hints.mediator", "type.property.reverse_property"}
)
"""Relations of the world that are no properties."""

Role = Literal["direct", "statement", "value", "qualifier"]
PREFIXES: dict[Role, str] = {"direct": "wdt", "statement": "p", "value": "ps", "qualifier": "pq"}

_PATTERN = re.compile(r"(\S+) <http://rdf\.freebase\.com/ns/([^>]+)> (\S+) \.")
_NODE = re.compile(r"<http://rdf\.freebase\.com/ns/([mg]\.[^>]+)>")


@dataclass(frozen=True)
class WikidataWorld:
    """A dataset: the graph and the questions of a synthetic world, in Wikidata's shape."""

    world: SyntheticWorld
    former_every: int = 7
    """Every so many items have a former id, by which questions name them."""
    name: str = "wikidata-world"
    split: str = "test"
    _items: dict[str, EntityId] = field(default_factory=dict)

    def triples(self) -> Iterator[Triple]:
        """Yield the graph."""
        for name, id in self._properties.items():
            yield Triple(id, RDF_TYPE, f"{WIKIBASE}Property")
            words = name.rpartition(".")[2].replace("_", " ")
            yield Triple(id, LABEL, LiteralNode(words, lang="en"))
            yield Triple(id, LABEL, LiteralNode(f"{words} (deutsch)", lang="de"))
        yield Triple("P9999", LABEL, LiteralNode(HOSTILE, lang="en"))
        yield Triple("Q999", LABEL, LiteralNode(HOSTILE, lang="en"))
        yield Triple("Q999", "P9999", LiteralNode(HOSTILE))
        yield Triple("Q999", "P9999 (statement)", "statement/Q999-$hostile")
        numbers = count(1)
        for head, relation, tail in self._facts:
            assert isinstance(head, str)
            if head in self._mediators or tail in self._mediators or relation in MIRRORS:
                continue
            yield from self._of_node(head, relation, tail)
            if relation not in NOT_STATED:
                statement = f"statement/{self.item(head)}-{next(numbers):08X}"
                yield from self._statement(head, relation, statement, tail)
        for mediator in self._mediators:
            yield from self._mediator(mediator, numbers)
        for item in self._items.values():
            if former := self._former(item):
                yield Triple(former, SAME_AS, item)

    def examples(self, reject: Reject) -> Iterator[Example]:
        """Yield the questions, which name topics by ids alone, and answers by ids and names."""
        for example in self.world.examples(reject):
            topics = [entity.id for entity in example.question.topic_entities]
            ids = {topic: self._named_as(topic) for topic in topics}
            assert example.gold.sparql is not None
            query = self.query(example.gold.sparql)
            yield Example(
                replace(
                    example.question,
                    dataset=self.name,
                    topic_entities=tuple(Entity(id, id) for id in ids.values()),
                ),
                Gold(
                    tuple(map(self._answer, example.gold.answers)),
                    SparqlPaths((query,), {f"http://www.wikidata.org/entity/{id}": id for id in ids.values()}),
                    query,
                ),
            )

    def write(self, folder: Path) -> None:
        """Write the graph and the questions, as `dataset=custom` reads them."""
        terms = vocabulary("wikidata").terms
        (folder / "slice.nt").write_text("".join(map(terms.n_triple, self.triples())), encoding="utf-8")
        lines = (json.dumps(self._row(example)) + "\n" for example in self.examples(refuse))
        (folder / "questions.jsonl").write_text("".join(lines), encoding="utf-8")

    def _row(self, example: Example) -> dict[str, object]:
        return {
            "id": example.question.id,
            "question": example.question.text,
            "topic_entities": [topic.id for topic in example.question.topic_entities],
            "answers": [
                answer.name if answer.id is None else {"id": answer.id, "aliases": answer.aliases}
                for answer in example.gold.answers
            ],
            "sparql": example.gold.sparql,
            "type": example.question.meta["type"],
        }

    def query(self, sparql: str) -> str:
        """Write a gold query with Wikidata's prefixes, which its query service need not be told."""

        def pattern(match: re.Match[str]) -> str:
            subject, name, object = match.groups()
            relation, role, mirrored = self.place(name)
            head, tail = (object, subject) if mirrored else (subject, object)
            return f"{head} {PREFIXES[role]}:{self._properties[relation]} {tail} ."

        return _NODE.sub(lambda match: f"wd:{self._named_as(match[1])}", _PATTERN.sub(pattern, sparql))

    def place(self, relation: str) -> tuple[str, Role, bool]:
        """Return the property of a relation, its role in a statement, and whether it is stated from the other end."""
        if relation in OWNERS:
            return OWNERS[relation], "value", False
        mirrored = relation in MIRRORS
        stated = MIRRORS.get(relation, relation)
        if stated in MAIN_VALUES:
            return stated, "statement", mirrored
        if stated in OWNERS:
            return OWNERS[stated], "value", mirrored
        if stated in self._of_mediators:
            return stated, "qualifier", mirrored
        return stated, "direct", mirrored

    def item(self, id: str) -> EntityId:
        """Return the item of a node of the world."""
        return self._items.setdefault(id, f"Q{100 + len(self._items)}")

    @cached_property
    def _facts(self) -> list[Triple]:
        return list(self.world.triples())

    @cached_property
    def _mediators(self) -> dict[Node, list[Triple]]:
        found: dict[Node, list[Triple]] = {
            fact.head: [] for fact in self._facts if fact.relation == "type.object.type" and fact.tail in MEDIATORS
        }
        for fact in self._facts:
            for end in {fact.head, fact.tail} & found.keys():
                found[end].append(fact)
        return found

    @cached_property
    def _of_mediators(self) -> frozenset[str]:
        return frozenset(fact.relation for fact in self._facts if fact.head in self._mediators) - {"type.object.type"}

    @cached_property
    def _properties(self) -> dict[str, EntityId]:
        stated = {self.place(fact.relation)[0] for fact in self._facts} - NOT_STATED
        return {name: f"P{number}" for number, name in enumerate(sorted(stated), start=31)}

    def _of_node(self, head: EntityId, relation: str, tail: Node) -> Iterator[Triple]:
        """Yield the names of a node."""
        item = self.item(head)
        if isinstance(tail, LiteralNode) and relation in ("type.object.name", "common.topic.alias"):
            yield Triple(item, ALIAS if relation.startswith("common") else LABEL, tail)
            if relation == "type.object.name" and tail.lang == "en":
                yield Triple(item, LABEL, LiteralNode(f"{tail.value} (deutsch)", lang="de"))

    def _statement(self, head: EntityId, relation: str, statement: EntityId, tail: Node) -> Iterator[Triple]:
        """Yield the truthy fact and its statement."""
        property = self._properties[relation]
        value = self.item(tail) if isinstance(tail, str) else tail
        if relation == "people.person.gender" and isinstance(value, str):
            value = self._former(value) or value  # a bot has not yet followed the redirect
        yield Triple(self.item(head), property, value)
        yield Triple(self.item(head), f"{property} (statement)", statement)
        yield Triple(statement, f"{property} (value)", value)
        yield Triple(statement, RDF_TYPE, f"{WIKIBASE}Statement")
        yield Triple(statement, f"{WIKIBASE}rank", f"{WIKIBASE}NormalRank")

    def _mediator(self, mediator: Node, numbers: Iterator[int]) -> Iterator[Triple]:
        """Yield the statement of each owner of a mediator: its main value and its qualifiers."""
        facts = self._mediators[mediator]
        owners = [(fact.head, fact.relation) for fact in facts if fact.relation in MAIN_VALUES]
        for owner, relation in owners:
            assert isinstance(owner, str)
            statement = f"statement/{self.item(owner)}-{next(numbers):08X}"
            for fact in facts:
                stated, role, _ = self.place(fact.relation)
                if fact.head != mediator or fact.tail == owner or stated == "type.object.type":
                    continue
                if role == "value":
                    yield from self._statement(owner, relation, statement, fact.tail)
                elif role == "qualifier":
                    value = self.item(fact.tail) if isinstance(fact.tail, str) else fact.tail
                    yield Triple(statement, f"{self._properties[stated]} (qualifier)", value)

    def _former(self, item: EntityId) -> EntityId | None:
        number = int(item[1:])
        return f"Q9{number:06}" if number % self.former_every == 0 else None

    def _named_as(self, id: str) -> EntityId:
        """Return the id under which a question names a node: a former one, if there is one."""
        item = self.item(id)
        return self._former(item) or item

    def _answer(self, answer: GoldAnswer) -> GoldAnswer:
        return answer if answer.id is None else GoldAnswer(answer.name, self._named_as(answer.id), answer.aliases)
