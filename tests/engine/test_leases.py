"""The queue of shards: each handed out once, again when it comes back, and an end for everybody."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Iterator

import pytest

from pipeline.engine.leases import Lease, Leases
from pipeline.engine.shard import BARRIER, Barrier, Shard


def shards(count: int) -> Iterator[Shard]:
    return (Shard(index, ()) for index in range(count))


async def take(leases: Leases, worker: object = None) -> Lease:
    lease = await leases.take(worker)
    assert lease is not None
    return lease


async def test_each_shard_is_handed_out_once_in_order() -> None:
    leases = Leases(shards(3))
    taken = [await take(leases) for _ in range(3)]
    assert [lease.shard.index for lease in taken] == [0, 1, 2]
    for lease in taken:
        await leases.settle(lease)
    assert await leases.take() is None
    assert await leases.take() is None


async def test_many_lanes_share_them_without_a_gap_or_a_double() -> None:
    leases = Leases(shards(50))
    done: list[int] = []

    async def lane() -> None:
        while (lease := await leases.take()) is not None:
            await asyncio.sleep(0)
            done.append(lease.shard.index)
            await leases.settle(lease)

    await asyncio.gather(*(lane() for _ in range(8)))
    assert sorted(done) == list(range(50))


async def test_what_comes_back_is_handed_out_before_anything_new() -> None:
    leases = Leases(shards(3))
    first = await take(leases)
    await leases.settle(first, done=False)
    assert (await take(leases)).shard is first.shard
    assert (await take(leases)).shard.index == 1


async def test_nobody_goes_home_while_a_shard_may_still_come_back() -> None:
    leases = Leases(shards(1))
    lease = await take(leases)
    waiting = asyncio.create_task(take(leases))
    await asyncio.to_thread(lambda: None)
    assert not waiting.done()
    await leases.settle(lease, done=False)
    again = await waiting
    assert again.shard is lease.shard
    others = [asyncio.create_task(leases.take()) for _ in range(3)]
    await leases.settle(again)
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
    assert await taking is not None


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
    out = [await take(leases), await take(leases)]
    waiting = asyncio.create_task(take(leases))
    await asyncio.sleep(0.05)
    assert not waiting.done()
    await leases.settle(out[0], done=False)
    again = await asyncio.wait_for(waiting, 5)
    assert again.shard is out[0].shard, "a shard that came back is before the barrier"
    assert read == [0, 1]
    waiting = asyncio.create_task(take(leases))
    await leases.settle(again)
    await leases.settle(out[1])
    assert (await asyncio.wait_for(waiting, 5)).shard.index == 2


async def test_barriers_hold_up_nobody_in_the_end() -> None:
    def source() -> Iterator[Shard | Barrier]:
        for index in range(30):
            yield BARRIER
            yield Shard(index, ())
        yield BARRIER

    leases = Leases(source())
    done: list[int] = []

    async def lane() -> None:
        while (lease := await leases.take()) is not None:
            await asyncio.sleep(0)
            done.append(lease.shard.index)
            await leases.settle(lease)

    await asyncio.wait_for(asyncio.gather(*(lane() for _ in range(5))), 20)
    assert done == list(range(30))


async def test_a_worker_without_work_takes_a_copy_of_what_has_been_out_longest() -> None:
    leases = Leases(shards(4), late=0)
    slow, slower, quick = [await take(leases, worker) for worker in ("slow", "slower", "quick")]
    beaten: list[str] = []
    slow.on_beaten = lambda: beaten.append("slow")
    assert await leases.settle(quick)
    last = await take(leases, "quick")
    assert last.shard.index == 3
    assert await leases.settle(last)
    first_copy, second_copy = await take(leases, "quick"), await take(leases, "quick")
    assert [first_copy.shard, second_copy.shard] == [slow.shard, slower.shard]
    assert await leases.settle(first_copy)
    assert beaten == ["slow"]
    assert not await leases.settle(slow), "the first to finish counts"
    assert await leases.settle(slower)
    assert not leases.all_done.is_set()
    assert await leases.take("quick") is None, "all is done, though a copy is out"
    assert leases.all_done.is_set()
    waiting = asyncio.create_task(leases.all_settled())
    await asyncio.sleep(0)
    assert not waiting.done()
    assert not await leases.settle(second_copy, done=False)
    await waiting


async def test_a_shard_with_a_copy_comes_back_when_both_are_lost() -> None:
    leases = Leases(shards(2), late=0)
    slow, quick = await take(leases, "slow"), await take(leases, "quick")
    await leases.settle(quick)
    copy = await take(leases, "quick")
    assert not await leases.settle(slow, done=False)
    third = asyncio.create_task(take(leases, "slow"))
    await asyncio.sleep(0)
    assert not await leases.settle(copy, done=False)
    again = await third
    assert again.shard is slow.shard
    assert await leases.settle(again)


async def test_no_worker_copies_its_own_shards_nor_one_that_is_not_late() -> None:
    leases = Leases(shards(3), late=1e9)
    for worker in ("one", "one", "other"):
        lease = await take(leases, worker)
    await leases.settle(lease)
    waiting = [asyncio.create_task(leases.take(worker)) for worker in ("one", "other")]
    await asyncio.sleep(0.05)
    assert not any(each.done() for each in waiting)
    for each in waiting:
        each.cancel()


async def test_a_copy_is_handed_out_at_the_moment_that_a_shard_is_late() -> None:
    leases = Leases(shards(2), late=2)
    late, quick = await take(leases, "slow"), await take(leases, "quick")
    await asyncio.sleep(0.02)
    await leases.settle(quick)
    copy = await asyncio.wait_for(take(leases, "quick"), 10)  # nothing else happens that would wake it up
    assert copy.shard is late.shard
    assert copy.since - late.since >= 2 * 0.02
