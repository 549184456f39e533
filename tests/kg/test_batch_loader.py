"""Lookups are batched, deduplicated and cached, and their queries are counted."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence

import pytest

from pipeline.errors import ServiceError
from pipeline.kg.batch_loader import BatchLoader
from pipeline.kg.interface import Batch, batch
from tests.support import until


class Server:
    """A server that answers with the length of each key and records the keys."""

    def __init__(self) -> None:
        self.asked: list[list[str]] = []
        self.answer = asyncio.Event()
        self.answer.set()
        self.broken = False

    async def fetch(self, keys: Sequence[str]) -> Batch[str, int]:
        self.asked.append(list(keys))
        await self.answer.wait()
        if self.broken:
            raise ServiceError("down")
        return batch({key: len(key) for key in keys}, queries=1, endpoint="http://one")


def lookup(
    server: Server, *, batch_size: int = 100, window_s: float = 0.01, cache_size: int = 1000
) -> BatchLoader[str, int]:
    return BatchLoader(server.fetch, batch_size=batch_size, window_s=window_s, cache_size=cache_size)


async def test_lookups_of_many_questions_become_one_query() -> None:
    server = Server()
    lengths = lookup(server)
    batches = await asyncio.gather(*(lengths([f"{number:03}", "shared"]) for number in range(40)))
    assert len(server.asked) == 1
    assert sorted(server.asked[0]) == sorted({f"{number:03}" for number in range(40)} | {"shared"})
    assert sum(batch.queries for batch in batches) == 1
    assert all(batch["shared"] == 6 and batch.endpoint == "http://one" for batch in batches)


async def test_a_full_batch_is_sent_immediately() -> None:
    server = Server()
    batch = await asyncio.wait_for(lookup(server, batch_size=3, window_s=3600)(["a", "b", "c", "d", "e", "f"]), 10)
    assert server.asked == [["a", "b", "c"], ["d", "e", "f"]]
    assert batch.queries == 2


async def test_values_have_the_order_of_the_keys_without_duplicates() -> None:
    batch = await lookup(Server())(["bb", "a", "bb", "ccc"])
    assert list(batch.items()) == [("bb", 2), ("a", 1), ("ccc", 3)]


async def test_a_key_of_a_running_query_is_not_asked_again() -> None:
    server = Server()
    server.answer.clear()
    lengths = lookup(server)
    first = asyncio.create_task(lengths(["a"]))
    await until(lambda: server.asked)
    second = asyncio.create_task(lengths(["a"]))
    await asyncio.sleep(0.03)
    server.answer.set()
    assert (await first).queries == 1
    assert (await second).queries == 0
    assert server.asked == [["a"]]


async def test_cached_values_cost_no_query() -> None:
    server = Server()
    lengths = lookup(server)
    await lengths(["", "a"])
    again = await lengths(["a", ""])
    assert (again, again.queries, again.endpoint) == ({"a": 1, "": 0}, 0, None)
    assert len(server.asked) == 1


async def test_the_cache_is_bounded_and_drops_the_least_recently_used_value() -> None:
    server = Server()
    lengths = lookup(server, cache_size=2)
    await lengths(["a", "b"])
    await lengths(["a"])
    await lengths(["c"])
    assert (await lengths(["a", "c"])).queries == 0
    assert (await lengths(["b"])).queries == 1


async def test_a_failure_is_raised_in_all_waiting_calls_and_not_cached() -> None:
    server = Server()
    server.broken = True
    lengths = lookup(server)
    results = await asyncio.gather(lengths(["a"]), lengths(["a", "b"]), return_exceptions=True)
    assert all(isinstance(result, ServiceError) for result in results)
    server.broken = False
    assert await lengths(["a"]) == {"a": 1}


async def test_a_cancelled_call_does_not_affect_the_others() -> None:
    server = Server()
    server.answer.clear()
    lengths = lookup(server)
    leaving, staying = asyncio.create_task(lengths(["a"])), asyncio.create_task(lengths(["a"]))
    await asyncio.sleep(0.03)
    leaving.cancel()
    server.answer.set()
    assert await staying == {"a": 1}


async def test_closing_cancels_running_queries() -> None:
    server = Server()
    server.answer.clear()
    lengths = lookup(server)
    waiting = asyncio.create_task(lengths(["a"]))
    await asyncio.sleep(0.03)
    await lengths.close()
    with pytest.raises(asyncio.CancelledError):
        await waiting
