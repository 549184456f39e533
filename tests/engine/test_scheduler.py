"""The scheduler: each shard is leased once, again when it returns, and every lane ends."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Iterator

import pytest

from pipeline.engine.scheduler import Lease, Scheduler
from pipeline.engine.shard import Shard


def one_round(count: int) -> Iterator[list[Shard]]:
    return iter([[Shard(index, ()) for index in range(count)]])


async def take(scheduler: Scheduler, worker: object = None) -> Lease:
    lease = await scheduler.take(worker)
    assert lease is not None
    return lease


async def test_each_shard_is_leased_once_in_order() -> None:
    scheduler = Scheduler(one_round(3))
    taken = [await take(scheduler) for _ in range(3)]
    assert [lease.shard.index for lease in taken] == [0, 1, 2]
    for lease in taken:
        await scheduler.complete(lease)
    assert await scheduler.take() is None
    assert await scheduler.take() is None


async def test_many_lanes_run_every_shard_exactly_once() -> None:
    scheduler = Scheduler(one_round(50))
    done: list[int] = []

    async def lane() -> None:
        while (lease := await scheduler.take()) is not None:
            await asyncio.sleep(0)
            done.append(lease.shard.index)
            await scheduler.complete(lease)

    await asyncio.gather(*(lane() for _ in range(8)))
    assert sorted(done) == list(range(50))


async def test_a_returned_shard_is_leased_before_any_new_one() -> None:
    scheduler = Scheduler(one_round(3))
    first = await take(scheduler)
    await scheduler.complete(first, done=False)
    assert (await take(scheduler)).shard is first.shard
    assert (await take(scheduler)).shard.index == 1


async def test_no_lane_ends_while_a_shard_may_still_return() -> None:
    scheduler = Scheduler(one_round(1))
    lease = await take(scheduler)
    waiting = asyncio.create_task(take(scheduler))
    await asyncio.to_thread(lambda: None)
    assert not waiting.done()
    await scheduler.complete(lease, done=False)
    again = await waiting
    assert again.shard is lease.shard
    others = [asyncio.create_task(scheduler.take()) for _ in range(3)]
    await scheduler.complete(again)
    assert await asyncio.gather(*others) == [None, None, None]


async def test_a_run_without_shards_ends_at_once() -> None:
    assert await Scheduler(one_round(0)).take() is None


async def test_reading_the_dataset_does_not_block_the_loop() -> None:
    """The reader waits for an event that only a running loop sets."""
    going_on = threading.Event()

    def slow() -> Iterator[Shard]:
        going_on.wait()
        yield Shard(0, ())

    scheduler = Scheduler(iter([slow()]))
    taking = asyncio.create_task(scheduler.take())
    asyncio.get_running_loop().call_soon(going_on.set)
    assert await taking is not None


async def test_an_error_of_the_dataset_reaches_the_caller() -> None:
    def broken() -> Iterator[Shard]:
        yield Shard(0, ())
        raise ValueError("row 17")

    scheduler = Scheduler(iter([broken()]))
    await scheduler.take()
    with pytest.raises(ValueError, match="row 17"):
        await scheduler.take()


async def test_a_round_is_requested_only_when_every_shard_of_the_last_one_is_done() -> None:
    requested: list[int] = []

    def rounds() -> Iterator[list[Shard]]:
        for number in range(3):
            requested.append(number)
            yield [Shard(2 * number, ()), Shard(2 * number + 1, ())]

    scheduler = Scheduler(rounds())
    out = [await take(scheduler), await take(scheduler)]
    waiting = asyncio.create_task(take(scheduler))
    await asyncio.sleep(0.05)
    assert not waiting.done()
    await scheduler.complete(out[0], done=False)
    again = await asyncio.wait_for(waiting, 5)
    assert again.shard is out[0].shard, "a returned shard belongs to its round"
    assert requested == [0]
    waiting = asyncio.create_task(take(scheduler))
    await scheduler.complete(again)
    await scheduler.complete(out[1])
    assert (await asyncio.wait_for(waiting, 5)).shard.index == 2


async def test_rounds_of_one_shard_and_empty_rounds_delay_no_lane_forever() -> None:
    def rounds() -> Iterator[list[Shard]]:
        for index in range(30):
            yield []
            yield [Shard(index, ())]
        yield []

    scheduler = Scheduler(rounds())
    done: list[int] = []

    async def lane() -> None:
        while (lease := await scheduler.take()) is not None:
            await asyncio.sleep(0)
            done.append(lease.shard.index)
            await scheduler.complete(lease)

    await asyncio.wait_for(asyncio.gather(*(lane() for _ in range(5))), 20)
    assert done == list(range(30))


async def test_a_worker_without_work_gets_a_copy_of_the_oldest_lease() -> None:
    scheduler = Scheduler(one_round(4), late=0)
    slow, slower, quick = [await take(scheduler, worker) for worker in ("slow", "slower", "quick")]
    superseded: list[str] = []
    slow.on_superseded = lambda: superseded.append("slow")
    assert await scheduler.complete(quick)
    last = await take(scheduler, "quick")
    assert last.shard.index == 3
    assert await scheduler.complete(last)
    first_copy, second_copy = await take(scheduler, "quick"), await take(scheduler, "quick")
    assert [first_copy.shard, second_copy.shard] == [slow.shard, slower.shard]
    assert await scheduler.complete(first_copy)
    assert superseded == ["slow"]
    assert not await scheduler.complete(slow), "the first to finish counts"
    assert await scheduler.complete(slower)
    assert not scheduler.all_done.is_set()
    assert await scheduler.take("quick") is None, "all is done, although a copy is still leased"
    assert scheduler.all_done.is_set()
    waiting = asyncio.create_task(scheduler.all_settled())
    await asyncio.sleep(0)
    assert not waiting.done()
    assert not await scheduler.complete(second_copy, done=False)
    await waiting


async def test_a_shard_with_a_copy_returns_when_both_are_lost() -> None:
    scheduler = Scheduler(one_round(2), late=0)
    slow, quick = await take(scheduler, "slow"), await take(scheduler, "quick")
    await scheduler.complete(quick)
    copy = await take(scheduler, "quick")
    assert not await scheduler.complete(slow, done=False)
    third = asyncio.create_task(take(scheduler, "slow"))
    await asyncio.sleep(0)
    assert not await scheduler.complete(copy, done=False)
    again = await third
    assert again.shard is slow.shard
    assert await scheduler.complete(again)


async def test_no_worker_copies_its_own_shards_or_shards_that_are_not_late() -> None:
    scheduler = Scheduler(one_round(3), late=1e9)
    for worker in ("one", "one", "other"):
        lease = await take(scheduler, worker)
    await scheduler.complete(lease)
    waiting = [asyncio.create_task(scheduler.take(worker)) for worker in ("one", "other")]
    await asyncio.sleep(0.05)
    assert not any(each.done() for each in waiting)
    for each in waiting:
        each.cancel()


async def test_a_copy_is_leased_as_soon_as_a_shard_is_late() -> None:
    scheduler = Scheduler(one_round(2), late=2)
    late, quick = await take(scheduler, "slow"), await take(scheduler, "quick")
    await asyncio.sleep(0.02)
    await scheduler.complete(quick)
    copy = await asyncio.wait_for(take(scheduler, "quick"), 10)  # no other event would wake it up
    assert copy.shard is late.shard
    assert copy.since - late.since >= 2 * 0.02
