"""How a graph is read is configuration: Freebase as ever, Wikidata, and any graph with `rdfs:label`."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterator
from dataclasses import replace
from itertools import product
from pathlib import Path
from typing import get_args

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pipeline import config
from pipeline.config import default
from pipeline.datasets.triples import read_triples
from pipeline.errors import UserError
from pipeline.kg.embedded import EmbeddedGraph
from pipeline.kg.labels import best_name
from pipeline.kg.queries import Queries, Style
from pipeline.kg.relation_filter import RelationFilter
from pipeline.kg.relation_labels import labelled_nodes, shown_names
from pipeline.kg.sparql import SparqlGraph
from pipeline.kg.vocabulary import GraphVocabulary
from pipeline.renames import current_config, current_override
from pipeline.types import LiteralNode, Relation, Triple
from tests.kg.support import FREEBASE, Facts, vocabulary

WIKIDATA, RDFS = vocabulary("wikidata"), vocabulary("rdfs")
LABEL = "http://www.w3.org/2000/01/rdf-schema#label"
SAME_AS = "http://www.w3.org/2002/07/owl#sameAs"
EX = "http://example.org/"

OLD_QUERIES = "e95ac3c0d1208aadb6ff59a8a19b573e"
"""Of all queries about Freebase, as they were before graphs had vocabularies."""


def freebase_queries() -> dict[str, list[str]]:
    ids = ["m.1", "Tom & Co", "m.2"]
    hops = [("m.1", Relation("a.b c", "out")), ("m.2", Relation("a.b c", "out")), ("x", Relation("d.e", "in"))]
    found = {}
    for style, virtuoso, keep_user, keep_types in product(get_args(Style), (False, True), (False, True), (False, True)):
        shown = RelationFilter(FREEBASE, keep_user, keep_types)
        graph = "urn:g" if virtuoso else None
        write = Queries(FREEBASE.terms, shown, style=style, virtuoso=virtuoso, graph=graph)
        queries = (
            *(write.relations(ids), write.neighbours(hops), write.preferred_names(ids), write.other_names(ids)),
            *(write.types(ids), write.named([(0, 'a "b"'), (1, "c")]), write.relation_counts()),
            *(write.facts(["a.b", "c d"]), write.any_facts(), write.count_any_facts(7), write.marked_types()),
            write.inverses(),
        )
        texts = [text for each in queries for text in (each.text(10), each.page(10, 0), each.page(10, 5))]
        key = f"{style}{virtuoso:d}{keep_user:d}{keep_types:d}"
        found[key] = [select.text for select in texts]
    return found


def test_every_query_about_freebase_is_the_same_as_ever() -> None:
    texts = json.dumps(freebase_queries(), sort_keys=True).encode()
    assert hashlib.blake2b(texts, digest_size=16).hexdigest() == OLD_QUERIES


def test_the_fingerprint_of_freebase_has_no_mark_and_any_other_vocabulary_has() -> None:
    assert list(FREEBASE.marks()) == []
    assert any("languages" in mark for mark in vocabulary("freebase", languages=["de"]).marks())
    assert (
        len({tuple(each.marks()) for each in (FREEBASE, WIKIDATA, RDFS, vocabulary("wikidata", languages=["de"]))}) == 4
    )


@pytest.mark.parametrize(
    ("name", "iri"),
    [
        ("P69", "http://www.wikidata.org/prop/direct/P69"),
        ("P69 (statement)", "http://www.wikidata.org/prop/P69"),
        ("P69 (value)", "http://www.wikidata.org/prop/statement/P69"),
        ("P580 (qualifier)", "http://www.wikidata.org/prop/qualifier/P580"),
    ],
)
def test_properties_have_namespaces_of_their_own(name: str, iri: str) -> None:
    terms = WIKIDATA.terms
    assert terms.relation_iri(name) == iri
    assert terms.relation_name(iri) == name
    assert terms.storable_relation(name)
    assert terms.to_iri("P69") == "http://www.wikidata.org/entity/P69"


@pytest.mark.parametrize(
    "iri",
    [
        "http://www.wikidata.org/prop/direct-normalized/P646",
        "http://www.wikidata.org/prop/statement/value/P580",
        "http://www.wikidata.org/prop/qualifier/value/P580",
        "http://www.wikidata.org/entity/P69",
        "http://schema.org/about",
        LABEL,
    ],
)
def test_other_predicates_of_wikidata_are_no_relations(iri: str) -> None:
    assert WIKIDATA.terms.relation_name(iri) is None


def test_statements_are_ids_and_can_be_left_out() -> None:
    terms = WIKIDATA.terms
    assert terms.from_iri("http://www.wikidata.org/entity/statement/Q42-F078") == "statement/Q42-F078"
    assert terms.to_iri("statement/Q42-F078") == "http://www.wikidata.org/entity/statement/Q42-F078"
    direct = vocabulary("wikidata", statements=None).terms
    assert direct.relation_name("http://www.wikidata.org/prop/P69") is None
    assert direct.relation_name("http://www.wikidata.org/prop/direct/P69") == "P69"


def test_queries_about_wikidata() -> None:
    write = Queries(WIKIDATA.terms, RelationFilter(WIKIDATA), virtuoso=True)
    relations = write.relations(["Q42"]).where
    assert "VALUES (?e) { (<http://www.wikidata.org/entity/Q42>) } ?e ?r ?o" in relations
    assert relations.endswith(
        'FILTER(REGEX(STR(?r), "^(http://www[.]wikidata[.]org/prop/direct/|http://www[.]wikidata[.]org/prop/|'
        'http://www[.]wikidata[.]org/prop/statement/|http://www[.]wikidata[.]org/prop/qualifier/)"))'
    )
    hop = write.neighbours([("statement/Q1-A", Relation("P580 (qualifier)", "out"))]).where
    assert "<http://www.wikidata.org/entity/statement/Q1-A> <http://www.wikidata.org/prop/qualifier/P580>" in hop
    names = write.preferred_names(["Q42"]).where
    assert f"?e <{LABEL}> ?n" in names
    assert names.endswith('FILTER(LANG(?n) = "" || LANGMATCHES(LANG(?n), "en") || LANGMATCHES(LANG(?n), "mul"))')
    assert "skos/core#altLabel" in write.other_names(["Q42"]).where
    assert f'?e <{LABEL}> "Ada"@mul' in write.named([(0, "Ada")]).where
    assert f"?e <{SAME_AS}> ?c" in write.redirects(["Q42"]).where
    assert "prop/direct/P31> ?c" in write.types(["Q42"]).where


def test_a_graph_with_several_predicates_of_names() -> None:
    several = vocabulary("rdfs", names=[LABEL, f"{EX}title"], aliases=[])
    write = Queries(several.terms, RelationFilter(several))
    assert write.preferred_names([f"{EX}a"]).where.count("UNION") == 1
    assert write.other_names([f"{EX}a"]).where.count("UNION") == 1
    assert 'FILTER(!REGEX(STR(?r), "^(http://www[.]w3[.]org/1999/02/' in write.relations([f"{EX}a"]).where


def test_of_the_terms_of_others_only_bookkeeping_is_hidden() -> None:
    shown = RelationFilter(RDFS)
    kept = ("http://www.w3.org/2003/01/geo/wgs84_pos#lat", "http://www.w3.org/ns/org#memberOf", f"{EX}in")
    assert all(map(shown.keeps, kept))
    hidden = ("1999/02/22-rdf-syntax-ns#value", "2000/01/rdf-schema#seeAlso", "2004/02/skos/core#note", "ns/prov#used")
    assert not any(shown.keeps(f"http://www.w3.org/{each}") for each in hidden)
    assert not shown.keeps(SAME_AS)


@pytest.mark.parametrize("hostile", ["> . } #", 'a"b', "a b", "a\\b", "a\nb", "<x>", "{}", "\ud800", "\u0085"])
def test_hostile_ids_and_relations_are_never_written(hostile: str) -> None:
    for terms in (WIKIDATA.terms, RDFS.terms):
        for name in (hostile, f"{EX}{hostile}", f"{hostile} (value)"):
            assert not terms.storable(name)
            assert not set(terms.to_iri(name)) & set('<>" {}|^`\\\n\u0085')
            assert not set(terms.relation_iri(name)) & set('<>" {}|^`\\\n\u0085')
    assert not WIKIDATA.terms.storable_relation(hostile)


@pytest.mark.parametrize(
    ("key", "value", "sentence"),
    [
        ("names", ["http://x/> . } #"], "neither an IRI nor the name of a relation"),
        ("redirects", "", "neither an IRI nor the name of a relation"),
        ("namespace", "http://x/ y", "is not the start of an IRI"),
        ("namespace", "m.", "is not the start of an IRI"),
        ("relations", "x", "is not the start of an IRI"),
        ("languages", ['en") || true #'], "is not a language tag"),
        ("languages", [], "at least one value"),
        ("opaque_ids", "(", "is not a regular expression"),
        ("statements", {"a) #": "http://x/"}, "pattern"),
    ],
)
def test_a_wrong_vocabulary_is_refused(key: str, value: object, sentence: str) -> None:
    with pytest.raises(UserError, match=sentence):
        vocabulary("wikidata", **{key: value})


def test_a_wrong_key_is_named_in_full() -> None:
    with pytest.raises(UserError, match=r"kg\.vocabulary\.languages"):
        config.check(config.compose(["kg/vocabulary=wikidata", "kg.vocabulary.languages=[e n]"]))


def test_old_keys_and_old_configurations_keep_working() -> None:
    assert current_override("kg.namespace=http://x/")[0] == "kg.vocabulary.namespace=http://x/"
    assert config.compose(["kg.opaque_ids=Q"])["kg"]["vocabulary"]["opaque_ids"] == "Q"
    today = config.compose(["kg=sparql", r'kg.vocabulary.opaque_ids="[mg]\."'])
    old = {key: value for key, value in today["kg"].items() if key != "vocabulary"}
    old |= {"namespace": "http://rdf.freebase.com/ns/", "opaque_ids": "[mg]\\."}
    saved = current_config({**today, "kg": old})
    assert config.drift(saved, today) == []
    assert config.build("kg", saved).vocabulary == replace(FREEBASE, opaque_ids=r"[mg]\.")
    assert config.drift(saved, config.compose(["kg=sparql", "kg/vocabulary=wikidata"]))
    assert default(SparqlGraph, vocabulary={"namespace": "http://x/"}).vocabulary.names == FREEBASE.names


GERMAN, ENGLISH, UNTAGGED = (LiteralNode(text, lang=lang) for text, lang in (("d", "de"), ("e", "en"), ("u", None)))
BRAZILIAN, FRENCH = LiteralNode("b", lang="pt-br"), LiteralNode("f", lang="fr")


@pytest.mark.parametrize(
    ("languages", "names", "aliases", "expected"),
    [
        (["de", "en"], [ENGLISH, GERMAN, UNTAGGED], [], "d"),
        (["de", "en"], [ENGLISH, UNTAGGED], [], "u"),
        (["de", "en"], [ENGLISH, FRENCH], [GERMAN], "e"),
        (["de", "en"], [FRENCH], [GERMAN], "d"),
        (["de", "en"], [FRENCH], [BRAZILIAN], "f"),
        (["pt"], [BRAZILIAN, ENGLISH], [], "b"),
        (["de"], [], [FRENCH], None),
    ],
)
def test_names_are_preferred_by_the_order_of_languages(
    languages: list[str], names: list[LiteralNode], aliases: list[LiteralNode], expected: str | None
) -> None:
    candidates = [*((False, text) for text in names), *((True, text) for text in aliases)]
    assert best_name(candidates, languages) == expected


def labels_of(labels: dict[str, str | None], read: GraphVocabulary = WIKIDATA) -> dict[str, str]:
    nodes = labelled_nodes(labels, read.terms)
    return shown_names(nodes, {nodes[name]: label for name, label in labels.items()}, read.terms)


def test_relations_are_shown_by_their_labels() -> None:
    given = {"P69": "educated at", "P69 (value)": "educated at", "P580 (qualifier)": "start time", "P1": None}
    assert labels_of(given) == {
        "P69": "educated at",
        "P69 (value)": "educated at (value)",
        "P580 (qualifier)": "start time (qualifier)",
    }


def test_relations_with_one_label_are_told_apart() -> None:
    assert labels_of({"P1": "part of", "P2": "part of", "P3": "P1"}) == {
        "P1": "part of [P1]",
        "P2": "part of [P2]",
        "P3": "P1 [P3]",
    }


def test_a_relation_without_a_label_is_shown_by_the_end_of_its_iri() -> None:
    shown = labels_of({f"{EX}a#name": None, f"{EX}b/name": None, f"{EX}c/director": None, f"{EX}x": "actor"}, RDFS)
    assert shown[f"{EX}c/director"] == "director"
    assert shown[f"{EX}x"] == "actor"
    assert shown[f"{EX}a#name"] == f"name [{EX}a#name]"


@given(st.lists(st.text(st.characters(exclude_categories=["Cs"]), max_size=30), max_size=8))
def test_hostile_labels_are_one_line_and_unique_and_lead_back(texts: list[str]) -> None:
    names = {f"P{number}": text for number, text in enumerate(texts)}
    shown = labels_of(names)
    everything = [shown.get(name, name) for name in names]
    assert len(set(everything)) == len(everything)
    terms = WIKIDATA.terms
    labelled = type(terms)(terms.namespace, terms.opaque_ids, terms.relations, terms.percent_encoded, shown)
    for name in names:
        said = shown.get(name, name)
        assert len(said.splitlines()) == 1
        assert "->" not in said
        assert labelled.relation_iri(said) == terms.relation_iri(name)
        assert labelled.relation_name(terms.relation_iri(name)) == said


def slice_of_wikidata() -> Iterator[Triple]:
    for id, names in {"Q1": ("Ada", "Ada (de)"), "Q2": ("Bonn", None), "Q3": (None, "Nur deutsch")}.items():
        for name, lang in zip(names, ("en", "de"), strict=True):
            if name:
                yield Triple(id, LABEL, LiteralNode(name, lang=lang))
    yield Triple("P19", LABEL, LiteralNode("place of birth", lang="en"))
    yield Triple("P19", LABEL, LiteralNode("Geburtsort", lang="de"))
    yield Triple("Q1", "P19", "Q99")
    yield Triple("Q99", SAME_AS, "Q98")
    yield Triple("Q98", SAME_AS, "Q2")
    yield Triple("Q1", "P19 (statement)", "statement/Q1-A")
    yield Triple("statement/Q1-A", "P19 (value)", "Q2")
    yield Triple("statement/Q1-A", "P580 (qualifier)", LiteralNode("1900"))
    yield Triple("Q7", SAME_AS, "Q8")
    yield Triple("Q8", SAME_AS, "Q7")


async def test_a_graph_in_the_process_is_read_by_the_vocabulary() -> None:
    async with default(EmbeddedGraph, dataset=Facts(list(slice_of_wikidata())), vocabulary=WIKIDATA) as kg:
        assert await kg.relations(["Q1", "statement/Q1-A"]) == {
            "Q1": [Relation("place of birth", "out"), Relation("place of birth (statement)", "out")],
            "statement/Q1-A": [
                Relation("P580 (qualifier)", "out"),
                Relation("place of birth (statement)", "in"),
                Relation("place of birth (value)", "out"),
            ],
        }
        hop = ("Q1", Relation("place of birth", "out"))
        assert (await kg.neighbours([hop], 5))[hop].nodes == ("Q2",), "the id of today"
        assert await kg.labels(["Q1", "Q3", "Q4"]) == {"Q1": "Ada", "Q3": "Nur deutsch", "Q4": None}
        assert await kg.mediators(["Q1", "Q4", "statement/Q1-A"]) == {"Q1": False, "Q4": False, "statement/Q1-A": True}
        assert (await kg.current_ids(["Q99", "Q1"])) == {"Q99": "Q2", "Q1": "Q1"}
        assert set((await kg.current_ids(["Q7"])).values()) <= {"Q7", "Q8"}, "a circle ends"
        assert await kg.find_by_name(["Ada", "Ada (de)"], 5) == {"Ada": ["Q1"], "Ada (de)": []}
    german = vocabulary("wikidata", languages=["de"])
    async with default(EmbeddedGraph, dataset=Facts(list(slice_of_wikidata())), vocabulary=german) as other:
        assert await other.labels(["Q1", "Q2"]) == {"Q1": "Ada (de)", "Q2": "Bonn"}
        assert "Geburtsort" in await other.relation_names()
        assert other.fingerprint != kg.fingerprint


async def test_any_graph_with_labels_is_read_from_n_triples(tmp_path: Path) -> None:
    file = tmp_path / "facts.nt"
    file.write_text(
        f'<{EX}ada> <{LABEL}> "Ada" .\n<{EX}bonn> <{LABEL}> "Bonn"@en .\n'
        f'<{EX}ada> <{EX}ontology/bornIn> <{EX}bonn> .\n<{EX}ontology/bornIn> <{LABEL}> "born\\nin"@en .\n'
        f"<{EX}ada> <{EX}ontology#knows> <{EX}ada_(2)> .\n"
    )
    async with default(EmbeddedGraph, dataset=Facts(list(read_triples(file))), vocabulary=RDFS) as kg:
        assert await kg.relation_names() == ["born in", "knows"]
        hop = (f"{EX}ada", Relation("born in", "out"))
        assert (await kg.neighbours([hop], 5))[hop].nodes == (f"{EX}bonn",)
        assert await kg.labels([f"{EX}ada", f"{EX}ada_(2)"]) == {f"{EX}ada": "Ada", f"{EX}ada_(2)": None}
    short = vocabulary("rdfs", namespace=EX, relations=f"{EX}ontology/")
    async with default(EmbeddedGraph, dataset=Facts(list(read_triples(file))), vocabulary=short) as kg:
        assert await kg.labels(["ada"]) == {"ada": "Ada"}
        assert await kg.relations(["ada"]) == {"ada": [Relation("bornIn", "out")]}


def test_a_damaged_file_of_n_triples_is_refused(tmp_path: Path) -> None:
    (tmp_path / "facts.nt").write_text("<a> <b>\n")
    with pytest.raises(UserError, match="is not N-Triples"):
        list(read_triples(tmp_path / "facts.nt"))


@pytest.mark.parametrize(("key", "value"), [("namespace", ""), ("relations", ""), ("statements", {"value": ""})])
def test_percent_encoded_ids_need_a_prefix(key: str, value: object) -> None:
    with pytest.raises(UserError, match="no prefix of namespace, relations and statements may be empty"):
        vocabulary("freebase", **{key: value})
