"""What queries of one shape share is read from one of them, and is what each of them says by itself."""

from __future__ import annotations

import pytest

from pipeline.datasets.gold_paths import algebra, graph_of
from pipeline.datasets.query_shapes import gold_relations, is_parsed, parsed_shape, query_shape
from pipeline.datasets.query_types import query_type

PREFIX = "PREFIX ns: <http://rdf.freebase.com/ns/> "


def test_the_relations_of_a_query_are_those_that_a_method_can_follow() -> None:
    query = PREFIX + "SELECT ?x WHERE { ns:m.a ns:held ?y . ?y ns:office ?x . ?x ns:type.object.type ns:court }"
    assert gold_relations(query) == ("held", "office")
    assert gold_relations("SELECT ?x WHERE { ?x <http://other.org/r> ?y }") is None
    assert gold_relations("no query") is None
    assert gold_relations(None) is None


def test_queries_that_differ_only_in_their_entities_have_one_shape() -> None:
    query = PREFIX + (
        "SELECT ?x WHERE { ns:m.0a ns:a.b.c ?y . ?y ns:d.e.f ns:g.1b . FILTER (?x != ns:m.0a) . ?y ns:m.o.p ?x }"
    )
    other = query.replace("ns:m.0a", "ns:m.9_z").replace("ns:g.1b", "ns:m.0a")
    assert query_shape(query).sparql == query_shape(other).sparql
    assert query_shape(query).sparql != query_shape(query.replace("ns:g.1b", "ns:m.0a")).sparql
    assert gold_relations(query) == gold_relations(other) == ("a.b.c", "d.e.f", "m.o.p")


def test_relations_are_read_from_one_query_of_each_shape() -> None:
    where = '{ ns:m.0a ns:a.b.c ?y . ?y ns:d.e.f ?x . ?x ns:g.h.i "it\'s one" . ?x ns:type.object.type ns:k.l }'
    query = f"{PREFIX}SELECT ?x WHERE {where}"
    assert gold_relations(query) == ("a.b.c", "d.e.f", "g.h.i")
    other = query.replace("m.0a", "m.0b").replace("a.b.c", "x.y.z").replace("it's one", "ns:a.b.c or 'two'")
    assert is_parsed(other)
    assert gold_relations(other) == ("d.e.f", "g.h.i", "x.y.z")
    twice = query.replace("d.e.f", "a.b.c")
    assert not is_parsed(twice)
    assert gold_relations(twice) == ("a.b.c", "g.h.i")


@pytest.mark.parametrize(
    "where",
    [
        "{ FILTER (?x != ns:m.0a) ns:m.0a ns:a.b ?x . }",
        "{ FILTER (?x != ns:m.0a) . ns:m.0a ns:a.b ?x }",
        "{ ns:m.0a ns:a.b ?x FILTER (?x != ns:m.0a) ?x ns:c.d ?y }",
        "{ ns:m.0a ns:a.b ?x . FILTER (?x != ns:m.0a) FILTER(ns:m.0a!=?y) . ?x ns:c.d ?y }",
        "{ ns:m.0a ns:a.b ?x . filter (?x != <http://rdf.freebase.com/ns/m.0b>) ?x ns:c.d ?y }",
        "{ ns:m.0a ns:a.b ?x . OPTIONAL { FILTER (?x != ?y) } ?x ns:c.d ?y }",
        "{ ns:m.0a ns:a.b ?x . FILTER (?x != ?y && ?x != ns:m.0a) ?x ns:c.d ?y }",
        "{ ns:m.0a ns:a.b ?x . ?x ns:c.d 'FILTER (?x != ?y)', \". FILTER (?x != ?y) 'z'\" . }",
        "{ ns:m.0a ns:a.b ?x . FILTER (?x = 'OR' OR ?x = \"A OR B\") }",
    ],
)
def test_a_query_has_the_patterns_of_its_shape(where: str) -> None:
    query = f"{PREFIX}SELECT ?x WHERE {where}"
    shape = query_shape(query)
    parsed = parsed_shape(shape.sparql)
    assert parsed is not None
    own = graph_of(algebra(query))
    assert {(head, relation) for head, relation, _ in parsed.graph.renamed(shape.names).patterns} == {
        (head, relation) for head, relation, _ in own.patterns
    }
    assert len(parsed.graph.patterns) == len(own.patterns)


def test_filters_that_say_that_two_terms_differ_make_no_shape() -> None:
    query = PREFIX + "SELECT ?x WHERE { ns:m.0a ns:e.f ?y . ?y ns:g.h ?x . FILTER (ns:m.0a != ?x) FILTER (?y != ?x) }"
    assert query_shape(query) == query_shape(query.replace(" FILTER (?y != ?x)", ""))


def test_two_strings_of_a_query_stay_two() -> None:
    query = PREFIX + 'SELECT ?x WHERE { ?x ns:a.b "one" . ?x ns:c.d "%s" }'
    assert query_type(query % "two") == "conjunction"
    assert query_type(query % "one") == "linear"


@pytest.mark.parametrize(
    ("text", "other"),
    [
        ("DESC(?v)", "ASC(?v)"),
        ('?v < "1"', '?v > "1"'),
        ('"1"^^<http://www.w3.org/2001/XMLSchema#date>', '"2010"^^xsd:gYear'),
        ("WHERE {\n  ?x", "WHERE {\n?x"),
        ("?v .\n}", "?v .\n  }"),
    ],
)
def test_spaces_datatypes_and_directions_make_no_shape(text: str, other: str) -> None:
    date = '"1"^^<http://www.w3.org/2001/XMLSchema#date>'
    query = PREFIX + 'SELECT ?x WHERE {\n  ?x ns:a.b ?v .\n}\nORDER BY DESC(?v) LIMIT 1 # DESC(?v) < "1"'
    if text not in query:
        query = PREFIX + f'SELECT ?x WHERE {{\n  ?x ns:a.b ?v .\n  FILTER (?v < "1" || ?v = {date})\n}}'
    changed = query.replace(text, other)
    assert changed != query
    assert query_shape(changed).sparql == query_shape(query).sparql
    for each in (query, changed):
        parsed = graph_of(algebra(each))
        assert gold_relations(each) == tuple(pattern.relation for pattern in parsed.patterns) == ("a.b",)
    assert query_type(query) == query_type(changed) == ("superlative" if "ORDER" in query else "comparative")


def test_a_comment_ends_with_its_line() -> None:
    query = f"# of the year\n{PREFIX}\nSELECT ?x # the answer\nWHERE {{ ns:m.0a ns:a.b ?x }}"
    assert gold_relations(query) == ("a.b",)
