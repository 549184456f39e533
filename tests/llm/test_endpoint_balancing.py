"""Several model servers: which one gets a call, and servers that join and leave."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from typing import Any

import pytest

from pipeline.errors import ServiceError
from pipeline.llm.endpoint import EndpointModel
from tests.llm.support import call, model
from tests.support import until


class TestBalancing:
    async def test_load_is_spread_evenly(self, servers: list[Any]) -> None:
        for server in servers:
            server.default = server.say("hello", delay_s=0.1)
        async with model(*servers) as llm:
            await asyncio.gather(*(llm.complete(call(f"question {number}")) for number in range(300)))
        shares = [len(server.bodies) for server in servers]
        assert sum(shares) == 300
        assert min(shares) >= 75

    async def test_a_slow_server_gets_less(self, servers: list[Any]) -> None:
        slow, *quick = servers
        slow.default = slow.say("hello", delay_s=0.2)
        for server in quick:
            server.default = server.say("hello", delay_s=0.01)

        async def worker(llm: EndpointModel, name: int) -> None:
            for number in range(10):
                await llm.complete(call(f"{name}/{number}"))

        async with model(*servers) as llm:
            await asyncio.gather(*(worker(llm, name) for name in range(12)))
        assert len(slow.bodies) < min(len(server.bodies) for server in quick)

    async def test_the_calls_of_a_question_go_to_one_server(self, servers: list[Any]) -> None:
        async with model(*servers) as llm:
            homes = await self.homes(llm, servers)
            assert all(len(home) == 1 for home in homes.values())
            assert len(set.union(*homes.values())) > 1
            left = servers[0].url
            llm.follow([server.url for server in servers[1:]], ())
            moved = await self.homes(llm, servers[1:])
        stayed = {name for name, home in homes.items() if home != {left}}
        assert {name for name in homes if moved[name] == homes[name]} == stayed

    async def test_without_affinity_a_question_has_no_server_of_its_own(self, servers: list[Any]) -> None:
        async with model(*servers, question_affinity=False) as llm:
            homes = await self.homes(llm, servers)
        assert any(len(home) > 1 for home in homes.values())

    @staticmethod
    async def homes(llm: EndpointModel, servers: list[Any]) -> dict[str, set[str]]:
        """The servers that got the calls of each question."""
        for server in servers:
            server.bodies.clear()
        names = [f"question {number}" for number in range(24)]
        for name in names:
            for number in range(5):
                await llm.complete(replace(call(f"{name}: {number}"), question=name))
        asked = {server.url: str(server.bodies) for server in servers}
        return {name: {url for url, bodies in asked.items() if f"{name}:" in bodies} for name in names}

    async def test_a_busy_server_leaves_its_questions_to_others(self, servers: list[Any]) -> None:
        released = asyncio.Event()
        for server in servers:
            server.default = server.hold(released)
        async with model(*servers) as llm:
            calls = [replace(call(str(number)), question="one") for number in range(60)]
            answering = [asyncio.create_task(llm.complete(each)) for each in calls]
            await until(lambda: sum(len(server.bodies) for server in servers) == 60)
            released.set()
            await asyncio.gather(*answering)
        assert min(len(server.bodies) for server in servers) > 10

    async def test_connections_are_kept_and_not_capped(self, server: Any) -> None:
        released = asyncio.Event()
        server.default = server.hold(released)
        async with model(server) as llm:
            calls = [asyncio.create_task(llm.complete(call(str(number)))) for number in range(200)]
            await server.asked(200)  # aiohttp's default limit is 100 connections
            released.set()
            await asyncio.gather(*calls)
            for _ in range(20):
                await llm.complete(call())
        assert len(server.connections) == 200


class TestJoiningAndLeaving:
    async def test_calls_to_a_server_that_is_gone_are_sent_to_another(self, servers: list[Any]) -> None:
        gone, other, _ = servers
        gone.default = gone.hang
        async with model(gone) as llm:
            calls = [asyncio.create_task(llm.complete(call(str(number)))) for number in range(20)]
            await gone.asked(20)
            llm.follow([other.url], ())
            assert {completion.text for completion in await asyncio.gather(*calls)} == {"hello"}
        assert len(other.bodies) == 20

    async def test_a_leaving_server_answers_its_calls_and_gets_no_others(self, servers: list[Any]) -> None:
        leaving, other, _ = servers
        released = asyncio.Event()
        leaving.default = leaving.hold(released)
        async with model(leaving) as llm:
            first = asyncio.create_task(llm.complete(call("first")))
            await leaving.asked(1)
            llm.follow([other.url], [leaving.url])
            await llm.complete(call("second"))
            released.set()
            assert (await first).text == "hello"
            assert {stats.url for stats in llm.server_stats} == {leaving.url, other.url}
            llm.follow([other.url], ())
            assert {stats.url for stats in llm.server_stats} == {other.url}
        assert (len(leaving.bodies), len(other.bodies)) == (1, 1)

    async def test_calls_wait_for_a_server_while_there_is_none(self, servers: list[Any], pauses: list[float]) -> None:
        first, second, _ = servers
        first.default = first.hang
        async with model(first, max_retries=1) as llm:
            calls = [asyncio.create_task(llm.complete(call(str(number)))) for number in range(5)]
            await first.asked(5)
            llm.follow((), ())
            calls.append(asyncio.create_task(llm.complete(call("asked while there is none"))))
            await asyncio.sleep(0.1)
            llm.follow([second.url], ())
            assert {completion.text for completion in await asyncio.gather(*calls)} == {"hello"}

    async def test_without_a_server_for_long_a_call_fails(self, server: Any, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr("pipeline.net.replicated_client._ABSENCE_S", 0.05)
        async with model(server) as llm:
            llm.follow((), ())
            with pytest.raises(ServiceError, match=r"no model server has joined for 0\.05 s"):
                await llm.complete(call())
