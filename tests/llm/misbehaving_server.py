"""A model server that breaks the protocol in many ways, in a thread of this process."""

from __future__ import annotations

import asyncio
import gzip
import json
import threading
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager
from typing import Any

from aiohttp import web

Mode = Callable[[web.Request], Awaitable[web.StreamResponse]]

GOOD: dict[str, Any] = {
    "id": "chatcmpl-1",
    "object": "chat.completion",
    "created": 1,
    "model": "llama",
    "choices": [
        {
            "index": 0,
            "message": {"role": "assistant", "content": "{Ada}", "tool_calls": []},
            "finish_reason": "stop",
            "logprobs": None,
        }
    ],
    "usage": {"prompt_tokens": 12, "completion_tokens": 3, "total_tokens": 15},
}
_CHUNK = b" " * 65536


def body(content: bytes | str, *, status: int = 200, **headers: str) -> Mode:
    """Answer with these bytes; underscores in header names become hyphens."""

    async def answer(request: web.Request) -> web.Response:
        raw = content.encode() if isinstance(content, str) else content
        named = {name.replace("_", "-"): value for name, value in headers.items()}
        return web.Response(body=raw, status=status, headers={"Content-Type": "application/json", **named})

    return answer


def reply(**changes: Any) -> Mode:
    """Answer with a good reply in which some fields differ; `a__0__b` is the field `b` of the first entry of `a`."""
    changed = json.loads(json.dumps(GOOD))
    for path, value in changes.items():
        *parents, last = (int(name) if name.isdigit() else name for name in path.split("__"))
        inside = changed
        for name in parents:
            inside = inside[name]
        inside[last] = value
    return body(json.dumps(changed))


def content(value: Any) -> Mode:
    """Answer with this content of the message."""
    return reply(choices__0__message__content=value)


def tokens(value: Any) -> Mode:
    """Answer with this number of completion tokens."""
    return reply(usage__completion_tokens=value)


async def endless(request: web.Request) -> web.StreamResponse:
    """Send until the client goes away."""
    response = web.StreamResponse()
    await response.prepare(request)
    while True:
        await response.write(_CHUNK)


async def drip(request: web.Request) -> web.StreamResponse:
    """Send a byte from time to time."""
    response = web.StreamResponse()
    await response.prepare(request)
    while True:
        await response.write(b" ")
        await asyncio.sleep(0.05)


async def half(request: web.Request) -> web.StreamResponse:
    """Announce a whole reply, and close the connection in the middle of it."""
    whole = json.dumps(GOOD).encode()
    response = web.StreamResponse(headers={"Content-Length": str(len(whole))})
    await response.prepare(request)
    await response.write(whole[: len(whole) // 2])
    return _abort(request, response)


async def hang_up(request: web.Request) -> web.StreamResponse:
    """Close the connection without an answer."""
    return _abort(request, web.Response())


async def not_http(request: web.Request) -> web.StreamResponse:
    """Answer in another protocol."""
    assert request.transport is not None
    request.transport.write(b"220 mail.example.org ESMTP ready\r\n")
    request.transport.close()
    return web.Response()


def _abort(request: web.Request, response: web.StreamResponse) -> web.StreamResponse:
    assert request.transport is not None
    request.transport.abort()
    return response


def gzip_bomb() -> Mode:
    """Answer with a body that is a thousand times larger when it is decoded."""
    return body(gzip.compress(b" " * 50_000_000), Content_Encoding="gzip")


UNUSABLE: dict[str, tuple[Mode, str]] = {
    "a page": (body("<html>busy</html>", Content_Type="text/html"), r"not valid JSON.*<html>busy</html>"),
    "nothing": (body(""), "an empty body"),
    "half of the JSON": (body(json.dumps(GOOD)[:90]), r"it is not valid JSON \(EOF"),
    "another JSON value": (body("[]"), "must be an object"),
    "deep JSON": (body("[" * 10_000), "recursion limit"),
    "Latin-1": (body(json.dumps(GOOD).replace("Ada", "Ad\xe4").encode("latin-1")), "not valid JSON"),
    "UTF-16": (body(json.dumps(GOOD).encode("utf-16")), "not valid JSON"),
    "a lone surrogate": (body(json.dumps(GOOD).replace("Ada", "\\ud800")), "not valid JSON"),
    "an error with status 200": (body('{"error": {"message": "overloaded"}}'), "choices is missing.*overloaded"),
    "an error beside a text": (reply(error={"message": "overloaded"}), "it reports an error.*: overloaded"),
    "a choice with an error": (reply(choices__0__error={"message": "lost"}), "it reports an error.*: lost"),
    "a choice that is an error": (reply(choices__0__finish_reason="error"), "it reports an error"),
    "no choices": (reply(choices=[]), "choices must not be empty"),
    "choices of null": (reply(choices=None), "choices must be a list"),
    "choices without a message": (reply(choices=[{}]), r"choices\.0\.message is missing"),
    "a message of null": (reply(choices__0__message=None), r"choices\.0\.message"),
    "content: a number": (content(7), r"choices\.0\.message\.content"),
    "content: an object": (content({"text": "Ada"}), r"choices\.0\.message\.content"),
    "content: a list of numbers": (content([1, 2]), r"choices\.0\.message\.content"),
    "content: an image": (content([{"type": "image_url", "image_url": "x"}]), r"choices\.0\.message\.content"),
    "content: too long": (content("{Ada} " * 150_000), r"has 900,000 characters, too many for [0-9,]+ tokens"),
    "finish_reason: a number": (reply(choices__0__finish_reason=1), r"finish_reason must be a text"),
    "finish_reason: a list": (reply(choices__0__finish_reason=["stop"]), "finish_reason"),
    "logprobs: a text": (reply(choices__0__logprobs={"content": [{"token": "a", "logprob": "-1"}]}), "logprob"),
    "logprobs: too large": (reply(choices__0__logprobs={"content": [{"token": "a", "logprob": 1e300}]}), "logprob"),
    "usage: a list": (reply(usage=[1]), "usage must be an object"),
    "tokens: a text": (tokens("3"), "completion_tokens must be a whole number"),
    "tokens: negative": (tokens(-3), "completion_tokens must be greater than or equal to 0"),
    "tokens: a fraction": (tokens(3.5), "completion_tokens"),
    "tokens: true": (tokens(True), "completion_tokens"),
    "tokens: too many": (tokens(2**31), "completion_tokens must be less than 2147483648"),
    "tokens: far too many": (tokens(10**40), "completion_tokens"),
    "tokens: NaN": (tokens(float("nan")), "completion_tokens"),
    "a gzip bomb": (gzip_bomb(), "its reply is larger than 1 MB"),
    "an endless body": (endless, "its reply is larger than 1 MB"),
    "a page that is no gzip": (body("hello", Content_Encoding="gzip"), "ClientPayloadError|ContentEncodingError"),
    "an encoding that nobody knows": (body("hello", Content_Encoding="br, zip"), "not valid JSON|Error"),
    "a slow drip": (drip, "no answer within llm.timeout_s"),
    "half of the body": (half, "ClientPayloadError|ServerDisconnected|ClientOSError"),
    "a lost connection": (hang_up, "ServerDisconnected|ClientOSError"),
    "another protocol": (not_http, "ClientPayloadError: no HTTP response"),
    "a redirection": (
        body("", status=302, Location="http://127.0.0.1:1/v1"),
        r"302 \(a redirection to http://127\.0\.0\.1:1/v1\)",
    ),
    "status 400": (body('{"error": "confused"}', status=400), "answered 400: confused"),
    "status 401": (body('{"error": "who are you?"}', status=401), "answered 401"),
    "status 404": (body('{"detail": "Not Found"}', status=404), "answered 404: Not Found"),
    "a deep error": (
        body('{"error": ' + "[" * 1000 + "]" * 1000 + "}", status=500),
        r'answered 500: \{"error": \[{200}',
    ),
    "a long error": (body(json.dumps({"error": "no " * 300_000}), status=500), r"answered 500: (no ){100}\Z"),
    "a long message": (
        body(json.dumps({"error": {"message": "no " * 300_000, "code": "no " * 9}}), status=500),
        r"answered 500: (no ){666}no\Z",
    ),
    "status 500": (body("out of memory", status=500), "answered 500: out of memory"),
    "a pause of a day": (body("{}", status=429, Retry_After="86400"), "answered 429|asked for no requests"),
    "an endless pause": (body("{}", status=503, Retry_After="inf"), "answered 503|asked for no requests"),
    "a pause in words": (body("{}", status=503, Retry_After="next week"), "answered 503"),
    "a pause that ended": (body("{}", status=503, Retry_After="-5"), "answered 503"),
}
"""Each mode that no question can be answered with, and a pattern of the reason that the failed rows have."""

ODD: dict[str, Mode] = {
    "parts of text": content([{"type": "text", "text": "{Ad"}, {"type": "text", "text": "a}"}]),
    "reasoning before the text": content([{"type": "thinking", "thinking": []}, {"type": "text", "text": "{Ada}"}]),
    "several choices": reply(choices=[*GOOD["choices"], *GOOD["choices"]]),
    "no usage": reply(usage=None),
    "no finish_reason": reply(choices__0__finish_reason=None),
    "unknown fields": reply(surprise={"a": [None]}, choices__0__message__refusal=None),
    "compressed": body(gzip.compress(json.dumps(GOOD).encode()), Content_Encoding="gzip"),
}
"""Each unusual mode whose answer is the same as that of a good server."""


@contextmanager
def serving(mode: Mode) -> Iterator[str]:
    """Answer chat completions by a mode, on a free port. Yields the server's URL."""
    app = web.Application()
    app.router.add_get("/v1/models", body('{"object": "list", "data": [{"id": "llama"}]}'))
    app.router.add_post("/v1/chat/completions", mode)
    with served(app) as url:
        yield f"{url}/v1"


@contextmanager
def served(app: web.Application) -> Iterator[str]:
    """Serve an application in a thread of this process, on a free port. Yields its URL."""
    loop = asyncio.new_event_loop()
    runner = web.AppRunner(app, shutdown_timeout=0.1)
    loop.run_until_complete(runner.setup())
    site = web.TCPSite(runner, "127.0.0.1", 0)
    loop.run_until_complete(site.start())
    thread = threading.Thread(target=loop.run_forever)
    thread.start()
    try:
        yield f"http://127.0.0.1:{runner.addresses[0][1]}"
    finally:
        asyncio.run_coroutine_threadsafe(runner.cleanup(), loop).result()
        loop.call_soon_threadsafe(loop.stop)
        thread.join()
        loop.close()
