"""Running the independent parts of one question at the same time."""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine, Iterable
from typing import Any, TypeVar

T = TypeVar("T")


async def concurrently(parts: Iterable[Coroutine[Any, Any, T]]) -> list[T]:
    """Await all parts at once and return their results in order.

    The first part to fail cancels the others, and its exception is raised as it is, not wrapped in a group.
    """
    try:
        async with asyncio.TaskGroup() as group:
            tasks = [group.create_task(part) for part in parts]
    except BaseExceptionGroup as failures:
        raise failures.exceptions[0] from None
    return [task.result() for task in tasks]
