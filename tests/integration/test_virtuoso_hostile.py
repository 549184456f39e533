"""No label, relation, id or name changes a query's meaning: the bar for hostile input, on the real servers.

Facts full of quotes, braces, line ends and SPARQL are loaded into a real Virtuoso and a real Oxigraph and asked for by
their own strings. Each answer must be exactly what was loaded, and strings that were never loaded must find nothing.
"""

from __future__ import annotations

import asyncio
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field

import pytest
from hypothesis import HealthCheck, Phase, example, given, settings
from hypothesis import strategies as st

from pipeline.config import default
from pipeline.kg.embedded import EmbeddedGraph
from pipeline.kg.interface import Hop, KnowledgeGraph
from pipeline.kg.load import post
from pipeline.kg.relation_filter import RelationFilter
from pipeline.kg.sparql import SparqlGraph
from pipeline.kg.virtuoso import VirtuosoServer
from pipeline.rdf_terms import Terms
from pipeline.types import EntityId, LiteralNode, Relation, Triple
from tests.kg.support import FREEBASE, NAME

pytestmark = pytest.mark.exhaustive

TERMS = Terms()
FILTER = RelationFilter(FREEBASE)

FRAGMENTS = [
    '"', "'", '"""', "\\", "\\\\", '\\"', "\\u0022", "\\U00000022", "\n", "\r", "\r\n", "\t", "\0", "\x01", "\x1f",
    "\x7f", "\x85", "\u2028", "\ufeff", "\uffff", "<", ">", "<b>", "&quot;", "{", "}", "}}", "{{x}}", "?r", "$x", "%41",
    "%", "%%", "#", "--", "/*", ";", ",", ".", " ", "  ", "^^", "@en", "_:b", "ns:", "é", "e\u0301", "ﬀ", "𐍈", "İ", "١",
    "x> ?r ?o } UNION { ?s ?p ?o } #", '"@en } UNION { ?e ?r ?o } #', "DROP GRAPH <urn:kgqa:graph>", "} LIMIT 1 #",
    "define sql:select-option", "??", "'); shutdown; --", "SELECT * WHERE { ?s ?p ?o }", "FILTER(true)", "nodeID://b1",
    "http://rdf.freebase.com/ns/", "m.0abc", "type.object.name", "sameAs", "NULL", "true", "1", "1.0",
]  # fmt: skip

HOSTILE = st.one_of(
    st.lists(st.sampled_from(FRAGMENTS), min_size=1, max_size=6).map("".join),
    st.text(st.characters(exclude_categories=["Cs"]), max_size=40),
)
NAMES = HOSTILE.filter(lambda name: TERMS.own_name(name) is not None and TERMS.storable(name))

MEGABYTE = 1 << 20


@dataclass
class World:
    """Everything that was loaded so far, and what the port must say of it."""

    endpoint: str
    facts: set[Triple] = field(default_factory=set)
    name: str = "hostile"

    def triples(self) -> Iterator[Triple]:
        return iter(self.facts)

    def load(self, facts: Iterable[Triple]) -> None:
        new = set(facts) - self.facts
        post(["".join(map(TERMS.n_triple, new)).encode()], [self.endpoint], timeout_s=60)
        self.facts |= new

    def neighbours(self, id: EntityId, relation: Relation) -> set[object]:
        if relation.direction == "out":
            return {tail for head, name, tail in self.facts if (head, name) == (id, relation.name)}
        return {head for head, name, tail in self.facts if (tail, name) == (id, relation.name)}

    def relations(self, id: EntityId) -> list[Relation]:
        found = {Relation(name, "out") for head, name, _ in self.facts if head == id}
        found |= {Relation(name, "in") for _, name, tail in self.facts if tail == id}
        return sorted(relation for relation in found if FILTER.keeps(relation.name))

    def named(self, name: str) -> list[EntityId]:
        found = {str(head) for head, relation, tail in self.facts if relation == NAME and _is_english(tail, name)}
        return sorted(found | ({name} if self.relations(name) else set()))


def _is_english(tail: object, name: str) -> bool:
    return isinstance(tail, LiteralNode) and tail.value == name and tail.lang in (None, "en")


@pytest.fixture(scope="module")
def world(virtuoso_factory: Callable[..., list[VirtuosoServer]]) -> World:
    [server] = virtuoso_factory([Triple("m.first", "r.a.b", "m.second")])
    return World(server.endpoint, {Triple("m.first", "r.a.b", "m.second")})


@dataclass
class Asked:
    """The strings of one example, and what they stand for."""

    ids: list[str]
    hops: list[Hop]
    labels: dict[EntityId, str]
    names: list[str]


async def check(world: World, asked: Asked) -> None:
    """Ask both servers for everything about these strings."""
    endpoints = (world.endpoint,)
    async with (
        default(SparqlGraph, endpoints=endpoints, snapshot="none", values_style="values", timeout_s=120) as virtuoso,
        default(EmbeddedGraph, dataset=world) as oxigraph,
    ):
        await _check_one(virtuoso, world, asked)
        await _check_one(oxigraph, world, asked)


async def _check_one(kg: KnowledgeGraph, world: World, asked: Asked) -> None:
    assert await kg.relations(asked.ids) == {id: world.relations(id) for id in asked.ids}
    for hop, found in (await kg.neighbours(asked.hops, 1000)).items():
        assert set(found.nodes) == world.neighbours(*hop)
        assert not found.truncated
    assert await kg.labels(list(asked.labels)) == asked.labels
    assert await kg.find_by_name(asked.names, 1000) == {name: world.named(name) for name in asked.names}


@settings(
    max_examples=12,
    # No shrinking: a smaller example would meet all that was loaded for the larger ones.
    phases=[Phase.explicit, Phase.generate],
    derandomize=True,
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large],
)
@given(
    facts=st.lists(st.tuples(NAMES, NAMES, NAMES), min_size=1, max_size=5),
    texts=st.lists(st.tuples(HOSTILE, st.sampled_from(["en", None])), min_size=1, max_size=8),
    strangers=st.lists(HOSTILE, max_size=5),
)
@example(facts=[("<", ">", '"')], texts=[('"' * MEGABYTE, "en")], strangers=["x" * MEGABYTE])
@example(facts=[("a", "b", "c")], texts=[("\n\\" * (MEGABYTE // 2), None), ("é" * MEGABYTE, "en")], strangers=[])
@example(facts=[(fragment, fragment, fragment) for fragment in FRAGMENTS if fragment not in ("m.0abc",)],
         texts=[(fragment, lang) for fragment in FRAGMENTS for lang in ("en", None)], strangers=[])  # fmt: skip
def test_hostile_strings_are_only_data(
    world: World, facts: list[tuple[str, str, str]], texts: list[tuple[str, str | None]], strangers: list[str]
) -> None:
    loaded = [Triple(*fact) for fact in facts]
    start = len(world.facts)
    labels = {f"m.{start}_{number}": text for number, (text, _) in enumerate(texts)}
    world.load(loaded)
    world.load(
        Triple(id, NAME, LiteralNode(text, lang=lang))
        for (id, text), (_, lang) in zip(labels.items(), texts, strict=True)
    )
    ids = list(dict.fromkeys([*(name for fact in facts for name in (fact[0], fact[2])), *strangers]))
    by_head: defaultdict[Hop, None] = defaultdict()
    for head, relation, tail in facts:
        by_head[head, Relation(relation, "out")] = None
        by_head[tail, Relation(relation, "in")] = None
    hops = [*by_head, *((stranger, Relation(stranger, "out")) for stranger in strangers)]
    hops += [(id, Relation(NAME, "out")) for id in labels]
    names = list(dict.fromkeys([*labels.values(), *strangers, *(head for head, _, _ in facts)]))
    asyncio.run(check(world, Asked(ids, hops, labels, names)))
