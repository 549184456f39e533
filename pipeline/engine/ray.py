"""The Ray executor: question workers are actors that pull shard leases. The one place of the engine that imports Ray.

One actor call moves a shard, never a single model call. A lost worker's leases return to the pool and a fresh worker
takes its seat; whoever leases the shard next replays its drafts.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import ray
from ray.exceptions import RayActorError, RayTaskError

from pipeline.engine.cluster import joined
from pipeline.engine.leases import Leases
from pipeline.engine.local import open_shards
from pipeline.engine.shard import Barrier, Progress, Shard
from pipeline.engine.watch import Watch
from pipeline.engine.worker import Served, Worker
from pipeline.errors import ServiceError

_PATIENCE_S = 30
"""How long the first shards wait for all workers."""


async def run_ray(
    points: Sequence[Mapping[str, Any]], folder: Path, shards: Iterator[Shard | Barrier], watch: Watch
) -> None:
    """Run the shards on `engine.workers` actors; `watch` is told of each shard as it finishes.

    `folder` is absolute: workers have a working directory of their own.
    """
    engine = points[0]["engine"]
    with joined(engine):
        leases = Leases(shards)
        seats = [_Seat(points, folder, engine, watch) for _ in range(engine["workers"])]
        async with asyncio.TaskGroup() as group:
            fills = [group.create_task(seat.fill()) for seat in seats]
            await _until_most_are_filled(fills, watch)
            work = [
                group.create_task(_lane(seat, filled, leases, watch))
                for _ in range(open_shards(engine))
                for seat, filled in zip(seats, fills, strict=True)  # in turn: a short run is shared out
            ]
            await leases.all_done.wait()
            for task in (*fills, *work):
                task.cancel()  # those that wait for a worker which is not needed any more


async def _until_most_are_filled(fills: Sequence[asyncio.Task[None]], watch: Watch) -> None:
    """Wait for all workers for a while, then go on with those that there are, and say so."""
    _, waiting = await asyncio.wait(fills, timeout=_PATIENCE_S)
    if waiting:
        watch.say(f"{len(waiting)} of {len(fills)} workers still wait for CPUs of the Ray cluster")
        await asyncio.wait(fills, return_when=asyncio.FIRST_COMPLETED)


class QuestionWorker:
    """The actor: a `Worker` behind remote calls."""

    def __init__(self, points: Sequence[Mapping[str, Any]], folder: Path) -> None:
        """Take what the worker will open."""
        self._worker = Worker(points, folder)

    async def open(self) -> list[Served]:
        """Open the components."""
        await self._worker.__aenter__()
        return self._worker.served

    async def run(self, shard: Shard) -> Progress:
        """Run and commit one shard."""
        total = Progress()

        def add(progress: Progress) -> None:
            nonlocal total
            total = total + progress

        await self._worker.run(shard, add)
        return total


class _Seat:
    """A place for one worker, refilled when its actor is lost."""

    def __init__(
        self, points: Sequence[Mapping[str, Any]], folder: Path, engine: Mapping[str, Any], watch: Watch
    ) -> None:
        self._points = points
        self._folder = folder
        self._engine = engine
        self._watch = watch
        self._lost = 0
        self._filling = asyncio.Lock()
        self.actor: Any = None

    async def fill(self, lost: Any = None) -> None:
        """Start a worker in place of the `lost` one, once, whoever notices first; returns when its components are open.

        Raises UserError for a user's mistake, and ServiceError when workers are lost again and again.
        """
        options = {"num_cpus": self._engine["cpus_per_worker"], "max_concurrency": open_shards(self._engine) + 1}
        async with self._filling:
            if lost is not None and self.actor is lost:
                self._count_loss()
            while self.actor is lost:
                actor = ray.remote(QuestionWorker).options(**options).remote(self._points, self._folder)
                try:
                    self._watch.on_served(await _result(actor.open.remote()))
                    self.actor = actor
                except RayActorError:
                    self._count_loss()

    def _count_loss(self) -> None:
        self._lost += 1
        if self._lost > self._engine["max_replacements"]:
            raise ServiceError(f"a question worker was lost {self._lost} times; the run can be resumed")


async def _lane(seat: _Seat, filled: asyncio.Task[None], leases: Leases, watch: Watch) -> None:
    """Pull leases for one worker, one after the other."""
    await filled
    while (shard := await leases.take()) is not None:
        actor = seat.actor
        try:
            progress = await _result(actor.run.remote(shard))
        except RayActorError:
            await leases.settle(returned=shard)
            await seat.fill(lost=actor)
        else:
            await leases.settle()
            watch.on_progress(progress)


async def _result(reply: Any) -> Any:
    """What an actor's call returns or raises: a user's mistake reads as it would without Ray."""
    try:
        return await reply
    except RayTaskError as error:
        raise error.cause from None
