"""Sends JSON requests to replicated OpenAI-compatible servers of one model, and never shows the API key.

A server that refuses a parameter of a call by its name gets its calls without it from then on.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from email.utils import parsedate_to_datetime
from functools import lru_cache
from typing import Any, NamedTuple

import aiohttp
import orjson
from yarl import URL

from pipeline.errors import ServiceError
from pipeline.llm.dialect import REFUSED_FROM_THE_START, Dialect, adapt, other_name, refused_parameter
from pipeline.net.pool import TRANSPORT_ERRORS, AttemptFailed, Response, RetryPolicy, Server, ServerPool
from pipeline.text import printable

log = logging.getLogger(__name__)

_OVERLOADED = (408, 429)
"""Statuses with which a healthy server asks for the request later."""
_REFUSED = (400, 422)
"""Statuses with which a server refuses the parameters of a request."""


class Request(NamedTuple):
    """A request that any server of the model can answer."""

    path: str
    """Relative to the server's base URL."""
    fields: Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class Reply:
    """A server's response, with any status."""

    url: str
    status: int
    body: bytes

    @property
    def transient(self) -> bool:
        """Whether the same request may succeed later or on another server."""
        return self.status >= 500 or self.status in _OVERLOADED


class OpenAIClient(ServerPool[Request, Reply]):
    """Replicated OpenAI-compatible servers."""

    def __init__(
        self,
        urls: Sequence[str],
        policy: RetryPolicy,
        *,
        api_key: str,
        connect_timeout_s: float,
        timeout_s: float,
        dialect: Dialect,
    ) -> None:
        """Describe the servers; nothing is connected yet. An empty `api_key` sends no key."""
        super().__init__("model", urls, policy)
        self._api_key = api_key
        self._connect_timeout_s = connect_timeout_s
        self._timeout_s = timeout_s
        self._refused = {server: set(REFUSED_FROM_THE_START[dialect]) for server in self.servers}

    def session_options(self) -> Mapping[str, Any]:
        """Send JSON, with the key if there is one."""
        authorization = {"Authorization": f"Bearer {self._api_key}"} if self._api_key else {}
        return {
            "headers": {"Content-Type": "application/json", **authorization},
            "timeout": aiohttp.ClientTimeout(self._timeout_s, sock_connect=self._connect_timeout_s),
        }

    async def attempt(self, request: Request, server: Server) -> Reply:
        """Send a request to one server once, and once more without each parameter that the server refuses."""
        while True:
            sent = adapt(request.fields, self._refused[server])
            reply = await self._exchange(request.path, sent, server)
            parameter = refused_parameter(server_message(reply), sent) if reply.status in _REFUSED else None
            if parameter is None:
                return reply
            self._leave_out(parameter, server)

    def _leave_out(self, parameter: str, server: Server) -> None:
        if parameter not in self._refused[server]:  # as other calls in flight may have found out
            self._refused[server].add(parameter)
            instead = f"{new} in its place" if (new := other_name(parameter)) else "no such parameter"
            log.warning("model server %s refuses the parameter %s: it gets %s", server.url, parameter, instead)

    async def _exchange(self, path: str, fields: Mapping[str, Any], server: Server) -> Reply:
        try:
            response = await self.exchange(server, _resolve(server.url, path), orjson.dumps(fields))
        except TRANSPORT_ERRORS as error:
            problem = _describe(error)
            self.count_failure(server, problem)
            raise AttemptFailed(f"{server.url} failed: {problem}") from None
        reply = Reply(server.url, response.status, response.body)
        if reply.status >= 500:
            self.count_failure(server, f"status {reply.status}")
        else:
            self.count_success(server)
        if reply.transient:
            raise AttemptFailed(self.explain(reply), retry_after_s=_retry_after_s(response))
        return reply

    async def get_from_each(self, path: str) -> list[Reply | str]:
        """Get `path` once from every server. Return each one's reply, or a clause that says why there is none."""
        return await asyncio.gather(*(self._get(server, path) for server in self.servers))

    def read(self, reply: Reply) -> dict[str, Any]:
        """Return the JSON object of a successful reply. Raises ServiceError for any other reply."""
        try:
            payload = orjson.loads(reply.body)
        except orjson.JSONDecodeError:
            payload = None
        if not isinstance(payload, dict):
            raise ServiceError(f"no JSON object: {self.explain(reply)}")
        return payload

    def explain(self, reply: Reply) -> str:
        """Return one clause about an unusable reply, with the server's own message but without the key."""
        message = printable(server_message(reply))
        redacted = message.replace(self._api_key, "<key>") if self._api_key else message
        return f"{reply.url} answered {reply.status}: {redacted}"

    async def _get(self, server: Server, path: str) -> Reply | str:
        timeout = aiohttp.ClientTimeout(self._connect_timeout_s)
        try:
            response = await self.request("GET", _resolve(server.url, path), timeout=timeout)
        except TRANSPORT_ERRORS as error:
            return f"{server.url} failed: {_describe(error)}"
        return Reply(server.url, response.status, response.body)


def server_message(reply: Reply) -> str:
    """Return an error's message: OpenAI's `error.message` with its code, FastAPI's `detail`, or the raw body."""
    try:
        payload = orjson.loads(reply.body)
    except orjson.JSONDecodeError:
        return reply.body[:300].decode(errors="replace").strip() or "an empty body"
    error = payload.get("error", payload) if isinstance(payload, dict) else payload
    if isinstance(error, dict) and (message := error.get("message") or error.get("detail")):
        code = error.get("code")
        return f"{message} ({code})" if isinstance(code, str) else str(message)
    return str(error)[:300]


def _retry_after_s(response: Response) -> float:
    """Return the seconds of the Retry-After header, which is a number or a date; 0 if there is none."""
    value = response.headers.get("Retry-After", "")
    try:
        return max(0.0, float(value))
    except ValueError:
        pass
    try:
        return max(0.0, (parsedate_to_datetime(value) - datetime.now(UTC)).total_seconds())
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
    return URL(f"{base.rstrip('/')}/").join(URL(path))
