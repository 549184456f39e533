"""A pool of replicated SPARQL endpoints: where requests to graph servers are balanced, retried and hedged, once.

A request goes to the healthy endpoint with the fewest requests under way. One that breaks or hangs is repeated on
another; the endpoint is put aside and probed until it answers again, and holds what the others hold. A request slower
than nearly all others is sent to a second endpoint as well, and the first answer counts. So a dead or slow replica
costs time, never an answer; and while all are away, requests wait for the first to come back.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import os
import random
import re
import time
from collections import deque
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Self, TypeAlias

import aiohttp

from pipeline.address import check_address
from pipeline.errors import ServiceError, UserError
from pipeline.text import printable
from pipeline.traffic import Traffic

_log = logging.getLogger(__name__)

_PROBE = "SELECT (1 AS ?x) WHERE {}"
_PROBE_TIMEOUT_S = 5.0
_PROBE_EVERY_S = 0.5
_MISFIT_EVERY_S = 30.0
"""How often a server that answers, but not what the others do, is looked at again."""
_BACKOFF_S = (0.25, 8.0)
"""The first wait before a request is repeated when no endpoint is healthy, doubling up to the second."""
_STRIKES = 3
"""Answers in a row that an endpoint may owe before it is put aside."""
_SAMPLES = 200
"""Latencies from which the hedging delay is taken."""
_FIRST_HEDGE_S = 1.0
"""The hedging delay while there are no latencies yet."""

_REFUSED = re.compile(r"Virtuoso (?:37000|22\d{3}|42\d{3})\b")
"""SQL states with which Virtuoso refuses a query for good, although it answers 500."""
_TIMED_OUT = re.compile(r"Virtuoso S1T00\b")

Misfit: TypeAlias = Callable[["Endpoint"], Awaitable[str | None]]
"""Why an endpoint that answers is not fit for use, or None."""

_RETRIED = {408, 429}
_HEADERS = {"Accept": "text/tab-separated-values"}
_CUT = "X-SPARQL-MaxRows"
_INTERRUPTED = "X-SQL-State"


@dataclass(frozen=True, slots=True)
class Reply:
    """A tab-separated result."""

    body: bytes
    endpoint: str
    cut: bool = False
    """The server says that it ended the result at its row limit."""
    interrupted: bool = False
    """The server says that it ended the query at its time limit: any rows may be missing."""


@dataclass(slots=True, eq=False)
class Endpoint:
    """One replica."""

    url: str
    slots: asyncio.Semaphore
    traffic: Traffic
    """One for each request that it may be busy with."""
    outstanding: int = 0
    """Requests under way, those that wait for a slot included."""
    strikes: int = 0
    """Requests in a row that it did not answer in time."""
    healthy: bool = True
    problem: str = ""
    """Why it was put aside last."""
    server: str = ""
    """What it calls itself."""


def check_endpoint(url: str) -> None:
    """Raise UserError unless `url` is an address without an account."""
    account = "VIRTUOSO_USER and VIRTUOSO_PASSWORD"
    check_address(url, key="kg.endpoints", example="http://127.0.0.1:8890/sparql", instead=account)


class Pool:
    """Sends queries to replicas of one graph. An async context manager; all of its use belongs to one event loop."""

    def __init__(
        self, urls: Sequence[str], *, max_inflight: int, timeout_s: float, retries: int, hedge: float | None
    ) -> None:
        """Send each endpoint at most `max_inflight` requests at a time.

        `hedge` is the quantile of the latencies after which a request is sent twice; None never does so.
        """
        self.endpoints = [Endpoint(url, asyncio.Semaphore(max_inflight), Traffic("graph", url)) for url in urls]
        self._timeout_s = timeout_s
        self._retries = retries
        self._hedge = hedge
        self._slots = asyncio.Semaphore(max_inflight * len(urls))
        self._revived = asyncio.Event()
        self._latencies: deque[float] = deque(maxlen=_SAMPLES)
        self._probes: set[asyncio.Task[None]] = set()
        self._known = list(self.endpoints)
        self._misfit: Misfit | None = None

    async def __aenter__(self) -> Self:
        """Connect. Raises UserError when no endpoint answers; those that do not yet are left to their probes."""
        connector = aiohttp.TCPConnector(limit=0, keepalive_timeout=5)
        self._session = aiohttp.ClientSession(connector=connector, headers=_HEADERS, middlewares=_credentials())
        failures = await asyncio.gather(*(self._probe(endpoint) for endpoint in self.endpoints))
        if all(failures):
            await self.__aexit__()
            urls = ", ".join(endpoint.url for endpoint in self.endpoints)
            raise UserError(
                f"kg.endpoints: no graph server answers at {urls} ({failures[0]}); start one with `kgqa graph serve`, "
                "or correct the addresses"
            )
        for endpoint, failure in zip(self.endpoints, failures, strict=True):
            if failure:
                self._put_aside(endpoint, failure)
        self._known = self._healthy()
        return self

    async def __aexit__(self, *exc: object) -> None:
        for task in self._probes:
            task.cancel()
        await asyncio.gather(*self._probes, return_exceptions=True)
        await self._session.close()

    async def ask(self, query: str, *, only: Endpoint | None = None) -> Reply:
        """The answer of any healthy endpoint, or of the one given, whatever its state.

        Raises ServiceError: at once for a refused query, else after all retries.
        """
        if only is not None:  # without a slot: those who hold them may be waiting for what this finds out
            return await self._ask(query, lambda: [only])
        async with self._slots:
            return await self._ask(query, self._healthy)

    def admit_by(self, misfit: Misfit) -> None:
        """From now on, a server that comes back has to pass. Those that did not answer at the start have to as well."""
        self._misfit = misfit
        for endpoint in self.endpoints:
            if endpoint not in self._known:
                self._put_aside(endpoint, "it was not there at the start")

    def _healthy(self) -> list[Endpoint]:
        return [endpoint for endpoint in self.endpoints if endpoint.healthy]

    async def _ask(self, query: str, replicas: Callable[[], Sequence[Endpoint]]) -> Reply:
        """Ask one of the replicas that there are at the moment, then others, then all of them again after a while."""
        tried: set[Endpoint] = set()
        timeouts = 0
        failure: object = ""
        for attempt in range(self._retries + 1):
            if tried.issuperset(replicas()):
                await self._back_off(attempt)
                tried.clear()
            if not (untried := [endpoint for endpoint in replicas() if endpoint not in tried]):
                failure = "; ".join(f"{endpoint.url}: {endpoint.problem}" for endpoint in self.endpoints)
                continue
            first = min(untried, key=_load)
            tried.add(first)
            try:
                return await self._hedged(query, first, [other for other in replicas() if other is not first])
            except _Unanswered as error:
                failure = error
                timeouts += error.timeout
            if timeouts > 1:
                break  # A query that is too slow twice is too slow.
        raise ServiceError(f"the graph gave no answer: {failure}")

    async def _back_off(self, attempt: int) -> None:
        """Wait before trying everybody again; when none is healthy, no longer than until one is."""
        if not attempt:
            return
        shortest, longest = _BACKOFF_S
        pause = min(longest, shortest * 2 ** (attempt - 1)) * random.uniform(0.5, 1.5)
        if self._healthy():
            await asyncio.sleep(pause)
        else:
            self._revived.clear()
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(self._revived.wait(), pause)

    async def _hedged(self, query: str, first: Endpoint, others: Sequence[Endpoint]) -> Reply:
        """One try, sent to one of the others as well when the first takes longer than nearly all requests do."""
        if self._hedge is None or not others:
            return await self._send(query, first)
        tries = {asyncio.create_task(self._send(query, first))}
        try:
            done, _ = await asyncio.wait(tries, timeout=self._hedge_delay(self._hedge))
            idle = [endpoint for endpoint in others if endpoint.healthy and not endpoint.slots.locked()]
            if not done and idle:
                tries.add(asyncio.create_task(self._send(query, min(idle, key=_load))))
            return await self._first_answer(tries, first)
        finally:
            for task in tries:
                task.cancel()

    async def _first_answer(self, tries: set[asyncio.Task[Reply]], first: Endpoint) -> Reply:
        waiting, failure = tries, _Unanswered("")
        while waiting:
            done, waiting = await asyncio.wait(waiting, return_when=asyncio.FIRST_COMPLETED)
            for task in done:
                error = task.exception()
                if error is None:
                    reply = task.result()
                    if reply.endpoint != first.url and waiting:
                        self._strike(first, "is slower than its replicas", changed=False)
                    return reply
                if not isinstance(error, _Unanswered):
                    raise error
                failure = error
        raise failure

    async def _send(self, query: str, endpoint: Endpoint) -> Reply:
        """One request. Raises _Unanswered when another try may succeed, ServiceError when the query was refused."""
        endpoint.outstanding += 1
        try:
            async with endpoint.slots:
                started = time.monotonic()
                status, headers, body = await self._post(endpoint.url, query, self._timeout_s)
        except TimeoutError:
            endpoint.traffic.failures += 1
            # Either the query is too slow, which trying again would not change, or the server hangs.
            hangs = await self._probe(endpoint)
            if hangs:
                self._put_aside(endpoint, hangs)
            message = f"{endpoint.url} did not answer within {self._timeout_s:g} s"
            raise _Unanswered(message, timeout=not hangs) from None
        except aiohttp.ClientError as error:
            endpoint.traffic.failures += 1
            # A server that is busy, or that closed an idle connection, disconnects as well; that is no sickness.
            if not isinstance(error, aiohttp.ServerDisconnectedError):
                self._put_aside(endpoint, str(error))
            raise _Unanswered(f"{endpoint.url}: {error}") from None
        finally:
            endpoint.outstanding -= 1
        if status != 200:
            endpoint.traffic.failures += 1
            self._raise_for(endpoint, status, body)
        endpoint.strikes = 0
        latency = time.monotonic() - started
        self._latencies.append(latency)
        endpoint.traffic.latencies.append(latency)
        return Reply(body, endpoint.url, _CUT in headers, _INTERRUPTED in headers)

    async def _post(self, url: str, query: str, within_s: float) -> tuple[int, Mapping[str, str], bytes]:
        timeout = aiohttp.ClientTimeout(within_s)
        # A redirect would take the account to wherever it points.
        async with self._session.post(url, data={"query": query}, timeout=timeout, allow_redirects=False) as response:
            return response.status, response.headers, await response.read()

    def _raise_for(self, endpoint: Endpoint, status: int, body: bytes) -> None:
        said = " ".join(body[:2000].decode(errors="replace").partition("SPARQL query:")[0].split())
        message = f"{endpoint.url} answered {status}: {printable(said[:400])}"
        if (status < 500 and status not in _RETRIED) or _REFUSED.match(said):
            raise ServiceError(message)
        if status in {502, 503, 504}:
            self._strike(endpoint, message)
        raise _Unanswered(message, timeout=bool(_TIMED_OUT.match(said)))

    def _hedge_delay(self, quantile: float) -> float:
        if len(self._latencies) < _SAMPLES:
            return _FIRST_HEDGE_S
        return sorted(self._latencies)[int(quantile * (_SAMPLES - 1))]

    def _strike(self, endpoint: Endpoint, reason: str, *, changed: bool = True) -> None:
        endpoint.strikes += 1
        if endpoint.strikes >= _STRIKES:
            self._put_aside(endpoint, reason, changed=changed)

    def _put_aside(self, endpoint: Endpoint, reason: str, *, changed: bool = True) -> None:
        """Leave an endpoint out until it answers; `changed` when it may be another server by then."""
        if endpoint.healthy:
            endpoint.healthy = endpoint.traffic.usable = False
            endpoint.problem = reason
            _log.warning("graph server %s is put aside: %s", endpoint.url, reason)
            task = asyncio.create_task(self._revive(endpoint, changed))
            self._probes.add(task)
            task.add_done_callback(self._probes.discard)

    async def _revive(self, endpoint: Endpoint, changed: bool) -> None:
        while True:
            await asyncio.sleep(_PROBE_EVERY_S * random.uniform(0.5, 1.5))
            if await self._probe(endpoint):
                continue
            if changed and self._misfit and (reason := await self._misfit(endpoint)):
                endpoint.problem = reason
                _log.warning("graph server %s answers again, but stays aside: %s", endpoint.url, reason)
                await asyncio.sleep(_MISFIT_EVERY_S)
                continue
            endpoint.healthy = endpoint.traffic.usable = True
            endpoint.strikes = 0
            self._revived.set()
            _log.warning("graph server %s answers again", endpoint.url)
            return

    async def _probe(self, endpoint: Endpoint) -> str | None:
        """Why an endpoint is not fit for use, or None."""
        try:
            status, headers, _ = await self._post(endpoint.url, _PROBE, _PROBE_TIMEOUT_S)
        except TimeoutError:
            return f"no answer within {_PROBE_TIMEOUT_S:g} s"
        except aiohttp.ClientError as error:
            return str(error)
        endpoint.server = headers.get("Server", "")
        return None if status == 200 else f"status {status}"


@dataclass(slots=True)
class _Unanswered(Exception):
    """A try that failed in a way that another try may not."""

    message: str
    timeout: bool = False

    def __str__(self) -> str:
        return self.message


def _load(endpoint: Endpoint) -> tuple[int, float]:
    return endpoint.outstanding, random.random()


def _credentials() -> tuple[aiohttp.DigestAuthMiddleware, ...]:
    """The account for servers that ask for one (Virtuoso's `/sparql-auth` does); it never leaves the environment."""
    user, password = os.environ.get("VIRTUOSO_USER"), os.environ.get("VIRTUOSO_PASSWORD")
    return (aiohttp.DigestAuthMiddleware(user, password),) if user and password else ()
