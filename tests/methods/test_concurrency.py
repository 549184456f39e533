"""The parts of a question that run concurrently."""

from __future__ import annotations

import asyncio

import pytest

from pipeline.methods.concurrency import concurrently


async def give(number: int) -> int:
    await asyncio.sleep(0)
    return number


async def test_the_results_are_in_order() -> None:
    assert await concurrently(give(number) for number in (3, 1, 2)) == [3, 1, 2]
    assert await concurrently(give(number) for number in ()) == []


async def test_a_failure_ends_the_others_and_leaves_the_deadline_in_force() -> None:
    ended = asyncio.Event()

    async def fail() -> None:
        await asyncio.sleep(0)
        raise ValueError("a part failed")

    async def wait() -> None:
        try:
            await asyncio.Event().wait()
        finally:
            ended.set()

    async def fail_and_wait() -> None:
        async with asyncio.timeout(0.02):
            with pytest.raises(ValueError, match="a part failed"):
                await concurrently([fail(), wait()])
            assert ended.is_set()
            await asyncio.Event().wait()

    with pytest.raises(TimeoutError):
        await fail_and_wait()
