"""Workers that die are restarted a limited number of times, and each restart is reported."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from ray.exceptions import RayActorError

from pipeline.engine.worker_restarts import WorkerSlot
from pipeline.errors import ServiceError


class FakeProgress:
    """Records what a run's progress is told."""

    def __init__(self) -> None:
        self.opened: list[Any] = []
        self.lines: list[str] = []
        self.on_opened = self.opened.append
        self.say = self.lines.append


class FakeActor:
    """An actor whose components open, or that dies at once."""

    def __init__(self, dies: bool) -> None:
        self.open = self
        self._dies = dies

    async def remote(self) -> list[str]:
        if self._dies:
            raise RayActorError(error_msg="out of memory")
        return ["backends"]


def start(*dies: bool) -> Callable[[], FakeActor]:
    actors: Iterator[FakeActor] = map(FakeActor, dies)
    return lambda: next(actors)


def slot(start: Callable[[], FakeActor], restarts: int, progress: FakeProgress) -> WorkerSlot:
    return WorkerSlot(3, start, restarts, progress)  # type: ignore[arg-type]


async def test_a_dead_worker_is_replaced_once_and_the_restart_is_reported() -> None:
    progress = FakeProgress()
    worker = slot(start(False, False), 2, progress)
    await worker.fill()
    first = worker.actor
    death = RayActorError(error_msg="the node is gone")
    await asyncio.gather(worker.fill(dead=first, error=death), worker.fill(dead=first, error=death))
    assert worker.actor is not first
    assert progress.lines == ["worker 3 died (the node is gone): restart 1 of at most 2"]
    assert len(progress.opened) == 2


async def test_a_worker_that_dies_too_often_ends_the_run_with_the_reason() -> None:
    progress = FakeProgress()
    with pytest.raises(ServiceError) as raised:
        await slot(start(True, True, True), 2, progress).fill()
    assert str(raised.value) == (
        "worker 3 died 3 times, and engine.max_worker_restarts=2 (out of memory). "
        "Run the same command again to continue"
    )
    assert len(progress.lines) == 2
