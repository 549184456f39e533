"""`kg=sparql` over real Virtuoso servers answers as `kg=embedded` does, whatever happens to a server."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any, get_args

import pytest

from pipeline.cli.benchmarks.fanout import measure as measure_fanout
from pipeline.cli.benchmarks.graph import measure
from pipeline.config import default
from pipeline.datasets.metaqa import MetaQA
from pipeline.errors import ServiceError, UserError
from pipeline.kg.embedded import EmbeddedGraph
from pipeline.kg.interface import Hop, KnowledgeGraph
from pipeline.kg.load import bulk_load
from pipeline.kg.queries import Style
from pipeline.kg.results import Select
from pipeline.kg.sparql import SparqlGraph
from pipeline.kg.virtuoso import GRAPH, VirtuosoConfig, VirtuosoServer
from pipeline.rdf_terms import XSD, Terms
from pipeline.simulation.world.world import SyntheticWorld
from pipeline.types import LiteralNode, Relation, Triple
from tests.kg.support import NAME, TYPE, Facts
from tests.support import until

pytestmark = pytest.mark.exhaustive

STYLES: tuple[Style, ...] = get_args(Style)
TERMS = Terms()


def sparql(servers: Iterable[VirtuosoServer], **options: Any) -> SparqlGraph:
    return default(SparqlGraph, endpoints=tuple(server.endpoint for server in servers), **options)


def entities(facts: Iterable[Triple]) -> list[str]:
    return sorted({node for fact in facts for node in (fact.head, fact.tail) if isinstance(node, str)})


async def answers(kg: KnowledgeGraph, ids: list[str], names: list[str], limits: Iterable[int]) -> list[Any]:
    """Everything that the port can say about some entities and names."""
    relations = await kg.relations(ids)
    hops: list[Hop] = [(id, relation) for id in ids for relation in relations[id]]
    return [
        relations,
        *[await kg.neighbours(hops, limit) for limit in limits],
        await kg.labels(ids),
        await kg.types(ids),
        await kg.mediators(ids),
        await kg.find_by_name(names, 20),
        await kg.relation_names(),
    ]


@pytest.fixture(scope="module")
def metaqa(shared_data: Path) -> MetaQA:
    return default(MetaQA, path=shared_data / "metaqa", hops=1)


@pytest.fixture(scope="module")
def metaqa_servers(metaqa: MetaQA, virtuoso_factory: Callable[..., list[VirtuosoServer]]) -> list[VirtuosoServer]:
    return virtuoso_factory(metaqa.triples(), replicas=2)


@pytest.fixture(scope="module")
def world() -> SyntheticWorld:
    return default(SyntheticWorld, triples=2_000)


@pytest.fixture(scope="module")
def world_server(world: SyntheticWorld, virtuoso_factory: Callable[..., list[VirtuosoServer]]) -> list[VirtuosoServer]:
    return virtuoso_factory(world.triples())


async def test_metaqa_answers_alike_hubs_included(metaqa: MetaQA, metaqa_servers: list[VirtuosoServer]) -> None:
    everything = entities(metaqa.triples())
    ids = [*random.Random(7).sample(everything, 400), "Drama", "English", "Comedy", "2012", "not there"]
    async with default(EmbeddedGraph, dataset=metaqa) as known, sparql(metaqa_servers) as kg:
        limits = (3, 500, 10_000)
        assert await answers(kg, ids, ids[:200], limits) == await answers(known, ids, ids[:200], limits)
        drama = ("Drama", Relation("has_genre", "in"))
        assert len((await kg.neighbours([drama], 10_000))[drama].nodes) == 4176


@pytest.mark.parametrize("style", STYLES)
@pytest.mark.parametrize("graph", [None, GRAPH])
async def test_the_synthetic_world_answers_alike_in_every_style(
    world: SyntheticWorld, world_server: list[VirtuosoServer], style: Style, graph: str | None
) -> None:
    facts = list(world.triples())
    names = sorted({fact.tail.value for fact in facts if fact.relation == NAME and isinstance(fact.tail, LiteralNode)})
    ids = entities(facts)
    options: dict[str, Any] = {"values_style": style, "default_graph": graph, "keep_user": True}
    async with default(EmbeddedGraph, dataset=world, keep_user=True) as known, sparql(world_server, **options) as kg:
        assert await answers(kg, ids, names, (2, 1000)) == await answers(known, ids, names, (2, 1000))


@pytest.mark.parametrize("max_rows", [7, 60])
async def test_a_small_result_set_limit_changes_no_answer(
    world: SyntheticWorld, virtuoso_factory: Callable[..., list[VirtuosoServer]], max_rows: int
) -> None:
    config = default(VirtuosoConfig, memory_gb=0.1, threads=8, max_rows=max_rows)
    facts = list(world.triples())
    servers = virtuoso_factory(facts, config=config)
    degrees = dict.fromkeys(entities(facts), 0)
    for fact in facts:
        for node in (fact.head, fact.tail):
            if isinstance(node, str):
                degrees[node] += 1
    ids = [*sorted(degrees, key=degrees.__getitem__)[-12:], *random.Random(7).sample(sorted(degrees), 60)]
    names = sorted({fact.tail.value for fact in facts if fact.relation == NAME and isinstance(fact.tail, LiteralNode)})
    async with default(EmbeddedGraph, dataset=world) as known, sparql(servers, max_neighbours=20) as kg:
        limits = (5, 100, 2000)
        assert await answers(kg, ids, names[:30], limits) == await answers(known, ids, names[:30], limits)


TYPED = [
    *((XSD + "integer", value) for value in ("0", "-17", "42", "9007199254740993")),
    *((XSD + "decimal", value) for value in ("1.5", "-0.25", "3.125")),
    *((XSD + "double", value) for value in ("100.0", "1.0E2", "0.1", "-2.5e-3", "1e22", "0.30000000000000004")),
    *((XSD + "float", value) for value in ("0.5", "3.25")),
    *((XSD + "boolean", value) for value in ("true", "false", "1", "0")),
    *((XSD + "date", value) for value in ("1999-12-31", "0010-03-15", "-0044-03-15", "2001-01-01-08:00")),
    *((XSD + "dateTime", value) for value in ("2001-01-01T00:00:00Z", "2001-01-01T10:30:00+01:00")),
    *((XSD + "gYear", value) for value in ("1999", "0987", "-0044")),
    *((XSD + "gYearMonth", value) for value in ("1999-12",)),
    *((XSD + "anyURI", value) for value in ("http://example.org/a?b=c#d",)),
    *((XSD + "string", value) for value in ("plain",)),
    *(("http://example.org/unit", value) for value in ("5 m",)),
]


async def test_typed_literals_are_the_same_nodes(virtuoso_factory: Callable[..., list[VirtuosoServer]]) -> None:
    facts = tuple(
        Triple(f"m.{number}", "r.value", LiteralNode(value, datatype)) for number, (datatype, value) in enumerate(TYPED)
    )
    hops = [(f"m.{number}", Relation("r.value", "out")) for number in range(len(TYPED))]
    servers = virtuoso_factory(facts)
    async with default(EmbeddedGraph, dataset=Facts(facts)) as known, sparql(servers) as kg:
        expected = await known.neighbours(hops, 10)
        assert await kg.neighbours(hops, 10) == expected
        assert all(len(found.nodes) == 1 for found in expected.values())


async def test_replicas_and_a_store_of_the_same_facts_share_a_fingerprint(
    world: SyntheticWorld, world_server: list[VirtuosoServer], tmp_path: Path
) -> None:
    bulk_load((TERMS.n_triple(fact).encode() for fact in world.triples()), tmp_path / "store")
    async with (
        default(EmbeddedGraph, store=tmp_path / "store") as store,
        sparql(world_server, default_graph=GRAPH) as kg,
    ):
        assert kg.fingerprint == store.fingerprint
    async with sparql(world_server) as kg:
        assert kg.fingerprint == store.fingerprint


async def test_a_replica_killed_in_mid_stream_costs_no_answer(
    metaqa: MetaQA, metaqa_servers: list[VirtuosoServer]
) -> None:
    ids = random.Random(11).sample(entities(metaqa.triples()), 1500)
    async with (
        default(EmbeddedGraph, dataset=metaqa) as known,
        sparql(metaqa_servers, values_chunk=5, max_inflight=4, batch_window_ms=1) as kg,
    ):
        victim = metaqa_servers[0]
        answered = 0

        async def ask(some: list[str]) -> dict[str, list[Relation]]:
            nonlocal answered
            found = await kg.relations(some)
            answered += 1
            if answered == 100:
                victim.kill()
            return found

        try:
            parts = await asyncio.gather(*(ask(ids[start : start + 5]) for start in range(0, len(ids), 5)))
            assert {id: found for part in parts for id, found in part.items()} == await known.relations(ids)
            dead, alive = kg._client.servers
            assert (dead.healthy, alive.healthy) == (False, True)
        finally:
            victim.start()
        await until(lambda: dead.healthy)
        alive.healthy = False
        assert (await kg.relations(["Heat"])).endpoint == victim.endpoint


async def test_both_replicas_away_for_a_while_cost_no_answer(
    metaqa: MetaQA, metaqa_servers: list[VirtuosoServer]
) -> None:
    async with default(EmbeddedGraph, dataset=metaqa) as known, sparql(metaqa_servers) as kg:
        for server in metaqa_servers:
            server.kill()
        waiting = asyncio.create_task(kg.relations(["Drama", "Tom Hanks"]))
        await asyncio.sleep(1)
        assert not waiting.done()
        for server in metaqa_servers:
            server.start()  # Not in another thread: a server ends with the thread that started it.
        assert await waiting == await known.relations(["Drama", "Tom Hanks"])


async def test_an_account_is_taken_from_the_environment(
    world_server: list[VirtuosoServer], monkeypatch: pytest.MonkeyPatch
) -> None:
    guarded = world_server[0].endpoint + "-auth"
    with pytest.raises(UserError, match="401"):
        await default(SparqlGraph, endpoints=(guarded,)).__aenter__()
    monkeypatch.setenv("VIRTUOSO_USER", "dba")
    monkeypatch.setenv("VIRTUOSO_PASSWORD", "dba")
    async with default(SparqlGraph, endpoints=(guarded,)) as kg:
        assert await kg.relation_names()


async def test_a_query_that_takes_too_long_is_an_error(virtuoso_factory: Callable[..., list[VirtuosoServer]]) -> None:
    facts = [Triple(f"m.{one}", TYPE, f"t.{one % 7}") for one in range(3000)]
    servers = virtuoso_factory(facts, config=default(VirtuosoConfig, memory_gb=0.1, threads=8, query_timeout_s=1))
    async with sparql(servers) as kg:
        slow = "SELECT (COUNT(*) AS ?n) WHERE { ?a ?r ?b . ?c ?r ?b . ?d ?r ?b . ?e ?r ?b . FILTER(STR(?a) > STR(?d)) }"
        with pytest.raises(ServiceError, match="timed out"):
            await kg._client.ask(Select(slow, ("n",), 1, (None,)))
        assert await kg.types(["m.3"]) == {"m.3": ["t.3"]}


async def test_the_benchmark_asks_both_ways(metaqa: MetaQA, metaqa_servers: list[VirtuosoServer]) -> None:
    figures = await measure([metaqa_servers[0].endpoint], entities(metaqa.triples()), rounds=1, one_by_one=5)
    assert set(figures) >= {"ratio", "ratio_one_query", "pool_expansions_per_s"}
    assert all(figure > 0 for figure in figures.values())
    with pytest.raises(ValueError, match="distinct ids"):
        await measure([metaqa_servers[0].endpoint], ["Drama"], rounds=1)


async def test_the_fanout_benchmark_loses_no_answer_with_a_server(
    metaqa: MetaQA, metaqa_servers: list[VirtuosoServer]
) -> None:
    try:
        figures = await measure_fanout(metaqa_servers, entities(metaqa.triples()), rounds=1, lookups=100)
        assert not metaqa_servers[1].running
    finally:
        metaqa_servers[1].start()
    assert figures["losing_one_answers_lost"] == 0
    assert figures["ratio"] == figures["two_replicas_lookups_per_s"] / figures["one_replica_lookups_per_s"]
