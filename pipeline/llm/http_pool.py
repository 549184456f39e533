"""A pool of equal HTTP servers behind one `post`: the only place where model calls are balanced and retried.

A call goes to the least loaded server, or to the one that has probably seen its prefix when that one is hardly busier.
When a server fails, the call moves on to the next; when all have failed, it waits and goes round again. A server that
keeps failing is left alone for a while (its circuit is open), then tried with a single call.
"""

from __future__ import annotations

import asyncio
import logging
import random
import time
from collections.abc import Collection, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from email.utils import parsedate_to_datetime
from functools import lru_cache
from typing import Any, NamedTuple, Self

import aiohttp
import orjson
from yarl import URL

from pipeline.errors import ServiceError
from pipeline.text import printable
from pipeline.traffic import Traffic

log = logging.getLogger(__name__)

_TRANSPORT_ERRORS = (aiohttp.ClientError, TimeoutError, OSError)

_KEEP_ALIVE_S = 4.0
"""Below the 5 s after which uvicorn, and so vLLM, closes an idle connection: a call never meets a closing one."""

_OVERLOADED = (408, 429)
"""Statuses of a healthy server that wants the call later."""


class Reply(NamedTuple):
    """What a server answered, whatever its status."""

    url: str
    status: int
    body: bytes
    retry_after_s: float = 0.0
    """Seconds that the server asks to wait before the next call; 0 when it does not say."""

    @property
    def transient(self) -> bool:
        """Whether the same call may well succeed later or elsewhere."""
        return self.status >= 500 or self.status in _OVERLOADED


@dataclass(slots=True, eq=False)
class _Server:
    """One server of the pool, and how it has been doing."""

    url: str
    """Base address, ending in a slash."""
    traffic: Traffic
    in_flight: int = 0
    failures: int = 0
    """Consecutive failures; 0 after any answer."""
    open_until: float = 0.0
    """Loop time at which an open circuit may be probed; 0 while the circuit is closed."""
    probing: bool = False

    def usable(self, now: float) -> bool:
        return not self.open_until or (now >= self.open_until and not self.probing)


class ServerPool:
    """Several addresses of one service. Opened with `async with`; used on one event loop."""

    def __init__(
        self,
        urls: Sequence[str],
        *,
        api_key: str,
        connect_timeout_s: float,
        timeout_s: float,
        max_retries: int,
        backoff_s: float,
        max_backoff_s: float,
        breaker_failures: int,
        breaker_reset_s: float,
    ) -> None:
        """Describe the pool; nothing is connected yet. `conf/llm/endpoint.yaml` explains the values; no key is `""`."""
        self._servers = [_Server(url.rstrip("/") + "/", Traffic("model", url)) for url in urls]
        self._api_key = api_key
        self._timeout = aiohttp.ClientTimeout(total=timeout_s, sock_connect=connect_timeout_s)
        self._survey_timeout = aiohttp.ClientTimeout(total=connect_timeout_s)
        self._max_retries = max_retries
        self._backoff_s = backoff_s
        self._max_backoff_s = max_backoff_s
        self._breaker_failures = breaker_failures
        self._breaker_reset_s = breaker_reset_s

    async def __aenter__(self) -> Self:
        headers = {"Content-Type": "application/json"}
        if self._api_key:
            headers["Authorization"] = f"Bearer {self._api_key}"
        self._session = aiohttp.ClientSession(
            connector=aiohttp.TCPConnector(limit=0, keepalive_timeout=_KEEP_ALIVE_S),
            cookie_jar=aiohttp.DummyCookieJar(),
            headers=headers,
            timeout=self._timeout,
        )
        return self

    async def __aexit__(self, *exc: object) -> None:
        await self._session.close()

    @property
    def traffic(self) -> list[Traffic]:
        """Of each server."""
        return [server.traffic for server in self._servers]

    async def post(self, path: str, body: bytes, *, affinity: int = 0) -> Reply:
        """Post JSON to `path`, relative to the base address, on one of the servers.

        Calls with the same `affinity` prefer the same server. Returns any answer that another try would not change.
        Raises ServiceError when every server failed in every round.
        """
        problem = "every server is out of order after repeated failures"
        wait_s = 0.0
        for round in range(self._max_retries + 1):
            if round:
                await asyncio.sleep(max(wait_s, self._backoff(round)))
            tried: set[_Server] = set()
            wait_s = 0.0
            while server := self._pick(affinity, tried):
                tried.add(server)
                try:
                    reply = await self._send(server, path, body)
                except _TRANSPORT_ERRORS as error:
                    problem = f"{server.url} failed: {_describe(error)}"
                    continue
                if not reply.transient:
                    return reply
                problem = self.explain(reply)
                wait_s = max(wait_s, reply.retry_after_s)
        # Raised outside the `except`: aiohttp's errors hold the request's headers, and so the key.
        raise ServiceError(f"no model server answered in {self._max_retries + 1} rounds; at last {problem}")

    async def survey(self, path: str) -> list[Reply | str]:
        """Get `path` once from every server: its answer, or the sentence that says why there is none."""
        return await asyncio.gather(*(self._get(server, path) for server in self._servers))

    def read(self, reply: Reply) -> dict[str, Any]:
        """The JSON object of a successful answer. Raises ServiceError for anything else."""
        try:
            payload = orjson.loads(reply.body)
        except orjson.JSONDecodeError:
            payload = None
        if not isinstance(payload, dict):
            raise ServiceError(f"no JSON object: {self.explain(reply)}")
        return payload

    def explain(self, reply: Reply) -> str:
        """One clause for an answer that is of no use, with the server's own message and never the key."""
        return f"{reply.url} answered {reply.status}: {self._redact(printable(server_message(reply)))}"

    def _pick(self, affinity: int, tried: Collection[_Server]) -> _Server | None:
        now = time.monotonic()
        usable = [server for server in self._servers if server not in tried and server.usable(now)]
        if not usable:
            return None
        least = min(usable, key=lambda server: server.in_flight)
        favourite = self._servers[affinity % len(self._servers)]
        # A known prefix saves a prefill, which is worth a slightly longer queue.
        if favourite in usable and favourite.in_flight <= least.in_flight + 2 + least.in_flight // 4:
            return favourite
        return least

    async def _send(self, server: _Server, path: str, body: bytes) -> Reply:
        probe = server.probing = bool(server.open_until)
        server.in_flight += 1
        began = time.monotonic()
        try:
            async with self._session.post(_resolve(server.url, path), data=body, allow_redirects=False) as response:
                reply = await _read(server, response)
        except _TRANSPORT_ERRORS:
            self._note_failure(server)
            raise
        finally:
            server.in_flight -= 1
            server.probing = server.probing and not probe
        if reply.status >= 500:
            self._note_failure(server)
        else:
            server.failures, server.open_until, server.traffic.usable = 0, 0.0, True
            server.traffic.latencies.append(time.monotonic() - began)
        return reply

    def _note_failure(self, server: _Server) -> None:
        server.failures += 1
        server.traffic.failures += 1
        if server.failures >= self._breaker_failures:
            if not server.open_until:
                log.warning("%s failed %d times in a row; leaving it alone for a while", server.url, server.failures)
            server.open_until = time.monotonic() + self._breaker_reset_s
            server.traffic.usable = False

    async def _get(self, server: _Server, path: str) -> Reply | str:
        try:
            url, timeout = _resolve(server.url, path), self._survey_timeout
            async with self._session.get(url, timeout=timeout, allow_redirects=False) as response:
                return await _read(server, response)
        except _TRANSPORT_ERRORS as error:
            return f"{server.url} failed: {_describe(error)}"

    def _backoff(self, round: int) -> float:
        """Seconds before a round: doubling, capped, and drawn from the upper half lest all calls come back together."""
        return min(self._max_backoff_s, self._backoff_s * 2.0 ** (round - 1)) * random.uniform(0.5, 1.0)

    def _redact(self, text: str) -> str:
        return text.replace(self._api_key, "<key>") if self._api_key else text


def server_message(reply: Reply) -> str:
    """The message of an error answer: OpenAI's `error.message` with its code, FastAPI's `detail`, or the raw body."""
    try:
        payload = orjson.loads(reply.body)
    except orjson.JSONDecodeError:
        return reply.body[:300].decode(errors="replace").strip() or "an empty body"
    error = payload.get("error", payload) if isinstance(payload, dict) else payload
    if isinstance(error, dict) and (message := error.get("message") or error.get("detail")):
        code = error.get("code")
        return f"{message} ({code})" if isinstance(code, str) else str(message)
    return str(error)[:300]


async def _read(server: _Server, response: aiohttp.ClientResponse) -> Reply:
    retry_after = response.headers.get("Retry-After")
    return Reply(
        server.url, response.status, await response.read(), _seconds(retry_after) if retry_after is not None else 0.0
    )


def _seconds(retry_after: str) -> float:
    """The value of a Retry-After header, which is a number of seconds or a date; 0 for anything else."""
    try:
        return max(0.0, float(retry_after))
    except ValueError:
        pass
    try:
        return max(0.0, (parsedate_to_datetime(retry_after) - datetime.now(UTC)).total_seconds())
    except (ValueError, TypeError):
        return 0.0


def _describe(error: Exception) -> str:
    if isinstance(error, aiohttp.ConnectionTimeoutError):
        return "no connection in time"
    if isinstance(error, TimeoutError):
        return "no answer in time"
    return f"{type(error).__name__}: {error}" if str(error) else type(error).__name__


@lru_cache(maxsize=1024)
def _resolve(base: str, path: str) -> URL:
    return URL(base).join(URL(path))
