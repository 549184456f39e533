"""A request that is sent to two servers: each of its failures counts, for the server that it was of."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine

import pytest

from pipeline.errors import RequestRefused, ServiceError
from pipeline.net import replicated_client
from pipeline.net.attempts import AttemptFailed, RetryPolicy
from pipeline.net.replicated_client import ReplicatedClient
from pipeline.net.server import Server

Behaviour = Callable[[], Coroutine[None, None, str]]
POLICY = RetryPolicy(rounds=2, backoff_s=0.01, max_backoff_s=0.01, max_failures=9, recovery_s=9)


class Scripted(ReplicatedClient[None, str]):
    """A client of servers that are functions of the test. It connects to nothing."""

    def __init__(self, *behaviours: Behaviour) -> None:
        super().__init__("graph", map(str, range(len(behaviours))), POLICY, max_reply_mb=1, hedge_quantile=0.9)
        self._behaviours = dict(zip(self.servers, behaviours, strict=True))
        self.asked: list[str] = []

    def session_options(self) -> dict[str, str]:
        return {}

    async def attempt(self, request: None, server: Server) -> str:
        self.asked.append(server.url)
        server.outstanding += 1
        try:
            return await self._behaviours[server]()
        finally:
            server.outstanding -= 1


def fails(after_s: float, **how: bool) -> Behaviour:
    async def behave() -> str:
        await asyncio.sleep(after_s)
        raise AttemptFailed(f"{how}", **how)  # type: ignore[arg-type]

    return behave


def answers(after_s: float) -> Behaviour:
    async def behave() -> str:
        await asyncio.sleep(after_s)
        return "answered"

    return behave


@pytest.fixture(autouse=True)
def _soon(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(replicated_client, "_FIRST_HEDGE_S", 0.02)
    monkeypatch.setattr(replicated_client, "_load", lambda server: (server.outstanding, int(server.url)))


async def test_a_request_that_is_too_slow_for_two_servers_is_sent_to_each_once() -> None:
    client = Scripted(fails(0.2, too_slow=True), fails(0.2, too_slow=True), answers(0))
    with pytest.raises(ServiceError, match="too_slow"):
        await client.send(None)
    assert client.asked == ["0", "1"]


async def test_the_server_that_refused_is_not_asked_again_and_the_other_one_is() -> None:
    client = Scripted(fails(0.05), fails(0.05, refused=True))
    with pytest.raises(ServiceError) as raised:
        await client.send(None)
    assert not isinstance(raised.value, RequestRefused)
    assert client.asked == ["0", "1", "0"]


async def test_a_slow_request_gets_the_first_reply() -> None:
    client = Scripted(answers(9), fails(0.01))
    sending = asyncio.create_task(client.send(None))
    await asyncio.sleep(0.1)
    assert client.asked == ["0", "1"]
    assert not sending.done(), "the first server may answer yet"
    sending.cancel()
    assert await Scripted(answers(9), answers(0)).send(None) == "answered"
