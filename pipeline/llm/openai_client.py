"""Sends JSON requests to replicated OpenAI-compatible servers of one model, and never shows the API key.

A server that refuses a parameter of a call by its name gets its calls without it from then on. Replies are validated
here: one of another form counts as a failure of its server.
"""

from __future__ import annotations

import asyncio
import logging
import re
from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Any, Generic, NamedTuple, TypeVar, cast

import aiohttp
import orjson
from pydantic import TypeAdapter, ValidationError
from yarl import URL

from pipeline.errors import ContextOverflow, first_defect
from pipeline.llm.dialect import REFUSED_FROM_THE_START, RENAMED, Dialect, adapt, refused_parameter
from pipeline.net.attempts import AttemptFailed, RetryPolicy
from pipeline.net.http_connections import HttpConnections, Response
from pipeline.net.replicated_client import TRANSPORT_ERRORS, ReplicatedClient, describe
from pipeline.net.server import ASKED_LATER, Server, is_busy
from pipeline.text import printable

log = logging.getLogger(__name__)

_NO_CHOICES = "choices must not be empty"
"""The defect of a reply without any text."""
_NO_CREDIT = b"insufficient_quota"
"""In a reply with status 429: the account has no credit, and no later request will succeed."""
_REFUSED = (400, 413, 422)
"""Statuses with which a healthy server refuses a request, and not every request."""
_RANDOM = (
    ", so its replies may be random, and with a temperature of 0 several run.seed share them: a temperature of "
    "the method above 0 gives each seed its own"
)
WRONG_KEY = (401, 403)
"""Statuses with which a server refuses a key, or wants one."""
_LONGEST_NAME = 200
"""Characters of a model's name that are stored."""
_LONGEST_MESSAGE = 2000
"""Characters of a server's error message that are read. Each failed question stores it."""
_OVERFLOW = re.compile(
    r"context.(?:length|size|window)|maximum model length|maximum prompt length|(?:prompt|input) is too long"
    r"|input token count|inputs?\W+(?:tokens\W+\+|must have less)|too many tokens",
    re.IGNORECASE,
)
"""In what a server says of a prompt that is too long for its model."""

T = TypeVar("T")


class Request(NamedTuple, Generic[T]):
    """A request that any server of the model can answer."""

    path: str
    """Relative to the server's base URL."""
    fields: Mapping[str, Any]
    form: TypeAdapter[T]
    """The form of the reply."""
    defect: Callable[[T], str | None] = lambda _: None
    """Returns why a reply of this form cannot be one to this request; None if it can."""


@dataclass(frozen=True, slots=True)
class Reply:
    """A server's response, with any status."""

    url: str
    status: int
    body: bytes
    answered: str
    """The status in words: see `Response.answered`."""
    seconds: float = 0.0
    is_busy: bool = False
    """Whether the server asks for the request later."""

    @property
    def transient(self) -> bool:
        """Whether the same request may succeed later or on another server."""
        return self.status >= 500 or (self.status in ASKED_LATER and _NO_CREDIT not in self.body)


class Answered(NamedTuple, Generic[T]):
    """A validated reply."""

    reply: T
    seconds: float
    """How long the server took for it, without earlier attempts and pauses."""


class OpenAIClient(ReplicatedClient[Request[Any], Answered[Any]]):
    """Replicated OpenAI-compatible servers."""

    def __init__(
        self,
        urls: Sequence[str],
        policy: RetryPolicy,
        *,
        api_key: str,
        key_variable: str,
        connect_timeout_s: float,
        timeout_s: float,
        dialect: Dialect,
        max_inflight: int | None,
        max_reply_mb: float,
    ) -> None:
        """Describe the servers; nothing is connected yet. An empty `api_key` sends no key.

        `key_variable` is the environment variable of the key, for messages.
        """
        super().__init__("model", urls, policy, max_reply_mb=max_reply_mb, max_outstanding=max_inflight)
        self._api_key = api_key
        self._key_variable = key_variable
        self._connect_timeout_s = connect_timeout_s
        self.exchange_timeout_s = timeout_s
        authorization = {"Authorization": f"Bearer {api_key}"} if api_key else {}
        self._headers = {"Content-Type": "application/json", **authorization}
        self._connections = HttpConnections(
            self._headers, connect_timeout_s=connect_timeout_s, max_reply_mb=max_reply_mb
        )
        self._overloaded: set[Server] = set()
        """The servers of which a warning has said that they are overloaded."""
        self._models: dict[str, Server] = {}
        """The names of the models under which servers have answered, with the first server of each."""
        self._refused: defaultdict[Server, set[str]] = defaultdict(lambda: set(REFUSED_FROM_THE_START[dialect]))

    def session_options(self) -> Mapping[str, Any]:
        """Send JSON, with the key if there is one."""
        return {"headers": self._headers}

    async def __aexit__(self, *exc: object) -> None:
        self._connections.close()
        await super().__aexit__(*exc)

    async def post(self, url: URL, data: bytes) -> Response:
        """Send one request. Model servers get so many that they have connections of their own."""
        return await self._connections.post(url, data)

    async def ask(self, request: Request[T], *, affinity: str | None = None) -> Answered[T]:
        """Return the validated reply to a request.

        Raises ContextOverflow, or ServiceError if the servers fail or refuse the request.
        """
        return cast("Answered[T]", await self.send(request, affinity=affinity))

    async def attempt(self, request: Request[Any], server: Server) -> Answered[Any]:
        """Send a request to one server once, and once more without each parameter that the server refuses."""
        while True:
            sent = adapt(request.fields, self._refused[server])
            reply = await self._exchange(request.path, sent, server)
            if reply.status == 200:
                read = self._validate(reply, request, server)
                self._note_model(read, sent, server)
                return Answered(read, reply.seconds)
            message = server_message(reply)
            if reply.status not in _REFUSED:
                raise self._failure(reply, server)
            self.count_success(server)
            if _OVERFLOW.search(message):
                raise ContextOverflow(self.explain(reply))
            if (parameter := refused_parameter(message, sent)) is None:
                raise AttemptFailed(self.explain(reply), refused=True)
            self._leave_out(parameter, server)

    async def _exchange(self, path: str, fields: Mapping[str, Any], server: Server) -> Reply:
        try:
            response = await self.exchange(server, _resolve(server.url, path), orjson.dumps(fields))
        except TRANSPORT_ERRORS as error:
            timed_out = isinstance(error, TimeoutError) and not isinstance(error, aiohttp.ConnectionTimeoutError)
            limit = f"no answer within llm.timeout_s={self.exchange_timeout_s:g} s"
            problem = limit if timed_out else describe(error)
            self.count_failure(server, problem)
            raise AttemptFailed(f"{server.url} failed: {problem}") from None
        return _read(server, response)

    def _validate(self, reply: Reply, request: Request[T], server: Server) -> T:
        try:
            read = request.form.validate_json(reply.body, strict=True)
        except ValidationError as error:
            defect: str | None = first_defect(error)
        else:
            defect = request.defect(read)
            if defect is None:
                self.count_success(server)
                return read
        problem = f"unusable reply ({defect}{_likely_cause(reply.body, defect)}): {self._message(reply)}"
        server.failures += 1
        self.count_failure(server, problem)
        # An error that is sent with status 200 may be gone at the next attempt.
        lasting = None if _is_error(reply.body) else defect
        raise AttemptFailed(f"{server.url} sent an {problem}", defect=lasting)

    def _note_model(self, reply: Any, sent: Mapping[str, Any], server: Server) -> None:
        """Note under which name a server answers. Warn once if it is another than before, or than another server's."""
        name = reply.get("model") if isinstance(reply, dict) else None
        if not isinstance(name, str):
            return
        server.models.setdefault(str(sent.get("model")), set()).add(name[:_LONGEST_NAME])
        if name in self._models:
            return
        if len(self._models) == 1:
            ((known, first),) = self._models.items()
            has_answered = "has answered" if first is server else f"{first.url} has answered"
            message = "model server %s now answers as the model %s, and %s as %s: the run has replies of both"
            log.warning(message, server.url, printable(name), has_answered, printable(known))
        self._models[name] = server

    def _failure(self, reply: Reply, server: Server) -> AttemptFailed:
        answered = f"it answered {reply.answered}: {self._message(reply)}"
        if not reply.transient or reply.status not in ASKED_LATER:
            self.count_failure(server, answered, refusal="" if reply.transient else self.explain(reply))
        else:
            self.count_success(server)
            if server not in self._overloaded:
                self._overloaded.add(server)
                log.warning("model server %s asks for its requests later: %s", server.url, answered)
        return AttemptFailed(self.explain(reply), refused=not reply.transient, busy=reply.transient and reply.is_busy)

    def _leave_out(self, parameter: str, server: Server) -> None:
        if parameter not in self._refused[server]:  # as other calls in flight may have found out
            self._refused[server].add(parameter)
            instead = f"{new} in its place" if (new := RENAMED.get(parameter)) else "no such parameter"
            random = _RANDOM if parameter == "temperature" else ""
            log.warning(
                "model server %s refuses the parameter %s: it gets %s%s", server.url, parameter, instead, random
            )

    async def get_from_each(self, path: str) -> list[Reply | str]:
        """Get `path` once from every server. Return each one's reply, or a clause that says why there is none."""
        return await asyncio.gather(*(self._get(server, path) for server in self.servers))

    def explain(self, reply: Reply) -> str:
        """Return one clause about an unusable reply, with the server's own message but without the key.

        Where the server refused the key, another one says which variable holds it.
        """
        answered = f"{reply.url} answered {reply.answered}: {self._message(reply)}"
        wants_key = reply.status in WRONG_KEY
        return f"{answered}; put a valid key into the variable {self._key_variable}" if wants_key else answered

    def _message(self, reply: Reply) -> str:
        message = printable(server_message(reply))
        return message.replace(self._api_key, "<key>") if self._api_key else message

    async def _get(self, server: Server, path: str) -> Reply | str:
        timeout = aiohttp.ClientTimeout(self._connect_timeout_s)
        try:
            response = await self.request("GET", _resolve(server.url, path), timeout=timeout)
        except TRANSPORT_ERRORS as error:
            return f"{server.url} failed: {describe(error)}"
        return _read(server, response)


def _read(server: Server, response: Response) -> Reply:
    return Reply(
        server.url, response.status, response.body, response.answered, response.seconds or 0.0, is_busy(response)
    )


def _likely_cause(body: bytes, defect: str | None) -> str:
    """Return a clause about what may have caused an unusable reply; empty where nothing is known."""
    if body.lstrip().startswith(b"<"):
        return (
            ": it is a web page, so a proxy or a page for signing in may stand before the server, or llm.base_urls is "
            "not the address of its API"
        )
    is_empty = defect == _NO_CHOICES and not _is_error(body)
    return ": the server wrote no text, perhaps because a filter removed it" if is_empty else ""


def _is_error(body: bytes) -> bool:
    """Return whether a body is an object that reports an error."""
    try:
        return _error_in(orjson.loads(body)) is not None
    except orjson.JSONDecodeError:
        return False


def _error_in(payload: Any) -> Any:
    """Return the error that a JSON value reports, itself or for one of its choices; None if it reports none."""
    if not isinstance(payload, dict):
        return None
    choices = payload.get("choices")
    parts = [payload, *(choices if isinstance(choices, list) else ())]
    failed = (part for part in parts if isinstance(part, dict) and (part.get("error") or _has_failed(part)))
    return next((part.get("error") or part for part in failed), None)


def _has_failed(choice: Mapping[str, Any]) -> bool:
    return choice.get("finish_reason") == "error"


def server_message(reply: Reply) -> str:
    """Return an error's message: OpenAI's `error.message` with its code, FastAPI's `detail`, or the raw body."""
    try:
        message = _message_in(orjson.loads(reply.body))
    except (orjson.JSONDecodeError, RecursionError):  # no JSON, or nested too deeply to be written as text
        message = reply.body[:300].decode(errors="replace").strip() or "an empty body"
    return message[:_LONGEST_MESSAGE]


def _message_in(payload: Any) -> str:
    found = _error_in(payload)
    error = payload if found is None else found
    if isinstance(error, dict) and (message := error.get("message") or error.get("detail")):
        code = error.get("code")
        return f"{str(message)[:_LONGEST_MESSAGE]} ({code[:100]})" if isinstance(code, str) else str(message)
    return str(error)[:300]


@lru_cache(maxsize=1024)
def _resolve(base: str, path: str) -> URL:
    return URL(f"{base.rstrip('/')}/").join(URL(path))
