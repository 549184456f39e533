"""Graphs on servers: shared queries, row limits, and server checks."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
from aiohttp import web

from pipeline.config import default
from pipeline.errors import ServiceError, UserError
from pipeline.kg import sparql_client
from pipeline.kg.embedded import EmbeddedGraph
from pipeline.kg.results import MEDIA_TYPE
from pipeline.kg.sparql import SparqlGraph
from pipeline.types import LiteralNode, Relation, Triple
from tests.kg.support import NAME, Facts
from tests.support import sampled, until

OUT = Relation("r.out", "out")
IN = Relation("r.out", "in")


def star(hub: str, leaves: int, relation: str = "r.out") -> list[Triple]:
    return [Triple(hub, relation, f"m.{hub[2:]}_{number:04}") for number in range(leaves)]


HUBS = [*star("m.a", 3), *star("m.b", 700), *star("m.c", 40), *star("m.d", 41), *star("m.e", 0), *star("m.f", 900)]


def graph(*endpoints: Any, **options: Any) -> SparqlGraph:
    return default(SparqlGraph, endpoints=tuple(endpoint.url for endpoint in endpoints), **options)


async def test_lookups_of_many_questions_share_queries(oxigraph_endpoint: Any) -> None:
    endpoint = await oxigraph_endpoint(HUBS)
    async with graph(endpoint, batch_window_ms=20) as kg:
        endpoint.queries.clear()
        batches = await asyncio.gather(*(kg.relations([f"m.a_{number:04}", "m.a"]) for number in range(50)))
        assert len(endpoint.queries) == 1
        assert sum(batch.queries for batch in batches) == 1
        assert all(batch["m.a"] == [OUT] for batch in batches)
        again = await kg.relations(["m.a"])
        assert (again.queries, again.endpoint, len(endpoint.queries)) == (0, None, 1)


async def test_many_keys_are_sent_in_chunks(oxigraph_endpoint: Any) -> None:
    endpoint = await oxigraph_endpoint(HUBS)
    async with graph(endpoint, values_chunk=100) as kg:
        endpoint.queries.clear()
        hops = [(f"m.b_{number:04}", IN) for number in range(350)]
        found = await kg.neighbours(hops, 10)
        assert (found.queries, len(endpoint.queries), found.endpoint) == (4, 4, endpoint.url)
        assert all(found[hop].nodes == ("m.b",) for hop in hops)


async def test_values_are_cached_per_limit(oxigraph_endpoint: Any) -> None:
    endpoint = await oxigraph_endpoint(HUBS)
    async with graph(endpoint) as kg:
        hop = ("m.c", OUT)
        few, all_ = await asyncio.gather(kg.neighbours([hop], 5), kg.neighbours([hop], 50))
        assert (len(few[hop].nodes), few[hop].truncated) == (5, True)
        assert (len(all_[hop].nodes), all_[hop].truncated) == (40, False)
        assert few.queries + all_.queries == 1


async def test_named_nodes_cost_no_query_for_their_names(oxigraph_endpoint: Any) -> None:
    endpoint = await oxigraph_endpoint([Triple("Heat", "directed_by", "Michael Mann")])
    async with graph(endpoint) as kg:
        endpoint.queries.clear()
        assert (await kg.labels(["Heat"])).queries == 0
        assert endpoint.queries == []


@pytest.mark.parametrize("reports_cuts", [True, False])
@pytest.mark.parametrize("max_rows", sampled([40, 2, 10, 41, 1000]))
async def test_a_servers_row_limit_changes_no_answer(oxigraph_endpoint: Any, max_rows: int, reports_cuts: bool) -> None:
    names = [
        Triple(f"m.a_{number:04}", NAME, LiteralNode(f"name {number % 2} {lang}", lang=lang))
        for number in range(3)
        for lang in ("en", "de", "fr")
    ]
    many = [Triple("m.many", f"r.{number:02}", "m.a") for number in range(45)]
    facts = [*HUBS, *names, *many]
    endpoint = await oxigraph_endpoint(facts, max_rows=max_rows, reports_cuts=reports_cuts)
    ids = ["m.a", "m.b", "m.c", "m.d", "m.e", "m.f", "m.many", *(f"m.a_{number:04}" for number in range(3))]
    hops = [*((id, OUT) for id in ids), *((id, IN) for id in ids)]
    async with graph(endpoint, max_neighbours=20) as kg, default(EmbeddedGraph, dataset=Facts(facts)) as known:
        for limit in (1, 40, 100, 2000):
            assert await kg.neighbours(hops, limit) == await known.neighbours(hops, limit)
        assert await kg.relations(ids) == await known.relations(ids)
        assert await kg.labels(ids) == await known.labels(ids)
        assert await kg.mediators(ids) == await known.mediators(ids)
        wanted = ["name 0 en", "name 1 en", "name 1 de"]
        assert await kg.find_by_name(wanted, 5) == await known.find_by_name(wanted, 5)
        assert await kg.relation_names() == await known.relation_names()


async def test_a_large_hop_is_fetched_alone_and_the_rest_together(oxigraph_endpoint: Any) -> None:
    endpoint = await oxigraph_endpoint(HUBS, max_rows=600)
    async with graph(endpoint, max_neighbours=500) as kg:
        endpoint.queries.clear()
        found = await kg.neighbours([(f"m.{letter}", OUT) for letter in "abcde"], 100)
        assert found.queries == len(endpoint.queries) == 3
        assert sum("ORDER BY" in query for query in endpoint.queries) == 1
        assert [len(hop.nodes) for hop in found.values()] == [3, 100, 40, 41, 0]
        assert [hop.truncated for hop in found.values()] == [False, True, False, False, False]


async def test_a_result_cut_by_time_is_an_error(oxigraph_endpoint: Any) -> None:
    endpoint = await oxigraph_endpoint(HUBS)

    async def out_of_time(query: str) -> web.Response | None:
        return (
            web.Response(text='"e"\t"r"\t"d"\n', content_type=MEDIA_TYPE, headers={"X-SQL-State": "S1TAT"})
            if "m.f" in query
            else None
        )

    async with graph(endpoint) as kg:
        endpoint.fault = out_of_time
        assert await kg.relations(["m.a"]) == {"m.a": [OUT]}
        with pytest.raises(ServiceError, match="ran out of time"):
            await kg.relations(["m.c", "m.f"])
        endpoint.fault = None
        assert await kg.relations(["m.f"]) == {"m.f": [OUT]}


@pytest.mark.parametrize("banned", ["VALUES", "VALUES| IN "])
async def test_a_style_that_fails_is_not_used(oxigraph_endpoint: Any, banned: str) -> None:
    endpoint = await oxigraph_endpoint(HUBS)

    async def refuse(query: str) -> web.Response | None:
        return web.Response(status=400) if any(word in query for word in banned.split("|")) else None

    endpoint.fault = refuse
    async with graph(endpoint) as kg:
        assert await kg.relations(["m.a", "m.c", "m.e"]) == {"m.a": [OUT], "m.c": [OUT], "m.e": []}
        found = await kg.neighbours([("m.a", OUT), ("m.a_0001", IN), ("m.c", OUT)], 50)
        assert [len(hop.nodes) for hop in found.values()] == [3, 1, 40]


async def test_a_style_that_answers_wrongly_is_not_used(oxigraph_endpoint: Any) -> None:
    endpoint = await oxigraph_endpoint(HUBS)

    async def empty(query: str) -> web.Response | None:
        if "VALUES" not in query or "DISTINCT" not in query:
            return None
        return web.Response(text="?e\t?r\t?d\n", content_type=MEDIA_TYPE)

    endpoint.fault = empty
    async with graph(endpoint) as kg:
        assert await kg.relations(["m.a", "m.e"]) == {"m.a": [OUT], "m.e": []}


async def test_a_style_is_used_only_if_every_server_supports_it(oxigraph_endpoint: Any) -> None:
    able, unable = await oxigraph_endpoint(HUBS), await oxigraph_endpoint(HUBS)

    async def refuse(query: str) -> web.Response | None:
        return web.Response(status=400) if "VALUES" in query else None

    unable.fault = refuse
    async with graph(able, unable) as kg:
        for endpoint in (able, unable):
            kg._client.servers[endpoint is able].healthy = False
            found = await kg.relations([f"m.{letter}" for letter in ("ac" if endpoint is able else "bd")])
            assert (set(map(tuple, found.values())), found.endpoint) == ({(OUT,)}, endpoint.url)
            kg._client.servers[endpoint is able].healthy = True


async def test_a_server_without_any_working_style_is_a_user_error(oxigraph_endpoint: Any) -> None:
    endpoint = await oxigraph_endpoint(HUBS)

    async def refuse(query: str) -> web.Response | None:
        return web.Response(status=400) if "UNION" in query else None

    endpoint.fault = refuse
    with pytest.raises(UserError, match="answers no query style"):
        await graph(endpoint).__aenter__()


async def test_replicas_must_hold_the_same_graph(oxigraph_endpoint: Any) -> None:
    one, two = await oxigraph_endpoint(HUBS), await oxigraph_endpoint(HUBS[1:])
    with pytest.raises(UserError, match="different graphs") as error:
        await graph(one, two).__aenter__()
    assert one.url in str(error.value)
    assert two.url in str(error.value)


NAMES = [Triple("m.a", NAME, "A")]  # facts of the vocabulary, of which no relation is offered
OTHER = "it holds another graph"


@pytest.mark.parametrize("snapshot", sampled([None, "named"], every=2))
@pytest.mark.parametrize(
    ("facts", "why"),
    [([], "has no facts"), ([*HUBS, Triple("m.new", "r.out", "m.a")], "different graphs"), (NAMES, "different graphs")],
    ids=["empty", "one more", "names only"],
)
async def test_servers_are_compared_even_if_the_snapshot_has_a_name(
    oxigraph_endpoint: Any, snapshot: str | None, facts: list[Triple], why: str
) -> None:
    one, two = await oxigraph_endpoint(HUBS), await oxigraph_endpoint(facts)
    for servers in ((one, two), (two, one)):
        with pytest.raises(UserError, match=why):
            await graph(*servers, snapshot=snapshot).__aenter__()


async def test_an_empty_server_is_refused_even_if_the_snapshot_has_a_name(oxigraph_endpoint: Any) -> None:
    with pytest.raises(UserError, match="has no facts"):
        await graph(await oxigraph_endpoint([]), snapshot="named").__aenter__()


@pytest.mark.parametrize(
    ("facts", "options", "why"),
    [
        (HUBS, {}, None),
        ([*HUBS, Triple("m.new", "r.out", "m.a")], {}, OTHER),
        ([*HUBS, Triple("m.new", "r.out", "m.a")], {"snapshot": "named"}, OTHER),
        (HUBS, {"snapshot": "named"}, None),
        ([], {"snapshot": "named"}, "its results differ"),
        ([fact._replace(relation="r.other") for fact in HUBS], {"snapshot": "named"}, "its results differ"),
    ],
    ids=["same", "one more", "one more, named", "same, named", "empty, named", "other, named"],
)
async def test_a_server_that_joins_late_is_checked_first(
    oxigraph_endpoint: Any,
    monkeypatch: pytest.MonkeyPatch,
    facts: list[Triple],
    options: dict[str, str],
    why: str | None,
) -> None:
    monkeypatch.setattr(sparql_client, "_PROBE_INTERVAL_S", 0.02)
    there, late = await oxigraph_endpoint(HUBS), await oxigraph_endpoint(facts)
    away = True

    async def refuse(query: str) -> web.Response | None:
        return web.Response(status=503) if away else None

    late.fault = refuse
    async with graph(there, late, **options) as kg:
        assert not kg._client.servers[1].healthy
        away = False
        if why is None:
            await until(lambda: kg._client.servers[1].healthy)
        else:
            await until(lambda: kg._client.servers[1].problem.startswith(why))
            assert not kg._client.servers[1].healthy


async def test_a_snapshots_name_replaces_the_fingerprint(oxigraph_endpoint: Any) -> None:
    endpoint = await oxigraph_endpoint(HUBS)
    async with graph(endpoint, snapshot="freebase-2015") as kg:
        assert kg.fingerprint == "freebase-2015"
        assert await kg.relation_names() == ["r.out"]


async def test_a_refused_query_fails_its_lookup_with_the_servers_message(oxigraph_endpoint: Any) -> None:
    endpoint = await oxigraph_endpoint(HUBS)

    async def refuse(query: str) -> web.Response | None:
        return web.Response(status=400, text="not today")

    async with graph(endpoint) as kg:
        endpoint.fault = refuse
        with pytest.raises(ServiceError, match="not today"):
            await kg.relations(["m.a"])


async def test_at_least_one_endpoint_is_required() -> None:
    with pytest.raises(UserError, match="endpoints"):
        default(SparqlGraph, endpoints=())


async def test_a_server_that_sends_pages_now_and_then_changes_no_answer(oxigraph_endpoint: Any) -> None:
    one, two = await oxigraph_endpoint(HUBS), await oxigraph_endpoint(HUBS)
    pages = 0

    async def page(query: str) -> web.Response | None:
        nonlocal pages
        if len(two.queries) % 3:
            return None
        pages += 1
        return web.Response(text="<html><body>Welcome</body></html>", content_type="text/html")

    known = default(EmbeddedGraph, dataset=Facts(HUBS))
    async with default(SparqlGraph, endpoints=(one.url, two.url), cache_size=1) as kg, known:
        two.fault = page
        for id in [f"m.a_{number:04}" for number in range(40)]:
            assert await kg.relations([id]) == await known.relations([id])
    assert pages
