"""A SPARQL endpoint over an Oxigraph store in this process, with faults that tests choose."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable
from dataclasses import dataclass, field
from typing import Any

import pyoxigraph as ox
import pytest
from aiohttp import web
from aiohttp.test_utils import TestServer

from pipeline.rdf_terms import Terms
from pipeline.types import Triple


@dataclass
class OxigraphEndpoint:
    """A server with its facts, its faults and the queries it received."""

    store: ox.Store
    max_rows: int | None = None
    """Cuts longer results, as Virtuoso's ResultSetMaxRows does."""
    reports_cuts: bool = True
    """Whether a header reports that a result was cut."""
    fault: Callable[[str], Awaitable[web.Response | None]] | None = None
    """Called with each query. A response that it returns replaces the result."""
    queries: list[str] = field(default_factory=list)
    url: str = ""

    async def answer(self, request: web.Request) -> web.Response:
        """Answer one query in the W3C's tab-separated form, or in its JSON form if that is asked for."""
        query = str((await request.post())["query"])
        self.queries.append(query)
        if self.fault and (response := await self.fault(query)):
            return response
        try:
            solutions: Any = self.store.query(query)
            if "json" in request.headers["Accept"]:
                body = solutions.serialize(format=ox.QueryResultsFormat.JSON)
                return web.Response(body=body, content_type="application/sparql-results+json")
            body = solutions.serialize(format=ox.QueryResultsFormat.TSV)
        except (SyntaxError, ValueError) as error:
            return web.Response(status=400, text=str(error))
        head, *rows = body.decode().splitlines(keepends=True)
        headers = {}
        if self.max_rows is not None and len(rows) > self.max_rows:
            rows = rows[: self.max_rows]
            headers = {"X-SPARQL-MaxRows": str(self.max_rows)} if self.reports_cuts else {}
        return web.Response(text="".join([head, *rows]), content_type="text/tab-separated-values", headers=headers)


OxigraphFactory = Callable[..., Awaitable[OxigraphEndpoint]]


@pytest.fixture
async def oxigraph_endpoint() -> AsyncIterator[OxigraphFactory]:
    """Start endpoints. Awaiting the fixture with triples and options gives an endpoint that holds the triples."""
    servers: list[TestServer] = []

    async def start(triples: Iterable[Triple], *, terms: Terms | None = None, **options: Any) -> OxigraphEndpoint:
        store = ox.Store()
        lines = "".join(map((terms or Terms()).n_triple, triples))
        store.load(lines.encode(), format=ox.RdfFormat.N_TRIPLES)
        endpoint = OxigraphEndpoint(store, **options)
        app = web.Application(client_max_size=1 << 28)
        app.router.add_post("/sparql", endpoint.answer)
        servers.append(server := TestServer(app))
        await server.start_server()
        endpoint.url = str(server.make_url("/sparql"))
        return endpoint

    yield start
    await asyncio.gather(*(server.close() for server in servers))
