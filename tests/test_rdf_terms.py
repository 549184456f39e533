"""Names and literals are read back exactly from RDF, and typed literals have one form for all stores."""

from __future__ import annotations

import pyoxigraph as ox
import pytest
from hypothesis import given
from hypothesis import strategies as st

from pipeline.rdf_terms import FREEBASE, MAX_IRI_BYTES, XSD, Terms, literal, literal_node
from pipeline.types import LiteralNode, Triple

TERMS = Terms()
ANY_TEXT = st.text(st.characters(exclude_categories=["Cs"]), max_size=60)
STORABLE_TEXT = st.text(st.characters(exclude_categories=["Cs"]), max_size=200)


@given(ANY_TEXT)
def test_every_string_is_read_back_from_its_iri(name: str) -> None:
    iri = TERMS.to_iri(name)
    assert iri.startswith(FREEBASE)
    assert iri.isascii()
    assert not set(iri) & set(' <>"{}|\\^`\n\t\r')
    assert TERMS.from_iri(iri) == name


@pytest.mark.parametrize("name", ["m.0abc", "g.11b6", "people.person.place_of_birth", "a-b~c"])
def test_freebase_names_stay_as_they_are(name: str) -> None:
    assert TERMS.to_iri(name) == FREEBASE + name


@pytest.mark.parametrize("rest", ["%2f", "%7E", "%41", "%FF", "%zz", "a b", "ä"])
def test_an_iri_that_to_iri_does_not_write_has_no_name(rest: str) -> None:
    assert TERMS.from_iri(FREEBASE + rest) is None


def test_an_iri_of_another_namespace_is_a_literal() -> None:
    assert TERMS.from_iri("http://example.org/m.1") is None
    assert TERMS.node("http://example.org/m.1") == LiteralNode("http://example.org/m.1", XSD + "anyURI")


@given(STORABLE_TEXT, st.sampled_from([None, "en", "de-ch"]), STORABLE_TEXT, STORABLE_TEXT)
def test_a_line_of_n_triples_is_read_back_as_the_fact(value: str, lang: str | None, head: str, relation: str) -> None:
    line = TERMS.n_triple(Triple(head, relation, LiteralNode(value, lang=lang)))
    assert line.count("\n") == 1
    [quad] = ox.parse(line.encode(), format=ox.RdfFormat.N_TRIPLES)
    assert TERMS.from_iri(quad.subject.value) == head
    assert TERMS.from_iri(quad.predicate.value) == relation
    assert isinstance(quad.object, ox.Literal)
    assert (quad.object.value, quad.object.language) == (value, lang)


def test_a_text_has_exactly_one_form() -> None:
    assert literal(LiteralNode("x", XSD + "string")) == literal(LiteralNode("x")) == '"x"'
    assert literal(LiteralNode("3", XSD + "integer")) == f'"3"^^<{XSD}integer>'


def test_only_ids_that_are_not_opaque_are_names() -> None:
    assert TERMS.own_name("m.0abc") is None
    assert TERMS.own_name("g.1") is None
    for name in ("Tom Hanks", "m. night shyamalan", "g.w. bailey", "m.i.a."):
        assert TERMS.own_name(name) == name
    assert Terms(opaque_ids="Q[0-9]").own_name("Q42") is None


def test_terms_that_a_store_would_change_are_not_storable() -> None:
    longest = "a" * (MAX_IRI_BYTES - len(FREEBASE))
    assert TERMS.storable(longest)
    assert not TERMS.storable(longest + "a")
    assert not TERMS.storable("ä" * 400)
    assert TERMS.storable(LiteralNode("ä" * 10_000))
    assert not TERMS.storable(LiteralNode("\ud800"))


@pytest.mark.parametrize(
    ("triple", "named"),
    [
        (Triple("m.1", "r", "m.2"), None),
        (Triple(LiteralNode("x"), "r", "m.2"), "head"),
        (Triple("m.1", "r" * 2000, "m.2"), "IRI"),
        (Triple("m.1", "r", LiteralNode("\udfff")), "Unicode"),
        (Triple("m.1", "r", LiteralNode("x", lang="en> . <a> <b> <c")), "language"),
        (Triple("m.1", "r", LiteralNode("x", "http://a> . <a> <b> <c")), "datatype"),
    ],
)
def test_the_defect_of_a_fact_is_named(triple: Triple, named: str | None) -> None:
    defect = TERMS.defect(triple)
    assert defect is None if named is None else named in (defect or "")


@pytest.mark.parametrize(
    ("given", "expected"),
    [
        (("x", XSD + "string", None), LiteralNode("x")),
        (("x", None, "EN-gb"), LiteralNode("x", lang="en-gb")),
        (("1", XSD + "boolean", None), LiteralNode("true", XSD + "boolean")),
        (("false", XSD + "boolean", None), LiteralNode("false", XSD + "boolean")),
        (("100.0", XSD + "double", None), LiteralNode("100", XSD + "double")),
        (("0.30000000000000004", XSD + "double", None), LiteralNode("0.3", XSD + "double")),
        (("INF", XSD + "double", None), LiteralNode("INF", XSD + "double")),
        (("-044-03-15", XSD + "date", None), LiteralNode("-0044-03-15", XSD + "date")),
        (("-044", XSD + "gYear", None), LiteralNode("-0044", XSD + "gYear")),
        (("2001-05", XSD + "gYearMonth", None), LiteralNode("2001-05", XSD + "gYearMonth")),
        (("9007199254740993", XSD + "decimal", None), LiteralNode("9007199254740993", XSD + "integer")),
        (("7.5", XSD + "decimal", None), LiteralNode("7.5", XSD + "decimal")),
        (("7", XSD + "integer", ""), LiteralNode("7", XSD + "integer")),
    ],
)
def test_typed_literals_take_one_form(given: tuple[str, str | None, str | None], expected: LiteralNode) -> None:
    assert literal_node(*given) == expected
