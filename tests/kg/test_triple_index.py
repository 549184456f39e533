"""The in-memory index gives the same results as the embedded store for any facts."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from pipeline.config import default
from pipeline.kg.embedded import EmbeddedGraph
from pipeline.kg.interface import Neighbours
from pipeline.kg.labels import find_mediators
from pipeline.kg.relation_filter import RelationFilter
from pipeline.kg.triple_index import TripleIndex
from pipeline.rdf_terms import XSD, Terms
from pipeline.types import LiteralNode, Relation, Triple
from tests.kg.support import FREEBASE, Facts

FACTS = [
    Triple("m.film", "type.object.name", LiteralNode("Solaris", lang="en")),
    Triple("m.film", "type.object.name", LiteralNode("Солярис", lang="ru")),
    Triple("m.film", "type.object.type", "film.film"),
    Triple("m.film", "film.film.starring", "m.cvt"),
    Triple("m.film", "film.film.starring", "m.cvt"),
    Triple("m.film", "film.film.runtime", LiteralNode("167.0", XSD + "double")),
    Triple("m.cvt", "film.performance.actor", "m.actor"),
    Triple("m.actor", "common.topic.alias", LiteralNode("Donatas")),
    Triple("m.leaf", "type.object.type", "film.film"),
    Triple("Solaris", "directed_by", "Tarkovsky"),
    Triple("m.role", "type.object.type", "film.performance"),
    Triple("film.performance", "freebase.type_hints.mediator", "true"),
    Triple(LiteralNode("no head"), "film.film.starring", "m.cvt"),
]


def index(facts: list[Triple], *, keep_literals: bool = True) -> TripleIndex:
    return TripleIndex(facts, relation_filter=RelationFilter(FREEBASE), keep_literals=keep_literals)


def test_relations_are_distinct_filtered_and_in_both_directions():
    graph = index(FACTS)
    assert graph.relations("m.film") == [Relation("film.film.runtime", "out"), Relation("film.film.starring", "out")]
    assert graph.relations("m.cvt") == [Relation("film.film.starring", "in"), Relation("film.performance.actor", "out")]
    assert graph.relations("nobody") == []


def test_truncation_of_neighbours_is_reported():
    graph = index(FACTS)
    assert graph.neighbours(("m.film", Relation("film.film.runtime", "out")), 5) == Neighbours(
        (LiteralNode("167", XSD + "double"),)
    )
    hop = ("film.film", Relation("type.object.type", "in"))
    assert graph.neighbours(hop, 2) == Neighbours(("m.film", "m.leaf"))
    assert graph.neighbours(hop, 1) == Neighbours(("m.film",), truncated=True)
    assert graph.neighbours(("m.film", Relation("nothing", "out")), 1) == Neighbours(())


def test_literals_can_be_left_out_of_the_nodes():
    graph = index(FACTS, keep_literals=False)
    assert graph.neighbours(("m.film", Relation("film.film.runtime", "out")), 5) == Neighbours(())


def test_labels_prefer_english_names():
    graph = index(FACTS)
    assert [graph.label(id) for id in ("m.film", "m.actor", "m.cvt", "Solaris")] == [
        "Solaris",
        "Donatas",
        None,
        "Solaris",
    ]
    assert graph.find_by_name("Solaris", 5) == ["Solaris", "m.film"]
    assert graph.find_by_name("Solaris", 1) == ["Solaris"]
    assert graph.find_by_name("Солярис", 5) == graph.find_by_name("Nobody", 5) == []


async def test_mediators_and_types():
    assert index(FACTS).types("m.film") == ["film.film"]
    assert index(FACTS).mediator_types() == {"film.performance"}
    async with default(EmbeddedGraph, dataset=Facts(FACTS)) as embedded:
        ids = ["m.cvt", "m.role", "m.leaf", "m.film", "Tarkovsky"]
        expected = dict.fromkeys(ids, False) | {"m.cvt": True, "m.role": True}
        assert await embedded.mediators(ids) == expected
        assert await find_mediators(embedded, ids, Terms(), index(FACTS).mediator_types(), FREEBASE) == expected


IDS = st.sampled_from(["m.1", "m.2", "g.3", "A", "a b", "é", "x", "m.x y", "film.film"])
NAMING = ["type.object.name", "type.object.type", "common.topic.alias", "freebase.type_hints.mediator"]
RELATIONS = st.sampled_from([*NAMING, "film.starring", "knows", "common.topic.image", "user.x.y", "rdf#type"])
LITERALS = st.builds(
    LiteralNode, st.sampled_from(["A", "true", "1.50", "2001"]), st.sampled_from([None, XSD + "double", XSD + "gYear"])
) | st.builds(LiteralNode, st.sampled_from(["A", "x", "é"]), lang=st.sampled_from(["en", "de", "en-GB", None]))
TRIPLES = st.lists(st.builds(Triple, IDS, RELATIONS, IDS | LITERALS), min_size=1, max_size=25)


@given(TRIPLES, st.integers(1, 4), st.booleans())
async def test_results_equal_those_of_the_embedded_store(facts, limit, keep_literals):
    graph = index(facts, keep_literals=keep_literals)
    ids = sorted({node for fact in facts for node in (fact.head, fact.tail) if isinstance(node, str)} | {"A", "m.9"})
    async with default(EmbeddedGraph, dataset=Facts(facts), keep_literals=keep_literals) as store:
        relations = await store.relations(ids)
        hops = [(id, relation) for id in ids for relation in relations[id]]
        assert relations == {id: graph.relations(id) for id in ids}
        assert await store.neighbours(hops, limit) == {hop: graph.neighbours(hop, limit) for hop in hops}
        assert await store.labels(ids) == {id: graph.label(id) for id in ids}
        assert await store.types(ids) == {id: graph.types(id) for id in ids}
        names = ["A", "x", "é", "true"]
        assert await store.find_by_name(names, limit) == {name: graph.find_by_name(name, limit) for name in names}
        assert await store.relation_names() == graph.relation_names()
        expected = await store.mediators(ids)
        assert await find_mediators(store, ids, Terms(), graph.mediator_types(), FREEBASE) == expected
