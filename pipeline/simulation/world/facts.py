"""Parts of the synthetic graph: a builder for the facts of the hubs and of each region, and an index over them."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable
from pathlib import Path
from random import Random
from typing import TypeAlias

from pipeline.rdf_terms import XSD
from pipeline.simulation.world.names import Ids, Labels
from pipeline.text import load_yaml
from pipeline.types import EntityId, LiteralNode, Node, Relation, Triple

Kind: TypeAlias = str
"""The kind of an entity in questions: `film`, `person`, `city`, … A kind may have several Freebase types."""

_SCHEMA = load_yaml(Path(__file__).with_name("schema.yaml").read_text(encoding="utf-8"))

TYPES: dict[Kind, tuple[str, ...]] = {kind: tuple(types) for kind, types in _SCHEMA["types"].items()}
MEDIATORS: tuple[str, ...] = tuple(_SCHEMA["mediators"])
"""Types of mediators: unnamed nodes that join the parts of one n-ary fact."""
INVERSES: dict[str, str] = _SCHEMA["inverses"]
"""Relation → the relation under which the graph holds each of its edges in reverse (specification §8.4)."""

_FOREIGN = (("fr", "Le "), ("de", "Der "), ("es", "El "), ("tr", "Bu "))


class Facts:
    """One part of the graph: its facts in order, and its entities by kind, with their names."""

    def __init__(self, seed: int, part: int) -> None:
        self.rng = Random(f"sample/{seed}/{part}")  # the text seeds all draws: never change it
        self.labels = Labels(self.rng)
        self.triples: list[Triple] = []
        self.names: dict[EntityId, str] = {}
        """Entity → its label, by the order of specification §8.5."""
        self.aliases: dict[EntityId, tuple[str, ...]] = {}
        self.members: defaultdict[Kind, list[EntityId]] = defaultdict(list)
        self._ids = Ids(seed, part)

    def entity(self, kind: Kind, name: str, *more_types: str) -> EntityId:
        """Add a named entity with its types and, by chance, an alias, a foreign name or a meta fact; return its id."""
        types = (*TYPES[kind], *more_types)
        chance = self.rng.random()
        id = self._ids.new("g.1" if chance > 0.97 else "m.0")
        self.names[id] = name
        self.members[kind].append(id)
        self._name(id, name, chance)
        for type in types:
            self.link(id, "type.object.type", type)
        if chance > 0.01:
            self._decorate(id, name, types[0])
        return id

    def mediator(self, type: str) -> EntityId:
        """Add an unnamed node and return its id."""
        id = self._ids.new("g.1" if type == "measurement_unit.dated_integer" else "m.0")
        self.link(id, "type.object.type", type)
        return id

    def link(self, head: EntityId, relation: str, tail: EntityId) -> None:
        """Add an edge and, if the relation has an inverse, the reverse edge."""
        self.triples.append(Triple(head, relation, tail))
        inverse = INVERSES.get(relation)
        if inverse is not None:
            self.triples.append(Triple(tail, inverse, head))

    def state(self, head: EntityId, relation: str, value: str, datatype: str | None = None) -> None:
        """Add a literal; `datatype` is the local name of an XML Schema type."""
        self.triples.append(Triple(head, relation, LiteralNode(value, XSD + datatype if datatype else None)))

    def date(self, head: EntityId, relation: str, year: int, *, exact: float = 0.4) -> None:
        """Add a date in `year`: a day with probability `exact`, else a month or only the year."""
        rng = self.rng
        chance, month = rng.random(), rng.randint(1, 12)
        if chance < exact:
            self.state(head, relation, f"{year}-{month:02}-{rng.randint(1, 28):02}", "date")
        elif chance < (1 + exact) / 2:
            self.state(head, relation, f"{year}-{month:02}", "gYearMonth")
        else:
            self.state(head, relation, f"{year}", "gYear")

    def say(self, head: EntityId, relation: str, text: str, lang: str = "en") -> None:
        """Add a text in a language."""
        self.triples.append(Triple(head, relation, LiteralNode(text, None, lang)))

    def _name(self, id: EntityId, name: str, chance: float) -> None:
        """Add the label; for a few entities only as an alias or in another language (specification §8.5)."""
        if chance < 0.005:
            self.say(id, "common.topic.alias", name)
        elif chance < 0.01:
            self.say(id, "type.object.name", name, "fr")
        else:
            self.say(id, "type.object.name", name)
            if chance < 0.05:
                lang, article = self.rng.choice(_FOREIGN)
                self.say(id, "type.object.name", article + name, lang)

    def _decorate(self, id: EntityId, name: str, type: str) -> None:
        chance = self.rng.random()
        if chance < 0.1:
            alias = _short(name)
            self.aliases[id] = (alias,)
            self.say(id, "common.topic.alias", alias)
        elif chance < 0.2:
            self.link(id, "common.topic.notable_types", type)
        elif chance < 0.24:
            self.say(id, "common.topic.description", self.labels.sentence())
        elif chance < 0.27:
            self.state(id, "type.object.key", "/wikipedia/en_title/" + name.replace(" ", "_"))
        elif chance < 0.29:
            self.link(id, "user.sampler.default_domain.listed_topic.listed_as", type)
        elif chance < 0.31:
            self.link(id, "kg.object_profile.prominent_type", type)


class Index:
    """An index for one-hop lookups over several parts of the graph."""

    def __init__(self, parts: Iterable[Facts], relations: frozenset[str]) -> None:
        self._out: dict[str, dict[Node, list[Node]]] = {relation: {} for relation in relations}
        self._in: dict[str, dict[Node, list[Node]]] = {relation: {} for relation in relations}
        for part in parts:
            for head, relation, tail in part.triples:
                if relation in relations:
                    self._out[relation].setdefault(head, []).append(tail)
                    self._in[relation].setdefault(tail, []).append(head)

    def follow(self, node: Node, relation: Relation) -> list[Node]:
        """Return the nodes that `relation` leads to, in the order of the facts."""
        edges = self._out if relation.direction == "out" else self._in
        return edges[relation.name].get(node, [])


def _short(name: str) -> str:
    """Return an alias of a name: its initial and last word, or `Old …` for a single word."""
    words = name.split()
    return f"{words[0][0]}. {words[-1]}" if len(words) > 1 else f"Old {name}"
