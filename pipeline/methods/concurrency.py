"""Runs the independent parts of one question concurrently."""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine, Iterable
from typing import Any, TypeVar

from pipeline.errors import BudgetExhausted, OutOfTime

T = TypeVar("T")


async def concurrently(coroutines: Iterable[Coroutine[Any, Any, T]]) -> list[T]:
    """Await all coroutines concurrently and return their results in order.

    The first failure cancels the others. Its exception is raised when they have ended. If a limit of the budget was
    met, other than its time, the others are not cancelled: a call in flight is charged, and its reply is stored.
    """
    # No TaskGroup: before Python 3.13, one that fails leaves its task counted as cancelled, and the deadline around it
    # then raises CancelledError instead of TimeoutError.
    tasks = [asyncio.create_task(coroutine) for coroutine in coroutines]
    try:
        return await asyncio.gather(*tasks)
    except BudgetExhausted as error:
        if not isinstance(error, OutOfTime):
            await asyncio.wait(tasks)
        raise
    finally:
        for task in tasks:
            task.cancel()
        if tasks:
            await asyncio.wait(tasks)
