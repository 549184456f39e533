"""A graph server that answers honestly for a while, and then breaks the protocol in one way, or in all of them."""

from __future__ import annotations

import gzip
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from itertools import cycle
from typing import Any

import pyoxigraph as ox
from aiohttp import web

from pipeline.kg.results import MEDIA_TYPE
from pipeline.rdf_terms import Terms
from pipeline.types import Triple
from tests.llm.misbehaving_server import Mode, body, drip, endless, half, hang_up, not_http, served

Lines = list[str]
Lie = Callable[[Lines], str | bytes]
"""Makes a body that cannot be the result of the query from the lines of the honest one."""


def _cut_inside_an_iri(lines: Lines) -> str:
    whole = "".join(lines)
    end = whole.rfind(">")
    return whole[: end - 3] if end > 0 else "?e"


def _with_cell(column: int, cell: str) -> Lie:
    """Replace a cell of each row; the result of a query without rows gets one."""

    def lie(lines: Lines) -> str:
        head, *rows = lines
        width = head.count("\t") + 1
        cells = [row.rstrip("\n").split("\t") for row in rows] or [["1"] * width]
        changed = ["\t".join([*row[:column], cell, *row[column + 1 :]]) for row in cells]
        return head + "".join(f"{row}\n" for row in changed)

    return lie


TABLES: dict[str, Lie] = {
    "another column": lambda lines: lines[0].replace("?e", "?other") + "".join(lines[1:]) + "x",
    "a column more": lambda lines: "".join(f"{line.rstrip()}\t1\n" for line in lines),
    "a column less": lambda lines: "".join(f"{line.rstrip().rpartition(chr(9))[0]}\n" for line in lines),
    "no header": lambda lines: "".join(lines[1:]),
    "a header alone, cut": lambda lines: lines[0].rstrip("\n"),
    "a row that ends early": lambda lines: "".join(lines) + "<http://rdf.freebase.com/ns/m.1>\n",
    "the end in an IRI": _cut_inside_an_iri,
    "an entity that nobody asked for": _with_cell(0, "<http://rdf.freebase.com/ns/m.lie>"),
    "a text in place of an entity": _with_cell(0, '"Ada"'),
    "stray quotes": lambda lines: "".join(lines) + '"a" "b"\n',
    "an error in words": lambda lines: "Virtuoso 22023 Error SR319: Max row length is exceeded\n",
    "JSON": lambda lines: '{"head": {"vars": ["e"]}, "results": {"bindings": []}}',
    "a page with a good media type": lambda lines: "<html>busy</html>",
    "nothing": lambda lines: "",
    "UTF-16": lambda lines: "".join(lines).encode("utf-16"),
    "bytes that are no text": lambda lines: "".join(lines).encode() + b"\xff\xfe\n",
}
"""Each wrong table with status 200."""

TRANSPORT: dict[str, Mode] = {
    "a page": body("<html>busy</html>", Content_Type="text/html"),
    "another media type": body("?e\n", Content_Type="text/csv"),
    "a gzip bomb": body(gzip.compress(b" " * 50_000_000), Content_Encoding="gzip", Content_Type=MEDIA_TYPE),
    "an endless body": endless,
    "a page that is no gzip": body("hello", Content_Encoding="gzip"),
    "a slow drip": drip,
    "half of the body": half,
    "a lost connection": hang_up,
    "another protocol": not_http,
    "a redirection": body("", status=302, Location="http://127.0.0.1:1/sparql"),
    "status 400": body("Virtuoso 37000 Error SP030: syntax error", status=400),
    "status 401": body("who are you?", status=401),
    "status 403": body("go away", status=403),
    "status 404": body("no such place", status=404),
    "status 429": body("slow down", status=429, Retry_After="86400"),
    "status 500": body("Virtuoso 40001 Error SR172: deadlock", status=500),
    "a refusal with status 500": body("Virtuoso 42000 Error SQ200: the query is too long", status=500),
    "status 503": body("busy", status=503, Retry_After="inf"),
}
"""Each way to send no table at all."""

MODES = (*TABLES, *TRANSPORT)


class LyingGraph:
    """Answers queries over some facts: `honest` of them truly, then every `every`-th one by the next of its modes."""

    def __init__(self, triples: Iterable[Triple], modes: Iterable[str], *, honest: int, every: int) -> None:
        self._store = ox.Store()
        self._store.load("".join(map(Terms().n_triple, triples)).encode(), format=ox.RdfFormat.N_TRIPLES)
        self._modes = cycle(modes)
        self._honest = honest
        self._every = every
        self.asked = 0
        self.lies = 0

    async def answer(self, request: web.Request) -> web.StreamResponse:
        """Answer one query. A trivial query, by which the client asks for a sign of life, is always answered truly."""
        query = str((await request.post())["query"])
        lines = self._lines(query)
        honest = web.Response(text="".join(lines), content_type=MEDIA_TYPE)
        if "WHERE {}" in query:
            return honest
        self.asked += 1
        if self.asked <= self._honest or self.asked % self._every:
            return honest
        self.lies += 1
        mode = next(self._modes)
        if mode in TRANSPORT:
            return await TRANSPORT[mode](request)
        lie = TABLES[mode](lines)
        return web.Response(body=lie.encode() if isinstance(lie, str) else lie, content_type=MEDIA_TYPE)

    def _lines(self, query: str) -> Lines:
        """Return the true result. pyoxigraph's own object must end here: only the thread that made it may drop it."""
        found: Any = self._store.query(query)
        return str(found.serialize(format=ox.QueryResultsFormat.TSV), "utf-8").splitlines(keepends=True)


@contextmanager
def lying(graph: LyingGraph) -> Iterator[str]:
    """Serve the graph on a free port. Yields the URL of the endpoint."""
    app = web.Application(client_max_size=1 << 28)
    app.router.add_post("/sparql", graph.answer)
    with served(app) as url:
        yield f"{url}/sparql"
