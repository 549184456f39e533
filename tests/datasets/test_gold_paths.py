"""Relation paths derived from gold SPARQL."""

from __future__ import annotations

import pickle

import pytest

from pipeline.datasets.gold_paths import (
    Pattern,
    SparqlPaths,
    Variable,
    query_graph,
)
from pipeline.types import LiteralNode, Relation

PREFIX = "PREFIX ns: <http://rdf.freebase.com/ns/>\n"


def _paths(sparql: str, *topics: str) -> dict[str, tuple[tuple[Relation, ...], ...]]:
    return dict(SparqlPaths((sparql,), {topic: topic for topic in topics}))


def _out(*names: str) -> tuple[Relation, ...]:
    return tuple(Relation(name, "out") for name in names)


def test_a_chain_keeps_the_direction_of_each_pattern() -> None:
    query = PREFIX + "SELECT DISTINCT ?x WHERE { ?c ns:team.mascot ns:m.seal . ?c ns:team.championships ?x . }"
    assert _paths(query, "m.seal") == {
        "m.seal": ((Relation("team.mascot", "in"), Relation("team.championships", "out")),)
    }


def test_virtuosos_or_is_translated_except_inside_texts_and_names() -> None:
    query = (
        PREFIX + "SELECT ?x WHERE { FILTER (!isLiteral(?x) OR lang(?x) = '' OR langMatches(lang(?x), 'en')) "
        'ns:m.a ns:r.OR ?x . ?x ns:s "this OR that" . ?x ns:t <http://rdf.freebase.com/ns/OR> }'
    )
    graph = query_graph(query)
    assert graph is not None
    assert set(graph.patterns) == {
        Pattern("m.a", "r.OR", Variable("x")),
        Pattern(Variable("x"), "s", LiteralNode("this OR that")),
        Pattern(Variable("x"), "t", "OR"),
    }


def test_filters_orders_minus_and_not_exists_are_dropped() -> None:
    query = (
        "#MANUAL SPARQL\n" + PREFIX + "SELECT DISTINCT ?x WHERE { FILTER (?x != ns:m.a) ns:m.a ns:held ?y . "
        "?y ns:office ?x . FILTER(NOT EXISTS {?y ns:from ?sk0} || EXISTS {?y ns:from ?sk1 . "
        'FILTER(xsd:datetime(?sk1) <= "2010-08-10"^^xsd:dateTime) }) MINUS { ns:m.a ns:short ?x } '
        "?x ns:born ?sk2 } ORDER BY DESC(xsd:datetime(?sk2)) LIMIT 1"
    )
    assert _paths(query, "m.a") == {"m.a": (_out("held", "office"),)}


def test_values_subselects_and_superlatives_of_grailqa_are_read() -> None:
    query = """PREFIX : <http://rdf.freebase.com/ns/>
    SELECT (?x0 AS ?value) WHERE { SELECT DISTINCT ?x0 WHERE {
      ?x0 :type.object.type :law.court .
      { SELECT (MIN(?y1) AS ?x1) WHERE { VALUES ?y2 { :m.05vm39 } ?y0 :law.court.founded ?y1 .
          ?y2 :law.court.inferior_courts ?y0 . FILTER ( ?y0 != ?y1 ) } }
      VALUES ?x2 { :m.05vm39 }
      ?x0 :law.court.founded ?x1 . ?x2 :law.court.inferior_courts ?x0 . FILTER ( ?x0 != ?x1 ) } }"""
    assert _paths(query, "m.05vm39") == {"m.05vm39": (_out("law.court.inferior_courts"),)}


def test_each_topic_has_its_paths_shortest_first() -> None:
    query = (
        PREFIX + "SELECT ?x WHERE { { ns:m.a ns:direct ?x } UNION { ns:m.a ns:via ?y . ?y ns:on ?x } ?x ns:at ns:m.b }"
    )
    assert _paths(query, "m.a", "m.b") == {
        "m.a": (_out("direct"), _out("via", "on")),
        "m.b": ((Relation("at", "in"),),),
    }


def test_paths_do_not_go_through_another_constant() -> None:
    query = PREFIX + "SELECT ?x WHERE { ns:m.a ns:r ns:m.b . ns:m.b ns:s ?x }"
    assert _paths(query, "m.a", "m.b") == {"m.b": (_out("s"),)}


def test_a_count_has_the_paths_to_what_it_counts() -> None:
    query = PREFIX + "SELECT (COUNT(?x0) AS ?value) WHERE { SELECT DISTINCT ?x0 WHERE { ns:m.a ns:r ?x0 } }"
    assert _paths(query, "m.a") == {"m.a": (_out("r"),)}
    plain = PREFIX + "SELECT (COUNT(DISTINCT ?x) AS ?n) WHERE { ns:m.a ns:r ?y . ?y ns:s ?x }"
    assert _paths(plain, "m.a") == {"m.a": (_out("r", "s"),)}


@pytest.mark.parametrize(
    "sparql",
    [
        "",
        "what is this",
        "SELECT ?x WHERE { unknown:a unknown:b ?x }",
        "SELECT ?x WHERE { ?x ",
        "ASK { ?a ?b ?c }",
        "SELECT * WHERE {}",
        "(" * 5000,
    ],
)
def test_an_unreadable_query_gives_no_path(sparql: str) -> None:
    assert _paths(sparql, "m.a") == {}


def test_unverified_candidates_come_last_without_duplicates() -> None:
    query = PREFIX + "SELECT ?x WHERE { ns:m.a ns:r ?x }"
    paths = SparqlPaths((query,), {"m.a": "Anna"}, unverified=(_out("s"), _out("r")))
    assert dict(paths) == {"Anna": (_out("r"), _out("s"))}


def test_topics_leave_out_classes() -> None:
    query = (
        PREFIX
        + "SELECT ?x WHERE { ns:m.f ns:adjoin ?y . ?y ns:adjoins ?x . ?x ns:common.topic.notable_types ns:m.01mp . "
        "?x ns:contains ?c . ?c ns:serves ns:m.n . ?x ns:type.object.type ns:location.country }"
    )
    graph = query_graph(query)
    assert graph is not None
    assert set(graph.topics()) == {"m.f", "m.n"}


def test_paths_can_be_pickled_before_and_after_parsing() -> None:
    paths = SparqlPaths((PREFIX + "SELECT ?x WHERE { ns:m.a ns:r ?x }",), {"m.a": "m.a"})
    early = pickle.loads(pickle.dumps(paths))
    assert len(paths) == 1
    assert "m.a" in paths
    assert early == paths == pickle.loads(pickle.dumps(paths)) == {"m.a": (_out("r"),)}
