"""Small graphs for tests."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, cast

from pipeline import config
from pipeline.datasets.inverses import INVERSE, Inverses, inverse_pairs
from pipeline.kg.interface import Batch, Hop, Neighbours, batch, node_order
from pipeline.kg.vocabulary import GraphVocabulary
from pipeline.types import EntityId, LiteralNode, Node, Relation, Triple

FREEBASE = config.default(GraphVocabulary)
"""The vocabulary of graphs for which nothing else is said, and its predicates."""
(NAME,), (ALIAS,) = FREEBASE.names, FREEBASE.aliases
TYPE, MEDIATOR = FREEBASE.types or "", FREEBASE.mediator_flag or ""


def vocabulary(choice: str, **changes: Any) -> GraphVocabulary:
    """The vocabulary of a file in `conf/kg/vocabulary`, with changes."""
    composed = config.compose([f"kg/vocabulary={choice}"])
    section = {**composed["kg"]["vocabulary"], **changes}
    return cast("GraphVocabulary", config.build("vocabulary", {"vocabulary": section}))


@dataclass(frozen=True)
class Facts:
    """A dataset that consists of a graph."""

    facts: Iterable[Triple]
    name: str = "facts"
    split: str = "test"

    def triples(self) -> Iterator[Triple]:
        return iter(self.facts)


_HOSTILE = [
    'a "quoted" name',
    "back\\slash \\u0041 %41",
    "line\nbreak\r\n\ttab",
    "<urn:x> . } INSERT DATA { <urn:a> <urn:b> <urn:c> } #",
    "ünï ☃ 😀 \u2028 \ufeff",
    "\x01\x7f",
    "' OR 1=1 --",
    "",
    "m" * 1800,
]

HOSTILE_FACTS = [
    *(Triple(name, "a.b", LiteralNode(name, lang="en")) for name in _HOSTILE),
    *(Triple(f"m.{n}", name, name) for n, name in enumerate(_HOSTILE)),
    Triple("m.1", "a.text", LiteralNode("é" * 500_000)),
]
"""Names and texts that a careless loader changes, reads as syntax, or truncates."""


class TripleGraph:
    """A graph of a few triples that counts its lookups by kind."""

    def __init__(self, triples: Iterable[tuple[str, str, Node]], names: dict[str, str] | None = None) -> None:
        self.triples = [Triple(*triple) for triple in triples]
        self.names = names or {}
        self.calls: Counter[str] = Counter()
        self._reached: defaultdict[Hop, set[Node]] = defaultdict(set)
        for head, relation, tail in self.triples:
            self._reached[head, Relation(relation, "out")].add(tail)
            if isinstance(tail, str):
                self._reached[tail, Relation(relation, "in")].add(head)

    async def relations(self, ids: Sequence[EntityId]) -> Batch[EntityId, list[Relation]]:
        self.calls["relations"] += 1
        return batch({id: sorted(relation for entity, relation in self._reached if entity == id) for id in ids})

    async def neighbours(self, hops: Sequence[Hop], limit: int) -> Batch[Hop, Neighbours]:
        self.calls["neighbours"] += 1
        found = {hop: sorted(self._reached.get(hop, ()), key=node_order) for hop in hops}
        return batch({hop: Neighbours(tuple(nodes[:limit]), len(nodes) > limit) for hop, nodes in found.items()})

    async def inverses(self) -> Inverses:
        return inverse_pairs((fact.head, fact.tail) for fact in self.triples if fact.relation == INVERSE)

    async def find_by_name(self, names: Sequence[str], limit: int) -> Batch[str, list[EntityId]]:
        return batch({name: sorted(id for id, own in self.names.items() if own == name)[:limit] for name in names})


def out(name: str) -> Relation:
    return Relation(name, "out")


def into(name: str) -> Relation:
    return Relation(name, "in")
