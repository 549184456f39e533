"""Sends SPARQL queries to replicated servers of one graph and reads the signs of incomplete results."""

from __future__ import annotations

import asyncio
import os
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, NoReturn, Self

import aiohttp

from pipeline.errors import ServiceError, UserError
from pipeline.net.pool import AttemptFailed, ReplyTooLarge, Response, RetryPolicy, Server, ServerPool
from pipeline.net.urls import check_url
from pipeline.text import printable

_PROBE = "SELECT (1 AS ?x) WHERE {}"
_PROBE_TIMEOUT_S = 5.0
_PROBE_INTERVAL_S = 0.5
_BACKOFF_S = (0.25, 12.0)
"""The first and the longest pause between two rounds. In a round, a query is sent to each healthy server in turn."""
_MAX_FAILURES = 3

_REFUSED = re.compile(r"Virtuoso (?:37000|22\d{3}|42\d{3})\b")
"""SQL states with which Virtuoso refuses a query for good, although the status is 500."""
_TIMED_OUT = re.compile(r"Virtuoso S1T00\b")
_RETRIED = {408, 429}
_OVERLOADED = {502, 503, 504}

_ROW_LIMIT_HEADER = "X-SPARQL-MaxRows"
_TIME_LIMIT_HEADER = "X-SQL-State"


@dataclass(frozen=True, slots=True)
class Reply:
    """A tab-separated result."""

    body: bytes
    endpoint: str
    row_limit_hit: bool = False
    """The server reports that it ended the result at its row limit."""
    time_limit_hit: bool = False
    """The server reports that it ended the query at its time limit: any rows may be missing."""


def check_endpoint(url: str) -> None:
    """Raise UserError unless `url` is an HTTP URL without credentials."""
    account = "VIRTUOSO_USER and VIRTUOSO_PASSWORD"
    check_url(url, key="kg.endpoints", example="http://127.0.0.1:8890/sparql", instead=account)


class SparqlClient(ServerPool[str, Reply]):
    """Replicated SPARQL endpoints over one graph."""

    has_probes: ClassVar[bool] = True

    def __init__(
        self,
        urls: Sequence[str],
        *,
        max_inflight: int,
        timeout_s: float,
        retries: int,
        hedge: float | None,
        max_reply_mb: float,
    ) -> None:
        """Describe the servers as `conf/kg/sparql.yaml` does; nothing is connected yet."""
        backoff_s, max_backoff_s = _BACKOFF_S
        policy = RetryPolicy(
            rounds=retries + 1,
            backoff_s=backoff_s,
            max_backoff_s=max_backoff_s,
            max_failures=_MAX_FAILURES,
            recovery_s=_PROBE_INTERVAL_S,
        )
        super().__init__(
            "graph",
            urls,
            policy,
            max_reply_mb=max_reply_mb,
            max_outstanding=max_inflight,
            hedge_quantile=hedge,
        )
        self._timeout_s = timeout_s
        self._limit = asyncio.Semaphore(max_inflight * len(urls))

    def session_options(self) -> Mapping[str, Any]:
        """Ask for tab-separated results. Credentials, if the servers ask for them, come from the environment."""
        user, password = os.environ.get("VIRTUOSO_USER"), os.environ.get("VIRTUOSO_PASSWORD")
        return {
            "headers": {"Accept": "text/tab-separated-values"},
            "timeout": aiohttp.ClientTimeout(self._timeout_s),
            "middlewares": (aiohttp.DigestAuthMiddleware(user, password),) if user and password else (),
        }

    async def __aenter__(self) -> Self:
        """Connect and probe all servers. Raises UserError if none answers."""
        await super().__aenter__()
        problems = await asyncio.gather(*(self.probe(server) for server in self.servers))
        if all(problems):
            await self.__aexit__()
            urls = ", ".join(server.url for server in self.servers)
            raise UserError(
                f"kg.endpoints: no graph server answers at {urls} ({problems[0]}); start one with `kgqa graph serve`, "
                "or correct the URLs"
            )
        for server, problem in zip(self.servers, problems, strict=True):
            if problem:
                self.mark_unhealthy(server, problem)
        return self

    async def ask(self, query: str, *, only: Server | None = None) -> Reply:
        """Return the result of a query, from any healthy server or from the one named, healthy or not.

        Raises ServiceError: at once for a refused query, else after all retries.
        """
        if only is not None:  # Not limited: requests within the limit may be waiting for this server to recover.
            return await self.send(query, only=only)
        async with self._limit:
            return await self.send(query)

    async def attempt(self, request: str, server: Server) -> Reply:
        """Send a query to one server once."""
        try:
            response = await self.exchange(server, server.url, {"query": request})
        except (TimeoutError, ReplyTooLarge) as error:
            # Either the query asks for too much, so it is tried only once more, or the server is broken.
            if broken := await self.probe(server):
                self.mark_unhealthy(server, broken)
            limit = f"answer within {self._timeout_s:g} s"
            if isinstance(error, ReplyTooLarge):
                limit = f"keep its answer below kg.max_reply_mb={self._max_reply_mb:g}"
            raise AttemptFailed(f"{server.url} did not {limit}", too_slow=not broken) from None
        except aiohttp.ClientError as error:
            # A server that is busy, or that closed an idle connection, disconnects as well. It is still healthy.
            if not isinstance(error, aiohttp.ServerDisconnectedError):
                self.mark_unhealthy(server, str(error))
            raise AttemptFailed(f"{server.url}: {error}") from None
        if response.status != 200:
            self._raise_for(server, response)
        self.count_success(server)
        return Reply(
            response.body, server.url, _ROW_LIMIT_HEADER in response.headers, _TIME_LIMIT_HEADER in response.headers
        )

    async def probe(self, server: Server) -> str | None:
        """Return why a server does not answer a trivial query, or None."""
        timeout = aiohttp.ClientTimeout(_PROBE_TIMEOUT_S)
        try:
            response = await self.request("POST", server.url, data={"query": _PROBE}, timeout=timeout)
        except TimeoutError:
            return f"no answer within {_PROBE_TIMEOUT_S:g} s"
        except aiohttp.ClientError as error:
            return str(error)
        server.software = response.headers.get("Server", "")
        return None if response.status == 200 else f"status {response.status}"

    def _raise_for(self, server: Server, response: Response) -> NoReturn:
        text = " ".join(response.body[:2000].decode(errors="replace").partition("SPARQL query:")[0].split())
        message = f"{server.url} answered {response.status}: {printable(text[:400])}"
        if (response.status < 500 and response.status not in _RETRIED) or _REFUSED.match(text):
            raise ServiceError(message)
        if response.status in _OVERLOADED:
            self.count_failure(server, message)
        raise AttemptFailed(message, too_slow=bool(_TIMED_OUT.match(text)))
