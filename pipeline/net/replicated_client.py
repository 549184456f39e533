"""Sends requests to several servers with the same content: chooses the server, retries and hedges, checks health.

A request goes to the healthy server with the fewest outstanding requests. If the attempt fails, the other servers are
tried in turn; if all fail, the client backs off and starts another round. A server that fails repeatedly becomes
unhealthy and gets no requests. It becomes healthy again through a probe, which also runs an admission check if there is
one, or, in a client without probes, through a trial: a single request that it has to answer. A server that asks for a
pause (`Retry-After`) gets no requests for that time, at most for the longest back-off.

A server is busy if it asks for a pause, or answers 429 because it limits the rate of requests. While it answers other
requests, a request that it sends away has not failed: it waits for its turn. Waiting requests are spread over the time
that the servers need for all of them.

Subclasses of `ReplicatedClient` define how one request is sent to one server. They also say which replies are
failures, and how long a server is left alone: `pipeline/kg/sparql_client.py` for graphs,
`pipeline/llm/openai_client.py` for models.
"""

from __future__ import annotations

import asyncio
import contextlib
import hashlib
import logging
import math
import random
import time
from abc import ABC, abstractmethod
from collections import deque
from collections.abc import Awaitable, Callable, Collection, Iterable, Mapping
from typing import Any, ClassVar, Generic, Literal, Self, TypeAlias, TypeVar

import aiohttp
from yarl import URL

from pipeline.errors import RequestRefused, ServiceError
from pipeline.net.attempts import SLOW_ATTEMPTS, AttemptFailed, Failures, Patience, RetryPolicy
from pipeline.net.http_connections import KEEP_ALIVE_S, KERNEL_TICK_S, ReplyTooLarge, Response
from pipeline.net.server import Server, asked_pause_s, is_busy
from pipeline.net.server_stats import ServerKind, ServerStats
from pipeline.net.waiting_requests import WaitingRequests
from pipeline.text import counted

_log = logging.getLogger(__name__)

RequestT = TypeVar("RequestT")
ReplyT = TypeVar("ReplyT")

TRANSPORT_ERRORS = (aiohttp.ClientError, TimeoutError, OSError)

_LATENCY_WINDOW = 200
"""Latest latencies from which the hedging delay is computed."""
_FIRST_HEDGE_S = 1.0
"""The hedging delay until there are enough latencies."""
_ABSENCE_S = 600.0
"""Seconds that a request waits for a server to join while there is none, as when all of them are restarted."""
_FASTER = 1.5
"""How many times as fast as busy servers answer waiting requests are sent: the servers may take more by now."""
_REJECTED_RECHECK_S = 30.0
"""Seconds before a server that failed the admission check is checked again."""


AdmissionCheck: TypeAlias = Callable[[Server], Awaitable[str | None]]
"""A function that returns why a server that answers must not be used, or None."""


class ReplicatedClient(ABC, Generic[RequestT, ReplyT]):
    """Sends requests to replicated servers. An async context manager for one event loop."""

    has_probes: ClassVar[bool] = False
    """Whether unhealthy servers recover by `probe`, and not by trials."""
    exchange_timeout_s: float | None = None
    """Seconds that an exchange may take, where `post` does not limit them itself."""

    def __init__(
        self,
        kind: ServerKind,
        urls: Iterable[str],
        policy: RetryPolicy,
        *,
        max_reply_mb: float,
        max_outstanding: int | None = None,
        hedge_quantile: float | None = None,
    ) -> None:
        """Describe the client; nothing is connected yet.

        Args:
            kind: Whose servers they are.
            urls: One per server.
            policy: How requests are repeated.
            max_reply_mb: Size of the largest decoded body that is read, in millions of bytes.
            max_outstanding: Limits the requests sent to one server at the same time.
            hedge_quantile: A request that takes longer than this quantile of the latest ones is sent to a second
                server as well; None turns hedging off.
        """
        self.kind = kind
        self.servers = [Server(kind, url, slots=_slots(max_outstanding)) for url in urls]
        self._leaving: list[Server] = []
        """Servers that get no requests any more, and answer those that they have."""
        self._joined = asyncio.Event()
        self._policy = policy
        self._max_reply_mb = max_reply_mb
        self._slots = max_outstanding
        self._max_outstanding = max_outstanding or math.inf
        self._hedge_quantile = hedge_quantile
        self._latencies: deque[float] = deque(maxlen=_LATENCY_WINDOW)
        self._turns = 0
        """The number of requests that wait for their turn at busy servers."""
        self._free_slots = WaitingRequests()
        """The requests that wait until a server has fewer outstanding ones than its limit."""
        self._recovered = asyncio.Event()
        self._recoveries: set[asyncio.Task[None]] = set()
        self._admission_check: AdmissionCheck | None = None

    @abstractmethod
    async def attempt(self, request: RequestT, server: Server) -> ReplyT:
        """Send a request to a server once, by `exchange`, and note in the server's health how it went.

        The health is noted by one of `count_success`, `count_failure` and `mark_unhealthy`. In a client without probes,
        an unhealthy server gets no further trial before that. Raises AttemptFailed if another attempt may succeed, and
        ServiceError if not.
        """

    async def probe(self, server: Server) -> str | None:
        """Return why a server does not answer a trivial request, or None. Used if `has_probes`."""
        raise NotImplementedError

    def session_options(self) -> Mapping[str, Any]:
        """Return arguments of `aiohttp.ClientSession`: headers, timeouts, credentials."""
        return {}

    async def __aenter__(self) -> Self:
        connector = aiohttp.TCPConnector(limit=0, keepalive_timeout=KEEP_ALIVE_S)
        self._session = aiohttp.ClientSession(
            connector=connector, cookie_jar=aiohttp.DummyCookieJar(), **self.session_options()
        )
        return self

    async def __aexit__(self, *exc: object) -> None:
        for task in self._recoveries:
            task.cancel()
        await asyncio.gather(*self._recoveries, return_exceptions=True)
        await self._session.close()

    @property
    def server_stats(self) -> list[ServerStats]:
        """Statistics of each server."""
        return [*self.servers, *self._leaving]

    @property
    def healthy_servers(self) -> list[Server]:
        """The servers that get requests at present."""
        return [server for server in self.servers if server.healthy]

    def follow(self, urls: Collection[str], leaving: Collection[str]) -> None:
        """Send requests to the servers at these URLs from now on. Requests to other servers are sent again.

        `leaving` names servers that answer the requests which they have, and get no others.
        """
        known = {server.url: server for server in (*self.servers, *self._leaving)}
        for url in known.keys() - {*urls, *leaving}:
            _log.warning("%s server %s is gone", self.kind, url)
            known.pop(url).give_up()
        for url in urls:
            if url not in known:
                _log.warning("%s server %s has joined", self.kind, url)
                known[url] = Server(self.kind, url, slots=_slots(self._slots))
        self.servers = [known[url] for url in urls]
        self._free_slots.wake_all()
        self._leaving = [known[url] for url in leaving if url in known]
        if self.servers:
            self._joined.set()
            self._recovered.set()

    async def send(self, request: RequestT, *, only: Server | None = None, affinity: str | None = None) -> ReplyT:
        """Send a request until a server answers.

        `only` names the one server to ask, healthy or not. Requests with the same `affinity` prefer the same server.
        Raises ServiceError when the request was refused, or failed in all rounds.
        """
        failures, patience = Failures(), Patience(self._policy.rounds, self._policy.max_backoff_s)
        while not patience.is_over:
            if not self.servers:
                await self._wait_for_server()
            failures.begin_round()
            known = len(failures.tried)
            while failures.slow < SLOW_ATTEMPTS and (server := await self._pick_free(failures.tried, only, affinity)):
                may_hedge = self._hedge_quantile is not None and only is None and not failures.slow
                is_hedged = may_hedge and len(self.healthy_servers) > 1
                with contextlib.suppress(AttemptFailed):
                    return await (self._attempt_hedged if is_hedged else self._attempt)(request, server, failures)
            tried, asked = failures.tried, self.servers if only is None else [only]
            failures.add_known_refusals(asked)
            patience.asked += len(tried | failures.refusing) > known
            if failures.are_final(asked):
                break
            if not tried:
                failures.add_idle(self.servers)
            resting = {each for each in asked if each not in tried and each.healthy and each.rest_s > 0}
            if patience.add_round(failures.busy | resting):
                await self._wait_for_turn()
            elif not patience.is_over:
                await self._back_off(patience.failed + patience.stuck)
        # Raised outside the `except`: the errors of aiohttp hold the request's headers, and so the account.
        times = counted(patience.asked, "time")
        outcome = f"gave a usable answer (tried {times})" if patience.asked else "could be asked"
        raise (RequestRefused if failures.are_refusals(asked) else ServiceError)(
            f"no {self.kind} server {outcome}; last failure: {failures.last}"
        )

    def admit_by(self, check: AdmissionCheck, checked: Collection[Server]) -> None:
        """Run `check` on every server that recovers. Servers that are not in `checked` become unhealthy now."""
        self._admission_check = check
        for server in self.servers:
            if server not in checked:
                self.mark_unhealthy(server, "it did not answer at the start")

    async def admission_problem(self, server: Server) -> str | None:
        """Return why a server may not get requests, by the check of `admit_by`; None if it may."""
        return await self._admission_check(server) if self._admission_check else None

    def count_failure(self, server: Server, reason: str, *, may_have_restarted: bool = True, refusal: str = "") -> None:
        """Note a failed attempt; several in a row make the server unhealthy.

        `refusal` says with what the server refused the attempt, if it would refuse any other one.
        """
        server.consecutive_failures += 1
        if server.consecutive_failures >= self._policy.max_failures:
            self.mark_unhealthy(server, reason, may_have_restarted=may_have_restarted)
            server.refusal = refusal

    def count_success(self, server: Server) -> None:
        """Note an attempt that was answered."""
        server.consecutive_failures = 0
        server.has_answered = True
        if not server.healthy and not self.has_probes:
            self._mark_healthy(server)

    def mark_unhealthy(self, server: Server, reason: str, *, may_have_restarted: bool = True) -> None:
        """Send no requests to a server until it recovers. One that may have restarted is checked before that."""
        if server.healthy:
            server.healthy = False
            server.problem = reason
            self._free_slots.wake_all()
            _log.warning("%s server %s is unhealthy: %s", self.kind, server.url, reason)
            if self.has_probes:
                task = asyncio.create_task(self._recover(server, may_have_restarted))
                self._recoveries.add(task)
                task.add_done_callback(self._recoveries.discard)
        if not self.has_probes:
            server.next_trial = time.monotonic() + self._policy.recovery_s

    async def exchange(self, server: Server, url: URL, data: Any) -> Response:
        """Send one request to a server and count it in the server's statistics. Raises TRANSPORT_ERRORS."""
        server.outstanding += 1
        if not server.healthy:
            server.next_trial = math.inf  # One trial at a time.
        try:
            async with server.slots, asyncio.timeout(self.exchange_timeout_s) as sent:
                started = server.requests[sent] = time.monotonic()
                try:
                    response = await self.post(url, data)
                finally:
                    del server.requests[sent]
        except TRANSPORT_ERRORS:
            server.failures += 1
            raise
        except asyncio.CancelledError:
            if not self.has_probes:
                server.next_trial = time.monotonic()
            raise
        finally:
            server.outstanding -= 1
            self._free_slots.wake_one()
        self._heed(server, response)
        now = time.monotonic()
        latency_s = now - started
        if response.status >= 500:
            server.failures += 1
        else:
            self._latencies.append(latency_s)
            server.latencies.append(latency_s)
        if response.status < 400:
            server.answers.append(now)
        elif is_busy(response):
            server.sent_away_s = max(server.sent_away_s, latency_s)
        is_told = response.seconds is not None and latency_s > response.seconds + KERNEL_TICK_S
        return response if is_told else response._replace(seconds=latency_s)

    async def post(self, url: URL, data: Any) -> Response:
        """Send one `POST`, outside of all statistics. Raises TRANSPORT_ERRORS."""
        return await self.request("POST", url, data=data)

    async def request(self, method: Literal["GET", "POST"], url: str | URL, **options: Any) -> Response:
        """Send one HTTP request, outside of all statistics. Raises TRANSPORT_ERRORS."""
        # Redirects are not followed: they could lead the credentials to another server.
        async with self._session.request(method, url, allow_redirects=False, **options) as response:
            return Response(response.status, response.headers, await self._read(response))

    async def _read(self, response: aiohttp.ClientResponse) -> bytes:
        """Return the decoded body. Raises ReplyTooLarge instead of reading on."""
        parts, left = [], self._max_reply_mb * 1e6
        async for part in response.content.iter_any():
            left -= len(part)
            if left < 0:
                response.close()
                raise ReplyTooLarge(self._max_reply_mb)
            parts.append(part)
        return b"".join(parts)

    def _heed(self, server: Server, response: Response) -> None:
        """Note for how long a server asks for no requests."""
        asked_s = asked_pause_s(response)
        if not asked_s:
            return
        rest_s = min(asked_s, self._policy.max_backoff_s)
        if server.rest_s <= 0:
            level = logging.WARNING if asked_s > rest_s else logging.INFO
            message = "%s server %s asks for no requests for %s s (Retry-After): it gets none for %s s"
            _log.log(level, message, self.kind, server.url, *(f"{pause_s:,.5g}" for pause_s in (asked_s, rest_s)))
        server.resting_until = max(server.resting_until, time.monotonic() + rest_s)

    async def _pick_free(self, tried: Collection[Server], only: Server | None, affinity: str | None) -> Server | None:
        """Return the server for the next attempt once one that is available has room for it; None if none is."""
        while (server := self._pick(tried, only, affinity)) and server.outstanding >= self._max_outstanding:
            await self._free_slots.wait()
        if server is None:  # another request may use what has become free
            self._free_slots.wake_one()
        return server

    def _pick(self, tried: Collection[Server], only: Server | None, affinity: str | None) -> Server | None:
        """Return the server for the next attempt of a round, or None if no untried one is available."""
        if only is not None:
            return None if tried else only
        untried = [server for server in self.servers if server not in tried and server.rest_s <= 0]
        available = [server for server in untried if server.healthy or time.monotonic() >= server.next_trial]
        if not available:
            return None
        least = min(available, key=_load)
        if affinity is None:
            return least
        favourite = preferred_server(affinity, self.servers)
        # A known prefix saves a prefill, which is worth a slightly longer queue.
        allowed = min(least.outstanding + 2 + least.outstanding // 4, self._max_outstanding - 1)
        if favourite in available and favourite.outstanding <= allowed:
            return favourite
        return least

    async def _wait_for_server(self) -> None:
        """Wait until a server has joined. Raises ServiceError if none does in time."""
        self._joined.clear()
        try:
            await asyncio.wait_for(self._joined.wait(), _ABSENCE_S)
        except TimeoutError:
            raise ServiceError(f"no {self.kind} server has joined for {_ABSENCE_S:g} s") from None

    async def _back_off(self, round: int) -> None:
        """Pause before a round, until a server may be asked. If none is healthy, only until one is."""
        policy = self._policy
        backoff_s = min(policy.max_backoff_s, policy.backoff_s * 2.0 ** (round - 1)) * random.uniform(0.5, 1.0)
        pause_s = max(backoff_s, min((server.rest_s for server in self.healthy_servers), default=0.0))
        if self.healthy_servers:
            await asyncio.sleep(pause_s)
        else:
            self._recovered.clear()
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(self._recovered.wait(), pause_s)

    async def _wait_for_turn(self) -> None:
        """Pause while busy servers answer others, so long that they can answer all that wait, at most the longest time.

        At random, so that the requests do not come all at once.
        """
        policy, servers = self._policy, self.healthy_servers
        self._turns += 1
        try:
            rate = _FASTER * sum(server.answers_per_s for server in servers)
            spread_s = min(policy.max_backoff_s, self._turns / rate if rate else math.inf)
            rest_s = min((server.rest_s for server in servers), default=0.0)
            await asyncio.sleep(max(rest_s, policy.backoff_s * random.uniform(0.5, 1.0)) + random.uniform(0, spread_s))
        finally:
            self._turns -= 1

    async def _attempt(self, request: RequestT, server: Server, failures: Failures) -> ReplyT:
        """Make one attempt. Raises AttemptFailed if it fails, and adds it to the failures then."""
        failures.tried.add(server)
        try:
            return await self.attempt(request, server)
        except AttemptFailed as failure:
            failures.add(failure, server)
            raise

    async def _attempt_hedged(self, request: RequestT, first: Server, failures: Failures) -> ReplyT:
        """Make one attempt. If it is slow, send the request to a second server as well and take the first reply."""
        assert self._hedge_quantile is not None
        attempts = {asyncio.create_task(self._attempt(request, first, failures)): first}
        try:
            done, _ = await asyncio.wait(attempts, timeout=self._hedge_delay(self._hedge_quantile))
            if not done:
                others = [each for each in self.healthy_servers if each not in failures.tried and each.rest_s <= 0]
                if idle := [server for server in others if server.outstanding < self._max_outstanding]:
                    second = min(idle, key=_load)
                    attempts[asyncio.create_task(self._attempt(request, second, failures))] = second
            return await self._first_reply(attempts, first)
        finally:
            for task in attempts:
                task.cancel()

    async def _first_reply(self, attempts: Mapping[asyncio.Task[ReplyT], Server], first: Server) -> ReplyT:
        """Return the first reply. Raises the last AttemptFailed if all attempts fail."""
        failure: BaseException | None = None
        waiting: Collection[asyncio.Task[ReplyT]] = attempts.keys()
        while waiting:
            done, waiting = await asyncio.wait(waiting, return_when=asyncio.FIRST_COMPLETED)
            for task in done:
                error = task.exception()
                if error is None:
                    if waiting and attempts[task] is not first:
                        self.count_failure(first, "another server answered first", may_have_restarted=False)
                    return task.result()
                if not isinstance(error, AttemptFailed):
                    raise error
                failure = error
        assert failure is not None
        raise failure

    def _hedge_delay(self, quantile: float) -> float:
        if len(self._latencies) < _LATENCY_WINDOW:
            return _FIRST_HEDGE_S
        return sorted(self._latencies)[int(quantile * (_LATENCY_WINDOW - 1))]

    async def _recover(self, server: Server, may_have_restarted: bool) -> None:
        """Probe an unhealthy server until it answers, and passes the admission check if it may have restarted."""
        while True:
            await asyncio.sleep(self._policy.recovery_s * random.uniform(0.5, 1.5))
            if await self.probe(server):
                continue
            if may_have_restarted and (reason := await self.admission_problem(server)):
                server.problem = reason
                _log.warning("%s server %s answers again, but stays unhealthy: %s", self.kind, server.url, reason)
                await asyncio.sleep(_REJECTED_RECHECK_S)
                continue
            server.consecutive_failures = 0
            self._mark_healthy(server)
            return

    def _mark_healthy(self, server: Server) -> None:
        server.healthy, server.refusal = True, ""
        self._recovered.set()
        self._free_slots.wake_all()
        _log.warning("%s server %s is healthy again", self.kind, server.url)


def describe(error: Exception) -> str:
    """Return what one of the TRANSPORT_ERRORS says."""
    if isinstance(error, aiohttp.ConnectionTimeoutError):
        return "no connection in time"
    if isinstance(error, TimeoutError):
        return "no answer in time"
    reason = str(error).replace(" ssl:default", "")  # aiohttp adds it also for http
    return f"{type(error).__name__}: {reason}" if reason else type(error).__name__


def _slots(limit: int | None) -> contextlib.AbstractAsyncContextManager[Any]:
    return contextlib.nullcontext() if limit is None else asyncio.Semaphore(limit)


def _load(server: Server) -> tuple[int, float]:
    return server.outstanding, random.random()


def preferred_server(affinity: str, servers: Iterable[Server]) -> Server:
    """Return the server that requests with this affinity prefer, in every process the same (rendezvous hashing).

    Each server is preferred by about the same number of affinities. A server that joins or leaves moves only the
    requests that prefer it.
    """
    # Python's hash of a tuple is too weak here: it gives some servers twice their part.
    return max(servers, key=lambda server: hashlib.blake2b(f"{affinity} {server.url}".encode(), digest_size=8).digest())
