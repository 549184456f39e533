"""A fake OpenAI-compatible server with scripted failures."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from types import SimpleNamespace
from typing import Any

import orjson
import pytest
from aiohttp import web

from tests.support import until

Behaviour = Callable[[web.Request, dict[str, Any]], Awaitable[web.StreamResponse]]

USAGE = {"prompt_tokens": 12, "completion_tokens": 3, "total_tokens": 15}


class FakeOpenAIServer:
    """Answers chat completions by `behaviours`, one per call, then always by `default`."""

    def __init__(self) -> None:
        self.default: Behaviour = self.say("hello")
        self.behaviours: list[Behaviour] = []
        self.cards: list[dict[str, Any]] = [{"id": "llama", "object": "model", "owned_by": "vllm"}]
        self.models_status = 200
        self.vocabulary: dict[str, int] = {}
        """Single tokens of `/tokenize`. Other texts have one token per character."""
        self.bodies: list[dict[str, Any]] = []
        self.headers: list[dict[str, str]] = []
        self.tokenised: list[str] = []
        self.connections: set[object] = set()
        self.port = 0

    async def asked(self, times: int) -> None:
        """Wait for this number of chat completion requests."""
        await until(lambda: len(self.bodies) >= times)

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}/v1"

    async def start(self) -> None:
        """Start to listen. After a stop, use the same port."""
        app = web.Application(client_max_size=2**26)
        app.router.add_get("/v1/models", self._models)
        app.router.add_post("/v1/chat/completions", self._chat)
        app.router.add_post("/tokenize", self._tokenize)
        self._runner = web.AppRunner(app, shutdown_timeout=0.1)
        await self._runner.setup()
        site = web.TCPSite(self._runner, "127.0.0.1", self.port)
        await site.start()
        self.port = site._server.sockets[0].getsockname()[1]

    async def stop(self) -> None:
        await self._runner.cleanup()

    async def _models(self, request: web.Request) -> web.Response:
        self.headers.append(dict(request.headers))
        if self.models_status != 200:
            return _json({"error": {"message": f"no: {request.headers.get('Authorization')}"}}, self.models_status)
        return _json({"object": "list", "data": self.cards})

    async def _chat(self, request: web.Request) -> web.StreamResponse:
        self.connections.add(request.transport)
        body = orjson.loads(await request.read())
        self.bodies.append(body)
        self.headers.append(dict(request.headers))
        behaviour = self.behaviours.pop(0) if self.behaviours else self.default
        return await behaviour(request, body)

    async def _tokenize(self, request: web.Request) -> web.Response:
        prompt = orjson.loads(await request.read())["prompt"]
        self.tokenised.append(prompt)
        tokens = [self.vocabulary[prompt]] if prompt in self.vocabulary else [ord(c) for c in prompt]
        return _json({"tokens": tokens, "count": len(tokens), "max_model_len": 4096})

    @staticmethod
    def say(text: str | None, *, delay_s: float = 0.0, usage: Any = USAGE, **choice: Any) -> Behaviour:
        """Answer with `text`; `choice` adds fields such as `logprobs` or `finish_reason`."""

        async def behave(request: web.Request, body: dict[str, Any]) -> web.Response:
            await asyncio.sleep(delay_s)
            message = {"role": "assistant", "content": text}
            return _json(
                {
                    "choices": [{"index": 0, "message": message, "finish_reason": "stop", **choice}],
                    "usage": usage,
                }
            )

        return behave

    @classmethod
    def hold(cls, released: asyncio.Event) -> Behaviour:
        """Answer once `released` is set."""

        async def behave(request: web.Request, body: dict[str, Any]) -> web.StreamResponse:
            await released.wait()
            return await cls.say("hello")(request, body)

        return behave

    @staticmethod
    def fail(status: int, message: str = "out of sorts", **headers: str) -> Behaviour:
        """Answer with an error in OpenAI's form; underscores in header names become hyphens."""

        async def behave(request: web.Request, body: dict[str, Any]) -> web.Response:
            payload = {"error": {"message": message, "type": "error", "code": status}}
            return _json(payload, status, {name.replace("_", "-"): value for name, value in headers.items()})

        return behave

    @staticmethod
    def answer_with(body: bytes) -> Behaviour:
        """Answer 200 with exactly these bytes."""

        async def behave(request: web.Request, _: dict[str, Any]) -> web.Response:
            return web.Response(body=body)

        return behave

    @staticmethod
    async def hang(request: web.Request, body: dict[str, Any]) -> web.StreamResponse:
        """Never answer."""
        await asyncio.sleep(3600)
        raise AssertionError

    @staticmethod
    async def hang_up(request: web.Request, body: dict[str, Any]) -> web.StreamResponse:
        """Close the connection without an answer."""
        assert request.transport is not None
        request.transport.abort()
        return web.Response()


def _json(payload: object, status: int = 200, headers: dict[str, str] | None = None) -> web.Response:
    return web.Response(body=orjson.dumps(payload), status=status, content_type="application/json", headers=headers)


@pytest.fixture
async def servers() -> AsyncIterator[list[FakeOpenAIServer]]:
    """Three healthy servers of one model."""
    started = [FakeOpenAIServer() for _ in range(3)]
    for server in started:
        await server.start()
    yield started
    for server in started:
        await server.stop()


@pytest.fixture
def server(servers: list[FakeOpenAIServer]) -> FakeOpenAIServer:
    return servers[0]


@pytest.fixture
def pauses(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    """The seconds of every pause between two rounds."""
    noted: list[float] = []
    sleep = asyncio.sleep

    async def note(seconds: float) -> None:
        noted.append(seconds)
        await sleep(seconds)

    monkeypatch.setattr("pipeline.net.replicated_client.asyncio", SimpleNamespace(**{**vars(asyncio), "sleep": note}))
    return noted
