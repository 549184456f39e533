"""Lookups in a small graph have the same known results in memory, in a store on disk and on a SPARQL endpoint."""

from __future__ import annotations

import contextlib
import pickle
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable, Iterator
from pathlib import Path
from typing import Any

import pyoxigraph as ox
import pytest

from pipeline.config import default
from pipeline.datasets.inverses import INVERSE
from pipeline.errors import UserError
from pipeline.kg.embedded import EmbeddedGraph
from pipeline.kg.fingerprint import may_be_same_graph
from pipeline.kg.interface import KnowledgeGraph, Neighbours, node_order
from pipeline.kg.sparql import SparqlGraph
from pipeline.rdf_terms import XSD, Terms
from pipeline.types import LiteralNode, Question, Relation, Triple
from tests.kg.support import ALIAS, MEDIATOR, NAME, TYPE, Facts

TERMS = Terms()
TOPIC = "common.topic"
DATE = LiteralNode("1912-06-23", XSD + "date")

FACTS = [
    Triple("m.turing", NAME, LiteralNode("Alan Turing", lang="en")),
    Triple("m.turing", NAME, LiteralNode("Алан Тьюринг", lang="ru")),
    Triple("m.turing", ALIAS, LiteralNode("Turing", lang="en")),
    Triple("m.turing", TYPE, "people.person"),
    Triple("m.turing", TYPE, TOPIC),
    Triple("m.turing", "people.person.date_of_birth", DATE),
    Triple("m.turing", "people.person.education", "m.cvt"),
    Triple("m.turing", "people.person.profession", "m.logic"),
    Triple("m.turing", "user.someone.default_domain.rank", LiteralNode("1", XSD + "integer")),
    Triple("m.turing", "common.topic.notable_types", "people.person"),
    Triple("m.cvt", TYPE, "education.education"),
    Triple("m.cvt", "education.education.institution", "m.kings"),
    Triple("education.education", MEDIATOR, LiteralNode("true")),
    Triple("m.kings", NAME, LiteralNode("King's College")),
    Triple("m.kings", NAME, LiteralNode("Könige", lang="de")),
    Triple("m.kings", "organization.organization.members", "m.untyped"),
    Triple("m.untyped", "organization.membership.member", "m.turing"),
    Triple("m.untyped", "organization.membership.leaf", "m.leaf"),
    Triple("m.logic", ALIAS, LiteralNode("logician", lang="en")),
    Triple("m.logic", NAME, LiteralNode("Logiker", lang="de")),
    Triple("m.german", NAME, LiteralNode("Mathematiker", lang="de")),
    Triple("m.german", "people.profession.specialization_of", "m.logic"),
    Triple("m.other", NAME, LiteralNode("Alan Turing", lang="en")),
    Triple("m.other", "film.film.subjects", "m.turing"),
    Triple("Turing machine", "invention.by", "m.turing"),
    Triple("m.turing", "http://www.w3.org/2002/07/owl#sameAs", "m.wiki"),
]

Open = Callable[..., Awaitable[KnowledgeGraph]]


@pytest.fixture(params=["memory", "store", "sparql"])
async def open_graph(request: pytest.FixtureRequest, tmp_path: Path, oxigraph_endpoint: Any) -> AsyncIterator[Open]:
    """Open the backend over some facts with options of its configuration."""
    async with contextlib.AsyncExitStack() as opened:

        async def start(facts: Iterable[Triple] = FACTS, **options: Any) -> KnowledgeGraph:
            graph: EmbeddedGraph | SparqlGraph
            if request.param == "memory":
                graph = default(EmbeddedGraph, dataset=Facts(tuple(facts)), **options)
            elif request.param == "store":
                graph = default(EmbeddedGraph, store=_store(facts, tmp_path / "store"), **options)
            else:
                endpoint = await oxigraph_endpoint(facts)
                graph = default(SparqlGraph, endpoints=(endpoint.url,), **options)
            return await opened.enter_async_context(pickle.loads(pickle.dumps(graph)))

        yield start


def _store(facts: Iterable[Triple], folder: Path) -> Path:
    store = ox.Store(str(folder))
    store.load("".join(map(TERMS.n_triple, facts)).encode(), format=ox.RdfFormat.N_TRIPLES)
    store.flush()
    return folder


def out(*names: str) -> list[Relation]:
    return [Relation(name, "out") for name in names]


async def test_relations_have_both_directions_and_pass_the_filter(open_graph: Open) -> None:
    kg = await open_graph()
    found = await kg.relations(["m.turing", "m.leaf", "Turing machine", "m.nobody", "x> ?r ?o } #"])
    assert found == {
        "m.turing": sorted(
            [
                *out("people.person.date_of_birth", "people.person.education", "people.person.profession"),
                Relation("organization.membership.member", "in"),
                Relation("film.film.subjects", "in"),
                Relation("invention.by", "in"),
            ]
        ),
        "m.leaf": [Relation("organization.membership.leaf", "in")],
        "Turing machine": out("invention.by"),
        "m.nobody": [],
        "x> ?r ?o } #": [],
    }
    assert list(found) == ["m.turing", "m.leaf", "Turing machine", "m.nobody", "x> ?r ?o } #"]


async def test_the_filters_keys_let_relations_through(open_graph: Open) -> None:
    kg = await open_graph(keep_user=True, keep_notable_types=True)
    names = {relation.name for relation in (await kg.relations(["m.turing"]))["m.turing"]}
    assert {"user.someone.default_domain.rank", "common.topic.notable_types"} < names
    assert not {NAME, ALIAS, TYPE} & names
    assert await kg.relation_names() == sorted(await kg.relation_names())
    assert "common.topic.notable_types" in await kg.relation_names()
    assert ALIAS not in await kg.relation_names()


async def test_of_two_inverse_relations_one_is_offered(open_graph: Open) -> None:
    facts = [
        Triple("film.film.directed_by", INVERSE, "film.director.film"),
        Triple("m.solaris", "film.film.directed_by", "m.tarkovsky"),
        Triple("m.tarkovsky", "film.director.film", "m.solaris"),
        Triple("m.stalker", "film.film.directed_by", "m.somebody"),
    ]
    kg = await open_graph(facts)
    assert await kg.relations(["m.solaris", "m.tarkovsky", "m.somebody"]) == {
        "m.solaris": out("film.film.directed_by"),
        "m.tarkovsky": out("film.director.film"),
        "m.somebody": [Relation("film.film.directed_by", "in")],
    }
    pair = {"film.film.directed_by": "film.director.film", "film.director.film": "film.film.directed_by"}
    assert await kg.inverses() == pair


async def test_both_inverse_relations_are_offered_by_choice(open_graph: Open) -> None:
    facts = [
        Triple("film.film.directed_by", INVERSE, "film.director.film"),
        Triple("m.solaris", "film.film.directed_by", "m.tarkovsky"),
        Triple("m.tarkovsky", "film.director.film", "m.solaris"),
    ]
    kg = await open_graph(facts, keep_inverses=True)
    offered = [*out("film.director.film"), Relation("film.film.directed_by", "in")]
    assert await kg.relations(["m.tarkovsky"]) == {"m.tarkovsky": offered}
    assert await kg.inverses() == {}


async def test_neighbours_of_both_directions_and_kinds(open_graph: Open) -> None:
    kg = await open_graph()
    hops = [
        ("m.turing", Relation("people.person.date_of_birth", "out")),
        ("m.turing", Relation("people.person.education", "out")),
        ("m.turing", Relation("people.person.education", "in")),
        ("m.turing", Relation("film.film.subjects", "in")),
        ("m.turing", Relation("no.such.relation", "out")),
        ("m.turing", Relation(NAME, "out")),
    ]
    assert list((await kg.neighbours(hops, 10)).values()) == [
        Neighbours((DATE,)),
        Neighbours(("m.cvt",)),
        Neighbours(()),
        Neighbours(("m.other",)),
        Neighbours(()),
        Neighbours((LiteralNode("Alan Turing", lang="en"), LiteralNode("Алан Тьюринг", lang="ru"))),
    ]


async def test_literals_can_be_left_out(open_graph: Open) -> None:
    kg = await open_graph(keep_literals=False)
    hops = [
        ("m.turing", Relation("people.person.date_of_birth", "out")),
        ("m.turing", Relation("people.person.education", "out")),
    ]
    assert list((await kg.neighbours(hops, 10)).values()) == [Neighbours(()), Neighbours(("m.cvt",))]


NAMES = ["a b", "a", "a-b", "B", "é", "ab", "a:b", "a_b", "𐍈", "￿"]
TEXTS = [
    LiteralNode("z"),
    LiteralNode("Z"),
    LiteralNode("z", lang="en"),
    LiteralNode("z", lang="de"),
    LiteralNode("é"),
    LiteralNode("10", XSD + "integer"),
    LiteralNode("9", XSD + "integer"),
    LiteralNode("true", XSD + "boolean"),
    LiteralNode("2.5", XSD + "double"),
    LiteralNode("1999-01-01", XSD + "date"),
]


@pytest.mark.parametrize("limit", [1, 4, len(NAMES), len(NAMES) + 3, 100])
async def test_the_first_nodes_are_kept_and_truncation_is_reported(open_graph: Open, limit: int) -> None:
    kg = await open_graph([Triple("hub", "r", node) for node in [*NAMES, *TEXTS]])
    hop = ("hub", Relation("r", "out"))
    ordered = [*sorted(NAMES, key=TERMS.to_iri), *sorted(TEXTS, key=lambda text: (text.value, text.lang or ""))]
    kept = sorted(ordered[:limit], key=node_order)
    assert (await kg.neighbours([hop], limit))[hop] == Neighbours(tuple(kept), truncated=limit < len(ordered))


async def test_labels_follow_the_order_of_names(open_graph: Open) -> None:
    kg = await open_graph()
    assert await kg.labels(["m.turing", "m.kings", "m.logic", "m.german", "m.cvt", "m.nobody", "Turing machine"]) == {
        "m.turing": "Alan Turing",
        "m.kings": "King's College",
        "m.logic": "logician",
        "m.german": "Mathematiker",
        "m.cvt": None,
        "m.nobody": None,
        "Turing machine": "Turing machine",
    }


async def test_mediators_by_type_or_by_shape(open_graph: Open) -> None:
    kg = await open_graph()
    assert await kg.mediators(["m.turing", "m.cvt", "m.untyped", "m.leaf", "m.german", "Turing machine"]) == {
        "m.turing": False,
        "m.cvt": True,
        "m.untyped": True,
        "m.leaf": False,
        "m.german": False,
        "Turing machine": False,
    }


@pytest.mark.parametrize("flag", ["true", "1"])
@pytest.mark.parametrize("datatype", [None, XSD + "boolean"])
async def test_a_named_entity_is_a_mediator_by_its_type(open_graph: Open, flag: str, datatype: str | None) -> None:
    kg = await open_graph(
        [
            Triple("m.1", NAME, LiteralNode("named", lang="en")),
            Triple("m.1", TYPE, "t.mediator"),
            Triple("m.2", NAME, LiteralNode("named", lang="en")),
            Triple("m.2", TYPE, "t.plain"),
            Triple("t.mediator", MEDIATOR, LiteralNode(flag, datatype)),
            Triple("t.plain", MEDIATOR, LiteralNode("false", datatype)),
        ]
    )
    assert await kg.mediators(["m.1", "m.2"]) == {"m.1": True, "m.2": False}


async def test_entities_are_found_by_exact_name(open_graph: Open) -> None:
    kg = await open_graph()
    names = [
        "Alan Turing",
        "alan turing",
        "Turing",
        "King's College",
        "Könige",
        "Turing machine",
        "m.turing",
        '"@en . #',
    ]
    assert await kg.find_by_name(names, 10) == {
        "Alan Turing": ["m.other", "m.turing"],
        "alan turing": [],
        "Turing": [],
        "King's College": ["m.kings"],
        "Könige": [],
        "Turing machine": ["Turing machine"],
        "m.turing": [],
        '"@en . #': [],
    }
    assert await kg.find_by_name(["Alan Turing"], 1) == {"Alan Turing": ["m.other"]}


async def test_types_are_those_of_the_graph(open_graph: Open) -> None:
    kg = await open_graph()
    assert await kg.types(["m.turing", "m.kings"]) == {"m.turing": [TOPIC, "people.person"], "m.kings": []}


async def test_all_questions_share_one_graph(open_graph: Open) -> None:
    kg = await open_graph()
    assert kg.for_question(Question("1", "d", "test", "who?")) is kg


async def test_a_graph_whose_nodes_are_names_needs_no_name_facts(open_graph: Open) -> None:
    kg = await open_graph([Triple("Heat", "directed_by", "Michael Mann"), Triple("Heat", "release_year", "1995")])
    assert await kg.labels(["Heat", "1995"]) == {"Heat": "Heat", "1995": "1995"}
    assert await kg.mediators(["Heat", "Michael Mann"]) == {"Heat": False, "Michael Mann": False}
    assert await kg.find_by_name(["Heat", "Fire", "directed_by"], 5) == {
        "Heat": ["Heat"],
        "Fire": [],
        "directed_by": [],
    }


async def test_lookups_of_nodes_that_the_graph_does_not_have_return_empty_values(open_graph: Open) -> None:
    kg = await open_graph([Triple("m.2", "knows", "m.3")])
    assert await kg.relations(["m.1"]) == {"m.1": []}
    assert await kg.labels(["m.1", "Heat"]) == {"m.1": None, "Heat": "Heat"}
    assert await kg.relation_names() == ["knows"]


async def test_a_lookup_without_arguments_sends_no_query(open_graph: Open) -> None:
    kg = await open_graph()
    for batch in (await kg.relations([]), await kg.neighbours([], 5), await kg.mediators([]), await kg.labels([])):
        assert (batch, batch.queries) == ({}, 0)


@pytest.mark.parametrize("name", ["x" * 5000, "ä" * 2000, "\ud800", "a\0b"])
async def test_lookups_of_unstorable_terms_return_empty_values(open_graph: Open, name: str) -> None:
    kg = await open_graph()
    hop = (name, Relation("r", "out"))
    assert await kg.relations([name]) == {name: []}
    assert await kg.neighbours([hop, ("m.turing", Relation(name, "out"))], 5) == {
        hop: Neighbours(()),
        ("m.turing", Relation(name, "out")): Neighbours(()),
    }
    assert await kg.find_by_name([name], 5) == {name: []}
    assert await kg.types([name]) == {name: []}


async def test_different_graphs_have_different_fingerprints(open_graph: Open) -> None:
    whole = await open_graph()
    assert whole.fingerprint.startswith(f"{len(FACTS)}-")


async def test_fingerprints_depend_only_on_the_facts(tmp_path: Path) -> None:
    prints = []
    for facts in (FACTS, [*FACTS[::-1], FACTS[0]], FACTS[1:], [*FACTS[1:], Triple("m.turing", NAME, LiteralNode("x"))]):
        async with default(EmbeddedGraph, dataset=Facts(tuple(facts))) as kg:
            prints.append(kg.fingerprint)
    assert prints[0] == prints[1]
    assert len(set(prints)) == 3


async def test_a_store_and_an_endpoint_over_the_same_facts_share_a_fingerprint(
    oxigraph_endpoint: Any, tmp_path: Path
) -> None:
    endpoint = await oxigraph_endpoint(FACTS)
    async with (
        default(EmbeddedGraph, store=_store(FACTS, tmp_path / "s")) as one,
        default(SparqlGraph, endpoints=(endpoint.url,)) as two,
    ):
        assert one.fingerprint == two.fingerprint


async def test_a_graph_in_memory_agrees_with_a_store_of_the_same_facts_and_with_no_other(tmp_path: Path) -> None:
    edited = [*FACTS[:-1], FACTS[-1]._replace(relation="people.person.other")]
    async with (
        default(EmbeddedGraph, store=_store(FACTS, tmp_path / "s")) as store,
        default(EmbeddedGraph, dataset=Facts(tuple(FACTS))) as memory,
        default(EmbeddedGraph, dataset=Facts(tuple(edited))) as other,
    ):
        assert memory.fingerprint != store.fingerprint, "each fact counts where all are read"
        assert may_be_same_graph(memory.fingerprint, store.fingerprint)
        assert may_be_same_graph(store.fingerprint, memory.fingerprint)
        assert not may_be_same_graph(other.fingerprint, store.fingerprint)
        assert not may_be_same_graph(other.fingerprint, memory.fingerprint)


async def test_several_processes_may_open_one_store(tmp_path: Path) -> None:
    folder = _store(FACTS, tmp_path / "s")
    async with default(EmbeddedGraph, store=folder) as one, default(EmbeddedGraph, store=folder) as two:
        assert await one.labels(["m.turing"]) == await two.labels(["m.turing"]) == {"m.turing": "Alan Turing"}


async def test_the_facts_of_a_hub_are_not_read_completely(monkeypatch: pytest.MonkeyPatch) -> None:
    facts = [Triple(f"m.{number}", "people.gender", "m.male") for number in range(5000)]
    async with default(EmbeddedGraph, dataset=Facts((*facts, Triple("m.1", "people.idol", "m.male")))) as kg:
        read = 0
        match = kg._match

        def counting(*pattern: Any) -> Iterator[Any]:
            nonlocal read
            for quad in match(*pattern):
                read += 1
                yield quad

        monkeypatch.setattr(kg, "_match", counting)
        found = await kg.relations(["m.male"])
        assert found == {"m.male": [Relation("people.gender", "in"), Relation("people.idol", "in")]}
        assert read < 50


async def test_unstorable_facts_are_skipped_with_a_warning(caplog: pytest.LogCaptureFixture) -> None:
    facts = (Triple("x" * 3000, "r", "m.1"), Triple("m.1", "r", LiteralNode("\udc00")), Triple("m.1", "r", "m.2"))
    async with default(EmbeddedGraph, dataset=Facts(facts)) as kg:
        assert await kg.relations(["m.1"]) == {"m.1": [Relation("r", "out")]}
    said = f"2 facts of the graph of facts skipped; the first: '{'x' * 60}…' is longer than 1880 bytes as an IRI"
    assert caplog.messages == [said]


async def test_a_graph_must_be_named(tmp_path: Path) -> None:
    with pytest.raises(UserError, match=r"kg\.store"):
        await default(EmbeddedGraph).__aenter__()
    with pytest.raises(UserError, match="kgqa graph load"):
        await default(EmbeddedGraph, store=tmp_path / "none").__aenter__()
    (tmp_path / "file").mkdir()
    (tmp_path / "file" / "notes.txt").write_text("x")
    with pytest.raises(UserError, match="is not an Oxigraph store"):
        await default(EmbeddedGraph, store=tmp_path / "file").__aenter__()
