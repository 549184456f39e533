"""Gold SPARQL over Wikidata's IRIs is rewritten to names, and texts and foreign IRIs stay as they are."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pipeline.datasets.gold_paths import query_graph, query_operation
from pipeline.datasets.gold_queries import with_names_of
from pipeline.types import Relation
from tests.kg.support import vocabulary

TERMS = vocabulary("wikidata").terms


def name_of(iri: str) -> str | None:
    return TERMS.relation_name(iri) or TERMS.from_iri(iri)


def rewritten(sparql: str) -> str:
    return with_names_of(sparql, name_of)


@pytest.mark.parametrize(
    ("query", "path"),
    [
        ("SELECT ?x { wd:Q42 wdt:P69 ?x . }", [("P69", "out")]),
        ("SELECT ?x WHERE { ?x wdt:P69 wd:Q42 }", [("P69", "in")]),
        ("SELECT ?x { wd:Q42 p:P69 ?s . ?s pq:P580 ?x }", [("P69 (statement)", "out"), ("P580 (qualifier)", "out")]),
        ("SELECT ?x { wd:Q42 p:P69 [ ps:P69 ?x ] }", [("P69 (statement)", "out"), ("P69 (value)", "out")]),
        ("PREFIX e: <http://www.wikidata.org/entity/>\nprefix : <http://www.wikidata.org/prop/direct/>\n"
         "SELECT ?x { e:Q42 :P69 ?x }", [("P69", "out")]),
        ("SELECT ?x { <http://www.wikidata.org/entity/Q42> <http://www.wikidata.org/prop/direct/P69> ?x }",
         [("P69", "out")]),
        ('SELECT ?x { wd:Q42 wdt:P69 ?x . # wd:Q1 wdt:P1\n ?x rdfs:label "wd:Q1 # <x>"@en }', [("P69", "out")]),
        ("SELECT (COUNT(DISTINCT ?x) AS ?n) { wd:Q42 wdt:P69 ?x . }", [("P69", "out")]),
    ],
)  # fmt: skip
def test_gold_paths_are_read_from_wikidata_queries(query: str, path: list[tuple[str, str]]) -> None:
    graph = query_graph(rewritten(query))
    assert graph is not None
    assert graph.paths_from("Q42") == [tuple(Relation(*step) for step in path)]


def test_the_operation_of_a_query_is_read() -> None:
    counted = query_operation(rewritten("SELECT (COUNT(?x) AS ?n) { wd:Q42 wdt:P69 ?x }"))
    assert counted is not None
    assert counted.kind == "count"
    query = 'SELECT ?x { wd:Q42 wdt:P69 ?x . ?x wdt:P571 ?d . FILTER(?d > "1900"^^xsd:gYear) }'
    above = query_operation(rewritten(query))
    assert above is not None
    assert (above.kind, above.path, above.bound) == ("above", (Relation("P571", "out"),), "1900")


def test_texts_and_other_graphs_stay() -> None:
    query = 'SELECT ?x { ?x <http://schema.org/about> "it\'s <http://www.wikidata.org/entity/Q1> \\" wd:Q2" }'
    assert rewritten(query) == query


@given(st.text(st.characters(exclude_categories=["Cs"]), max_size=80), st.lists(st.sampled_from("<>\"'#:\\{}\n")))
def test_any_text_can_be_rewritten(text: str, marks: list[str]) -> None:
    assert isinstance(rewritten(text + "".join(marks) + text), str)
