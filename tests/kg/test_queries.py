"""The three query styles are equivalent, and both dialects of results are parsed exactly."""

from __future__ import annotations

from typing import Any, get_args

import pyoxigraph as ox
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from pipeline.kg.queries import IN, OUT, Queries, Query, Style, node_cells
from pipeline.kg.relation_filter import RelationFilter
from pipeline.kg.results import Row, Select, UnexpectedResult, numbers, parse_result
from pipeline.rdf_terms import XSD
from pipeline.types import LiteralNode, Relation, Triple
from tests.kg.support import ALIAS, FREEBASE, NAME, TYPE

TERMS = FREEBASE.terms
FILTER = RelationFilter(FREEBASE)
STYLES: tuple[Style, ...] = get_args(Style)
FACTS = [
    Triple("m.1", "r.a.b", "m.2"),
    Triple("m.1", "r.a.b", "m.3"),
    Triple("m.1", "r.c.d", LiteralNode("1999", XSD + "gYear")),
    Triple("m.2", "r.a.b", "m.1"),
    Triple("m.1", NAME, LiteralNode("One", lang="en")),
    Triple("m.2", NAME, LiteralNode("Zwei", lang="de")),
    Triple("m.2", ALIAS, LiteralNode("Two", lang="en")),
    Triple("m.1", TYPE, "people.person"),
]


@pytest.fixture(scope="module")
def store() -> ox.Store:
    store = ox.Store()
    store.load("".join(map(TERMS.n_triple, FACTS)).encode(), format=ox.RdfFormat.N_TRIPLES)
    return store


def rows(store: ox.Store, query: Query) -> list[Row]:
    found = answer(store, query.text(1000))
    assert sorted(found) == sorted(set(answer(store, query.page(1000, 0))))
    return sorted(found)


def answer(store: ox.Store, query: Select) -> list[Row]:
    solutions: Any = store.query(query.text)
    return parse_result(solutions.serialize(format=ox.QueryResultsFormat.TSV), query)


def select(columns: str, text: str = "") -> Select:
    return Select(text, tuple(columns.split()), 1000, (None,) * len(columns.split()))


@pytest.mark.parametrize("style", STYLES)
def test_relations_of_both_directions(store: ox.Store, style: Style) -> None:
    found = rows(store, Queries(TERMS, FILTER, style).relations(["m.1", "m.3", "m.9"]))
    iri = TERMS.to_iri
    assert found == sorted(
        [
            (iri("m.1"), iri("r.a.b"), OUT),
            (iri("m.1"), iri("r.c.d"), OUT),
            (iri("m.1"), iri("r.a.b"), IN),
            (iri("m.3"), iri("r.a.b"), IN),
        ]
    )


@pytest.mark.parametrize("style", STYLES)
def test_neighbours_of_both_directions(store: ox.Store, style: Style) -> None:
    hops = [
        ("m.1", Relation("r.a.b", "out")),
        ("m.2", Relation("r.a.b", "out")),
        ("m.1", Relation("r.a.b", "in")),
        ("m.1", Relation("r.c.d", "out")),
        ("m.9", Relation("r.c.d", "in")),
    ]
    found = [
        (TERMS.from_iri(entity), TERMS.from_iri(relation), direction, node_cells(node).node(TERMS))
        for entity, relation, direction, *node in rows(store, Queries(TERMS, FILTER, style).neighbours(hops))
    ]
    assert sorted(found, key=str) == sorted(
        [
            ("m.1", "r.a.b", OUT, "m.2"),
            ("m.1", "r.a.b", OUT, "m.3"),
            ("m.2", "r.a.b", OUT, "m.1"),
            ("m.1", "r.a.b", IN, "m.2"),
            ("m.1", "r.c.d", OUT, LiteralNode("1999", XSD + "gYear")),
        ],
        key=str,
    )


@pytest.mark.parametrize("style", STYLES)
def test_names_and_types(store: ox.Store, style: Style) -> None:
    queries = Queries(TERMS, FILTER, style)
    iri = TERMS.to_iri
    assert rows(store, queries.preferred_names(["m.1", "m.2"])) == [(iri("m.1"), "One", "en")]
    assert rows(store, queries.other_names(["m.2", "m.3"])) == [
        (iri("m.2"), "Two", "en", iri(ALIAS), "true"),
        (iri("m.2"), "Zwei", "de", iri(NAME), "true"),
    ]
    assert rows(store, queries.types(["m.1", "m.2"])) == [(iri("m.1"), iri("people.person"), "false")]
    assert rows(store, queries.named([(7, "One"), (8, "Zwei")])) == [("7", iri("m.1"))]


def test_queries_name_the_graph_and_the_servers_options() -> None:
    query = Queries(TERMS, FILTER, virtuoso=True, graph="urn:g").relations(["m.1"])
    assert query.text(5).text.startswith('define sql:select-option "order" SELECT')
    assert "FROM <urn:g> WHERE" in query.text(5).text
    assert "FROM <urn:g> WHERE" in query.page(5, 10).text
    plain = Queries(TERMS, FILTER).relations(["m.1"]).text(5).text
    assert "define" not in plain
    assert "FROM" not in plain


def test_queries_exclude_the_filters_dropped_domains() -> None:
    assert "user" in Queries(TERMS, FILTER).relations(["m.1"]).where
    assert "user" not in Queries(TERMS, RelationFilter(FREEBASE, keep_user=True)).relations(["m.1"]).where


HOSTILE = st.text(st.characters(exclude_categories=["Cs"]), max_size=50)


@given(st.lists(st.tuples(HOSTILE, HOSTILE, st.sampled_from([None, "en"])), min_size=1, max_size=4))
@example([('a\tb\n"c\\n\\u0041', "\\", None)])
def test_results_in_the_w3c_dialect_are_parsed(cells: list[tuple[str, str, str | None]]) -> None:
    store = ox.Store()
    for name, text, lang in cells:
        fact = Triple(name, "r", LiteralNode(text, lang=lang))
        store.load(TERMS.n_triple(fact).encode(), format=ox.RdfFormat.N_TRIPLES)
    found = answer(store, select("s o l unbound", "SELECT ?s ?o (LANG(?o) AS ?l) ?unbound { ?s ?r ?o }"))
    assert set(found) == {(TERMS.to_iri(name), text, lang or "", "") for name, text, lang in cells}


@given(st.lists(st.tuples(HOSTILE, HOSTILE), max_size=4))
@example([('"\t"', '\n"x"\t\n')])
def test_results_in_virtuosos_dialect_are_parsed(cells: list[tuple[str, str]]) -> None:
    lines = ['"s"\t"o"\t"d"\n']
    for first, second in cells:
        one, two = (text.replace('"', '""') for text in (first, second))
        lines.append(f'"{one}"\t"{two}"\t1\n')
    assert parse_result("".join(lines).encode(), select("s o d")) == [(first, second, "1") for first, second in cells]


@pytest.mark.parametrize(
    "body",
    [
        b"",
        b'"e"\t"d"',
        b"<html>502</html>",
        b"<html>\n<body>OK</body>\n</html>\n",
        b'"d"\t"e"\n"urn:1"\t1\n',
        b'"e"\n"urn:1"\n',
        b'"e"\t"d"\n"urn:1"\n',
        b'"e"\t"d"\n"urn:1"\t2\n',
        b'"e"\t"d"\n"urn:2"\t1\n',
        b'"e"\t"d"\n"urn:\xff"\t1\n',
        b'"e"\t"d"\n' + 4 * b'"urn:1"\t1\n',
    ],
)
def test_what_is_no_result_of_the_query_is_refused(body: bytes) -> None:
    query = Select("", ("e", "d"), 3, (frozenset({"urn:1"}).issuperset, frozenset({"0", "1"}).issuperset))
    assert parse_result(b'"e"\t"d"\n"urn:1"\t1\n', query) == [("urn:1", "1")]
    with pytest.raises(UnexpectedResult):
        parse_result(body, query)


@pytest.mark.parametrize("value", ["", "-1", "1.5", "many", "NaN", "٣", "9" * 30])
def test_a_count_is_a_whole_number(value: str) -> None:
    assert numbers(["0", "12"])
    assert not numbers(["0", value])
