"""A model server that limits the rate of requests: calls wait for their turn, and other failures still count."""

from __future__ import annotations

import asyncio
import time
from typing import Any

import pytest
from aiohttp import web

from pipeline.errors import ServiceError
from tests.llm.conftest import Behaviour, FakeOpenAIServer
from tests.llm.support import call, model
from tests.support import until


def limiting(**headers: str) -> Behaviour:
    """Answer at most five calls in 0.2 seconds, and the others with status 429 and these headers."""
    answered: list[float] = []

    async def behave(request: web.Request, body: dict[str, Any]) -> web.StreamResponse:
        now = time.monotonic()
        if sum(now - moment < 0.2 for moment in answered) >= 5:
            return await FakeOpenAIServer.fail(429, "slow down", **headers)(request, body)
        answered.append(now)
        return await FakeOpenAIServer.say("hello")(request, body)

    return behave


@pytest.mark.parametrize("headers", [{}, {"Retry_After": "0.1"}], ids=["no pause named", "a pause named"])
async def test_calls_wait_for_their_turn(server: FakeOpenAIServer, headers: dict[str, str]) -> None:
    """However many wait, and however few further rounds there are: the server answers others, so a turn comes."""
    server.default = limiting(**headers)
    async with model(server, max_retries=1, backoff_s=0.01, max_backoff_s=1.0) as llm:
        completions = await asyncio.gather(*(llm.complete(call(str(number))) for number in range(80)))
    assert [completion.text for completion in completions] == ["hello"] * 80
    assert len(server.bodies) > 80, "else it limited nothing"


async def test_no_more_calls_than_allowed_are_at_a_server(servers: list[FakeOpenAIServer]) -> None:
    """The other calls wait, however long, and then take a slot: the time-out of a call begins with its slot."""
    at_work: dict[FakeOpenAIServer, list[int]] = {each: [0, 0] for each in servers}

    def counting(server: FakeOpenAIServer) -> Behaviour:
        async def behave(request: web.Request, body: dict[str, Any]) -> web.StreamResponse:
            now, _ = at_work[server]
            at_work[server] = [now + 1, max(now + 1, at_work[server][1])]
            try:
                return await server.say("hello", delay_s=0.05)(request, body)
            finally:
                at_work[server][0] -= 1

        return behave

    for server in servers:
        server.default = counting(server)
    async with model(*servers, max_inflight=2, timeout_s=0.3) as llm:
        completions = await asyncio.gather(*(llm.complete(call(str(number))) for number in range(60)))
    assert [completion.text for completion in completions] == ["hello"] * 60
    assert [most for _, most in at_work.values()] == [2] * len(servers)


async def test_calls_that_wait_for_a_slot_heed_the_pause_that_another_was_asked_for(server: FakeOpenAIServer) -> None:
    server.behaviours = [server.fail(429, "slow down", Retry_After=pause) for pause in ("0.3", "0.5")]
    async with model(server, max_inflight=1, backoff_s=0.01, max_backoff_s=1.0) as llm:
        completions = await asyncio.gather(*(llm.complete(call(str(number))) for number in range(5)))
        assert [completion.text for completion in completions] == ["hello"] * 5
    assert len(server.bodies) == 7, "nobody was sent away besides the first and the one after it"


@pytest.mark.parametrize("failing", ["hang", "rest"])
async def test_calls_that_wait_for_a_slot_go_to_the_server_that_answers(
    servers: list[FakeOpenAIServer], failing: str
) -> None:
    """They wait for no server in particular: of one that hangs or asks for a pause, they take no notice."""
    first, second, _ = servers
    first.default = first.hang if failing == "hang" else first.fail(429, "slow down", Retry_After="600")
    options = {"timeout_s": 0.3, "breaker_failures": 2, "max_inflight": 1, "max_backoff_s": 60.0}
    async with model(first, second, **options) as llm:
        asked = asyncio.gather(*(llm.complete(call(str(number))) for number in range(24)))
        assert {each.text for each in await asyncio.wait_for(asked, 20)} == {"hello"}
    assert len(first.bodies) <= 2


async def test_a_call_that_is_cancelled_while_it_waits_for_a_slot_blocks_nobody(server: FakeOpenAIServer) -> None:
    released = asyncio.Event()
    server.default = server.hold(released)
    async with model(server, max_inflight=1) as llm:
        calls = [asyncio.create_task(llm.complete(call(str(number)))) for number in range(6)]
        await server.asked(1)
        for task in calls[1:4]:
            task.cancel()
        released.set()
        done = await asyncio.gather(*calls, return_exceptions=True)
    assert [isinstance(each, asyncio.CancelledError) for each in done] == [False, True, True, True, False, False]


@pytest.mark.parametrize(("status", "tried"), [(500, 2), (400, 1)])
async def test_another_failure_counts(server: FakeOpenAIServer, status: int, tried: int) -> None:
    """Neither the pauses nor the answers to others excuse a call that fails for itself."""
    limited = limiting(Retry_After="0.1")

    async def behave(request: web.Request, body: dict[str, Any]) -> web.StreamResponse:
        if "bad" in str(body["messages"]):
            return await server.fail(status, "cannot do that")(request, body)
        return await limited(request, body)

    server.default = behave
    options = {"max_retries": 1, "backoff_s": 0.01, "max_backoff_s": 1.0, "breaker_failures": 99}
    async with model(server, **options) as llm:
        others = [asyncio.create_task(llm.complete(call(str(number)))) for number in range(40)]
        await server.asked(10)
        with pytest.raises(ServiceError, match=rf"tried {tried} times?\).*cannot do that"):
            await llm.complete(call("bad"))
        assert not all(task.done() for task in others), "else nobody waited"
        assert {(await task).text for task in others} == {"hello"}


async def test_a_server_that_is_down_is_not_said_to_limit_its_rate(
    server: FakeOpenAIServer, caplog: pytest.LogCaptureFixture
) -> None:
    """The calls that waited for its pause cannot be sent, because of what others have found since."""
    server.default = server.fail(429, "slow down", Retry_After="0.5")
    async with model(server, max_retries=1, backoff_s=2.0, max_backoff_s=2.0, breaker_failures=1) as llm:
        first = asyncio.create_task(llm.complete(call("first")))
        await until(lambda: "asks for its requests later" in caplog.text)
        others = [asyncio.create_task(llm.complete(call(str(number)))) for number in range(12)]
        await server.stop()
        errors = await asyncio.gather(first, *others, return_exceptions=True)
    assert all(isinstance(error, ServiceError) and "Connect" in str(error) for error in errors), errors
    assert any("could be asked" in str(error) for error in errors), "else each call has found it for itself"


async def test_a_server_that_asks_all_for_later_is_asked_only_in_so_many_rounds(server: FakeOpenAIServer) -> None:
    async with model(server, max_retries=2, max_backoff_s=0.05) as llm:
        assert (await llm.complete(call())).text == "hello"
        await asyncio.sleep(0.1)
        server.default = server.fail(429, "slow down")
        with pytest.raises(ServiceError, match=r"tried 3 times\); last failure: .* answered 429: slow down"):
            await llm.complete(call("later"))
    assert len(server.bodies) == 4
