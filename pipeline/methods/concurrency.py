"""Runs the independent parts of one question concurrently."""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine, Iterable
from typing import Any, TypeVar

T = TypeVar("T")


async def concurrently(coroutines: Iterable[Coroutine[Any, Any, T]]) -> list[T]:
    """Await all coroutines concurrently and return their results in order.

    The first failure cancels the others. Its exception is raised directly, not inside an exception group.
    """
    try:
        async with asyncio.TaskGroup() as group:
            tasks = [group.create_task(coroutine) for coroutine in coroutines]
    except BaseExceptionGroup as failures:
        raise failures.exceptions[0] from None
    return [task.result() for task in tasks]
