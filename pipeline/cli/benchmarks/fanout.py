"""Measures the gain of a second graph replica where the server is the bottleneck, and the cost of losing one of two.

Both Virtuoso servers are behind a proxy that gives each request a fixed service time. So the benchmark measures the
client, and not how two servers share the cores of this machine.
"""

from __future__ import annotations

import asyncio
import statistics
import time
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import AsyncExitStack, asynccontextmanager

import aiohttp
from aiohttp import web

from pipeline.cli.benchmarks.world import served_world
from pipeline.config import default
from pipeline.kg.interface import KnowledgeGraph
from pipeline.kg.sparql import SparqlGraph
from pipeline.kg.virtuoso import VirtuosoServer
from pipeline.types import EntityId, Relation

_TRIPLES = 50_000
_SERVICE_S = 0.05
_AT_ONCE = 2
"""Requests that a proxy serves at the same time: one replica answers 40 queries a second."""
_PER_QUERY = 20


def fanout() -> dict[str, float]:
    """Lookups per second of two replicas against one, each with a fixed service time; answers lost with one of them."""
    with served_world(_TRIPLES, 2) as (servers, ids):
        return asyncio.run(measure(servers, ids))


async def measure(
    servers: Sequence[VirtuosoServer], ids: Sequence[EntityId], *, rounds: int = 5, lookups: int = 1000
) -> dict[str, float]:
    """Return medians over `rounds` interleaved rounds of `lookups` entities each; then kill one server during a run.

    The second server is dead afterwards.
    """
    async with AsyncExitStack() as stack:
        behind = [await stack.enter_async_context(_delayed(server.endpoint)) for server in servers]
        rates: dict[int, list[float]] = {1: [], 2: []}
        for round in range(rounds):
            asked = ids[round * lookups : (round + 1) * lookups]
            for count, found in rates.items():
                async with _graph(behind[:count]) as graph:
                    started = time.perf_counter()
                    await _relations(graph, asked)
                    found.append(len(asked) / (time.perf_counter() - started))
        asked = ids[:lookups]
        async with _graph([servers[0].endpoint]) as direct, _graph(behind) as graph:
            expected = await _relations(direct, asked)
            started = time.perf_counter()
            got = await _relations(graph, asked, lose=servers[1])
            with_loss = len(asked) / (time.perf_counter() - started)
    one, two = (statistics.median(rates[count]) for count in (1, 2))
    return {
        "one_replica_lookups_per_s": one,
        "two_replicas_lookups_per_s": two,
        "ratio": two / one,
        "losing_one_lookups_per_s": with_loss,
        "losing_one_ratio": with_loss / one,
        "losing_one_answers_lost": sum(got.get(id) != relations for id, relations in expected.items()),
    }


def _graph(endpoints: Sequence[str]) -> SparqlGraph:
    """Return a graph with an empty cache."""
    return default(
        SparqlGraph, endpoints=tuple(endpoints), values_chunk=_PER_QUERY, batch_window_ms=0, snapshot="benchmark"
    )


async def _relations(
    graph: KnowledgeGraph, ids: Sequence[EntityId], *, lose: VirtuosoServer | None = None
) -> dict[EntityId, list[Relation]]:
    """Return the relations of each entity, one query's batch at a time; kill `lose` when half of them have come."""
    found: dict[EntityId, list[Relation]] = {}

    async def ask(some: Sequence[EntityId]) -> None:
        found.update(await graph.relations(some))
        if lose is not None and lose.running and len(found) >= len(ids) / 2:
            lose.kill()

    parts = (ids[start : start + _PER_QUERY] for start in range(0, len(ids), _PER_QUERY))
    await asyncio.gather(*map(ask, parts))
    return found


@asynccontextmanager
async def _delayed(endpoint: str) -> AsyncIterator[str]:
    """Run a proxy that delays a SPARQL endpoint like a server under load; yields its URL."""
    serving = asyncio.Semaphore(_AT_ONCE)

    async def forward(request: web.Request) -> web.Response:
        query = await request.post()
        async with serving:
            await asyncio.sleep(_SERVICE_S)
            try:
                async with session.post(endpoint, data=query, headers={"Accept": request.headers["Accept"]}) as reply:
                    return web.Response(status=reply.status, body=await reply.read(), headers=_kept(reply.headers))
            except aiohttp.ClientError as error:
                return web.Response(status=502, text=str(error))

    app = web.Application()
    app.router.add_post("/sparql", forward)
    runner = web.AppRunner(app)
    async with aiohttp.ClientSession() as session:
        await runner.setup()
        site = web.TCPSite(runner, "127.0.0.1", 0)
        await site.start()
        try:
            host, port = runner.addresses[0][:2]
            yield f"http://{host}:{port}/sparql"
        finally:
            await runner.cleanup()


def _kept(headers: Mapping[str, str]) -> dict[str, str]:
    """Keep the headers that name the server, the format of the result, and cut results."""
    return {name: headers[name] for name in headers if name in ("Server", "Content-Type") or name.startswith("X-")}
