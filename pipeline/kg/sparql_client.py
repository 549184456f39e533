"""Sends SPARQL queries to replicated servers of one graph and reads the signs of incomplete results."""

from __future__ import annotations

import asyncio
import logging
import os
import random
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, NoReturn, Self

import aiohttp
from yarl import URL

from pipeline.errors import ServiceError, Unreachable
from pipeline.kg.results import MEDIA_TYPE, Row, Select, UnexpectedResult, parse_result
from pipeline.net.attempts import AttemptFailed, RetryPolicy
from pipeline.net.http_connections import ReplyTooLarge, Response
from pipeline.net.replicated_client import ReplicatedClient, describe
from pipeline.net.server import ASKED_LATER, Server, is_busy
from pipeline.net.urls import check_urls
from pipeline.text import printable

_log = logging.getLogger(__name__)

_PROBE = Select("SELECT (1 AS ?x) WHERE {}", ("x",), 1, (frozenset({"1"}).issuperset,))
_PROBE_TIMEOUT_S = 5.0
_PROBE_INTERVAL_S = 0.5
_BACKOFF_S = (0.25, 12.0)
"""The first and the longest pause between two rounds. In a round, a query is sent to each healthy server in turn."""
_MAX_FAILURES = 3
"""Failures in a row after which a server is unhealthy. Like the pauses above, it changes no result and was never tuned:
`conf/kg/sparql.yaml` explains it at `retries`, and has no key for it."""
_COMPARE_EVERY = 100
"""Of so many queries, one is sent to a second server as well, and the results are compared."""

_REFUSED = re.compile(
    r"Virtuoso (?:37000|22\d{3}|42\d{3})\b(?!.*No permission to execute procedure \S*SPARQL_BINDINGS_VIEW)"
)
"""SQL states with which Virtuoso refuses a query for good, although the status is 500.

The first query with so many columns of VALUES creates a procedure, and allows all to run it a moment later: a second
query at that moment is refused, and succeeds when it is sent again.
"""
_TIMED_OUT = re.compile(r"Virtuoso S1T00\b")
_CLOSED = {301, 302, 303, 307, 308, 401, 403, 404, 405}
"""The server takes no queries here, whatever they ask."""

_ROW_LIMIT_HEADER = "X-SPARQL-MaxRows"
_TIME_LIMIT_HEADER = "X-SQL-State"


@dataclass(frozen=True, slots=True)
class Reply:
    """The result of a query."""

    rows: list[Row]
    server: Server
    row_limit_hit: bool = False
    """The server reports that it ended the result at its row limit."""
    time_limit_hit: bool = False
    """The server reports that it ended the query at its time limit: any rows may be missing."""

    @property
    def endpoint(self) -> str:
        """The URL of the server that answered."""
        return self.server.url

    def is_complete(self, limit: int) -> bool:
        """Return whether no row is missing from the result of a query for at most `limit` rows."""
        return len(self.rows) < limit and not (self.row_limit_hit or self.time_limit_hit)


def account_of_user() -> tuple[str, str] | None:
    """Return the name and the password that the environment has for servers that ask for them; None without both."""
    user, password = os.environ.get("VIRTUOSO_USER"), os.environ.get("VIRTUOSO_PASSWORD")
    return (user, password) if user and password else None


def check_endpoints(urls: Sequence[str]) -> None:
    """Raise UserError unless the URLs are different HTTP URLs without credentials."""
    account = "VIRTUOSO_USER and VIRTUOSO_PASSWORD"
    check_urls(urls, key="kg.endpoints", example="http://127.0.0.1:8890/sparql", instead=account)


class SparqlClient(ReplicatedClient[Select, Reply]):
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
        self._asked = 0

    def session_options(self) -> Mapping[str, Any]:
        """Ask for tab-separated results, with the user's account if the servers ask for one."""
        account = account_of_user()
        return {
            "headers": {"Accept": MEDIA_TYPE},
            "timeout": aiohttp.ClientTimeout(self._timeout_s),
            "middlewares": (aiohttp.DigestAuthMiddleware(*account),) if account else (),
        }

    async def __aenter__(self) -> Self:
        """Connect and probe all servers. Raises UserError if none answers."""
        await super().__aenter__()
        problems = await asyncio.gather(*(self.probe(server) for server in self.servers))
        if all(problems):
            await self.__aexit__()
            urls = ", ".join(server.url for server in self.servers)
            raise Unreachable(
                f"kg.endpoints: no graph server answers at {urls} ({problems[0]}); start one with `kgqa graph serve`, "
                "or correct the URLs"
            )
        for server, problem in zip(self.servers, problems, strict=True):
            if problem:
                self.mark_unhealthy(server, problem)
        return self

    async def ask(self, query: Select, *, only: Server | None = None) -> Reply:
        """Return the result of a query, from any healthy server or from the one named, healthy or not.

        Raises ServiceError: for a query that all servers refuse, and after all retries; also when a second server
        gives another result.
        """
        if only is not None:  # Not limited: requests within the limit may be waiting for this server to recover.
            return await self.send(query, only=only)
        async with self._limit:
            reply = await self.send(query)
            self._asked += 1
            others = [server for server in self.healthy_servers if server is not reply.server]
            if others and self._asked % _COMPARE_EVERY == 0:
                return await self._compare(query, reply, random.choice(others))
            return reply

    async def attempt(self, request: Select, server: Server) -> Reply:
        """Send a query to one server once."""
        try:
            response = await self.exchange(server, URL(server.url), {"query": request.text})
        except (TimeoutError, ReplyTooLarge) as error:
            # Either the query asks for too much, so it is tried only once more, or the server is broken.
            broken = await self._set_aside_if_broken(server)
            limit = f"answer within kg.timeout_s={self._timeout_s:g} s"
            if isinstance(error, ReplyTooLarge):
                limit = f"keep its answer below kg.max_reply_mb={self._max_reply_mb:g}"
            raise AttemptFailed(f"{server.url} did not {limit}", too_slow=not broken) from None
        except aiohttp.ClientError as error:
            # A server that is busy, or that closed an idle connection, disconnects as well. It may be healthy.
            if isinstance(error, aiohttp.ServerDisconnectedError):
                await self._set_aside_if_broken(server)
            else:
                self.mark_unhealthy(server, describe(error))
            raise AttemptFailed(f"{server.url}: {describe(error)}") from None
        if response.status != 200:
            # A server answers 500 to a single query, too, such as Virtuoso in a deadlock. Then it is healthy.
            if response.status == 500:
                await self._set_aside_if_broken(server)
            self._raise_for(server, response)
        try:
            rows = _rows(response, request)
        except UnexpectedResult as problem:
            server.failures += 1
            self.count_failure(server, str(problem))
            raise AttemptFailed(f"{server.url} {problem}") from None
        self.count_success(server)
        return Reply(rows, server, _ROW_LIMIT_HEADER in response.headers, _TIME_LIMIT_HEADER in response.headers)

    async def _set_aside_if_broken(self, server: Server) -> bool:
        """Mark a server that does not answer a trivial query as unhealthy. Return whether it does not."""
        problem = await self.probe(server)
        if problem:
            self.mark_unhealthy(server, problem)
        return problem is not None

    async def probe(self, server: Server) -> str | None:
        """Return why a server does not answer a trivial query, or None."""
        timeout = aiohttp.ClientTimeout(_PROBE_TIMEOUT_S)
        try:
            response = await self.request("POST", server.url, data={"query": _PROBE.text}, timeout=timeout)
        except TimeoutError:
            return f"no answer within {_PROBE_TIMEOUT_S:g} s"
        except aiohttp.ClientError as error:
            return describe(error)
        server.software = response.headers.get("Server", "")
        if response.status != 200:
            return f"status {response.answered}"
        try:
            _rows(response, _PROBE)
        except UnexpectedResult as problem:
            return f"it {problem}"
        return None

    async def _compare(self, query: Select, reply: Reply, other: Server) -> Reply:
        """Ask a second server too, and return the result of a server that passes the admission check.

        Raises ServiceError when the results differ, and both servers pass it or none does.
        """
        try:
            second = await self.attempt(query, other)
        except (AttemptFailed, ServiceError):
            return reply
        complete = reply.is_complete(query.limit) and second.is_complete(query.limit)
        if not complete or set(reply.rows) == set(second.rows):
            return reply
        difference = f"{reply.endpoint} and {other.url} give different results for the same query"
        _log.warning("%s", difference)
        trusted = [each for each in (reply, second) if await self._is_admitted(each.server)]
        if len(trusted) != 1:
            raise ServiceError(difference)
        return trusted[0]

    async def _is_admitted(self, server: Server) -> bool:
        """Return whether a server passes the admission check. Mark it as unhealthy if not."""
        problem = await self.admission_problem(server)
        if problem:
            self.mark_unhealthy(server, problem)
        return not problem

    def _raise_for(self, server: Server, response: Response) -> NoReturn:
        text = " ".join(response.body[:2000].decode(errors="replace").partition("SPARQL query:")[0].split())
        message = f"{server.url} answered {response.answered}: {printable(text[:400])}"
        refused = (response.status < 500 and response.status not in ASKED_LATER) or bool(_REFUSED.match(text))
        if response.status > 500 or response.status in _CLOSED:
            self.count_failure(server, message, refusal=message if response.status in _CLOSED else "")
        too_slow = bool(_TIMED_OUT.match(text))
        raise AttemptFailed(message, too_slow=too_slow, refused=refused, busy=is_busy(response))


def _rows(response: Response, query: Select) -> list[Row]:
    """Return the rows of a response with status 200. Raises UnexpectedResult."""
    media_type = response.headers.get("Content-Type", "").partition(";")[0].strip().lower()
    if media_type != MEDIA_TYPE:
        raise UnexpectedResult(f"sent {printable(media_type) or 'something'} and not {MEDIA_TYPE}")
    return parse_result(response.body, query)
