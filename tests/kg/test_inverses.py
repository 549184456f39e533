"""A graph that declares inverse relations offers each edge once, on every backend and along gold paths."""

from __future__ import annotations

from pipeline.config import default
from pipeline.datasets.inverses import INVERSE
from pipeline.kg.embedded import EmbeddedGraph
from pipeline.kg.paths import find_paths, gold_paths
from pipeline.kg.relation_filter import RelationFilter
from pipeline.kg.triple_index import TripleIndex
from pipeline.types import GoldAnswer, Triple
from tests.kg.support import FREEBASE, Facts, into, out

FACTS = [
    Triple("film.directed_by", INVERSE, "director.film"),
    Triple("Solaris", "film.directed_by", "Tarkovsky"),
    Triple("Tarkovsky", "director.film", "Solaris"),
    Triple("Solaris", "film.sequel", "Solaris 2"),
    Triple("Stalker", "film.directed_by", "Tarkovsky"),
    Triple("Tarkovsky", "director.film", "Stalker"),
    Triple("One-sided", "film.directed_by", "Nobody"),
]


async def test_the_index_of_one_question_offers_the_same() -> None:
    index = TripleIndex(FACTS, relation_filter=RelationFilter(FREEBASE))
    async with default(EmbeddedGraph, dataset=Facts(FACTS)) as graph:
        ids = sorted({node for fact in FACTS for node in (fact.head, fact.tail) if isinstance(node, str)})
        assert {id: index.relations(id) for id in ids} == await graph.relations(ids)
        assert index.inverses == await graph.inverses()


async def test_gold_paths_use_the_relations_that_are_offered() -> None:
    answers = [GoldAnswer("Stalker", id="Stalker")]
    expected = [(out("film.directed_by"), out("director.film"))]
    async with default(EmbeddedGraph, dataset=Facts(FACTS)) as graph:
        known = [(into("director.film"), into("film.directed_by"))]
        assert await gold_paths(graph, "Solaris", known, answers) == expected
        assert await find_paths(graph, "Solaris", answers) == expected
        undirected = [(out("director.film"), out("film.directed_by"))]
        assert await gold_paths(graph, "Solaris", undirected, answers) == expected
