"""The queue of shards: each handed out once, again when it comes back, and an end for everybody."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Iterator

import pytest

from pipeline.engine.leases import Leases
from pipeline.engine.shard import BARRIER, Barrier, Shard


def shards(count: int) -> Iterator[Shard]:
    return (Shard(index, ()) for index in range(count))


async def test_each_shard_is_handed_out_once_in_order() -> None:
    leases = Leases(shards(3))
    taken = [await leases.take() for _ in range(3)]
    assert [shard.index for shard in taken if shard] == [0, 1, 2]
    for _ in taken:
        await leases.settle()
    assert await leases.take() is None
    assert await leases.take() is None


async def test_many_lanes_share_them_without_a_gap_or_a_double() -> None:
    leases = Leases(shards(50))
    done: list[int] = []

    async def lane() -> None:
        while (shard := await leases.take()) is not None:
            await asyncio.sleep(0)
            done.append(shard.index)
            await leases.settle()

    await asyncio.gather(*(lane() for _ in range(8)))
    assert sorted(done) == list(range(50))


async def test_what_comes_back_is_handed_out_before_anything_new() -> None:
    leases = Leases(shards(3))
    first = await leases.take()
    await leases.settle(returned=first)
    assert await leases.take() is first
    second = await leases.take()
    assert second is not None
    assert second.index == 1


async def test_nobody_goes_home_while_a_shard_may_still_come_back() -> None:
    leases = Leases(shards(1))
    shard = await leases.take()
    waiting = asyncio.create_task(leases.take())
    await asyncio.to_thread(lambda: None)
    assert not waiting.done()
    await leases.settle(returned=shard)
    assert await waiting is shard
    others = [asyncio.create_task(leases.take()) for _ in range(3)]
    await leases.settle()
    assert await asyncio.gather(*others) == [None, None, None]


async def test_no_shards_at_all() -> None:
    assert await Leases(shards(0)).take() is None


async def test_reading_the_dataset_does_not_block_the_loop() -> None:
    """The reader waits for something that only happens if the loop goes on."""
    going_on = threading.Event()

    def slow() -> Iterator[Shard]:
        going_on.wait()
        yield Shard(0, ())

    leases = Leases(slow())
    taking = asyncio.create_task(leases.take())
    asyncio.get_running_loop().call_soon(going_on.set)
    shard = await taking
    assert shard is not None


async def test_what_is_wrong_with_the_dataset_gets_out() -> None:
    def broken() -> Iterator[Shard]:
        yield Shard(0, ())
        raise ValueError("row 17")

    leases = Leases(broken())
    await leases.take()
    with pytest.raises(ValueError, match="row 17"):
        await leases.take()


async def test_nothing_beyond_a_barrier_is_handed_out_before_all_before_it_is_done() -> None:
    read: list[int] = []

    def source() -> Iterator[Shard | Barrier]:
        for index in range(6):
            if index in (2, 4):
                yield BARRIER
            read.append(index)
            yield Shard(index, ())

    leases = Leases(source())
    out = [await leases.take(), await leases.take()]
    waiting = asyncio.create_task(leases.take())
    await asyncio.sleep(0.05)
    assert not waiting.done()
    await leases.settle(returned=out[0])
    again = await asyncio.wait_for(waiting, 5)
    assert again is out[0], "a shard that came back is before the barrier"
    assert read == [0, 1]
    waiting = asyncio.create_task(leases.take())
    await leases.settle()
    await leases.settle()
    third = await asyncio.wait_for(waiting, 5)
    assert third is not None
    assert third.index == 2


async def test_barriers_hold_up_nobody_in_the_end() -> None:
    def source() -> Iterator[Shard | Barrier]:
        for index in range(30):
            yield BARRIER
            yield Shard(index, ())
        yield BARRIER

    leases = Leases(source())
    done: list[int] = []

    async def lane() -> None:
        while (shard := await leases.take()) is not None:
            await asyncio.sleep(0)
            done.append(shard.index)
            await leases.settle()

    await asyncio.wait_for(asyncio.gather(*(lane() for _ in range(5))), 20)
    assert done == list(range(30))
