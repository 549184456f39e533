"""The Ray executor: question workers are actors that pull shard leases. The one place of the engine that imports Ray.

One actor call moves a shard, never a single model call. A lost worker's leases return to the pool and a fresh worker
takes its seat, on whatever node has room; whoever leases the shard next replays its drafts. A seat without room waits
for a node that joins, while the others work.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack
from functools import partial
from typing import Any

import ray
from ray.exceptions import RayActorError, RayTaskError, TaskCancelledError

from pipeline.engine.cluster import joined
from pipeline.engine.leases import Leases
from pipeline.engine.local import open_shards
from pipeline.engine.logs import json_lines
from pipeline.engine.metrics import through_ray
from pipeline.engine.shard import Barrier, Progress, Shard
from pipeline.engine.watch import Watch
from pipeline.engine.worker import Served, Worker
from pipeline.errors import ServiceError
from pipeline.traces.folder import RunFolder
from pipeline.traces.place import Place

_PATIENCE_S = 30
"""How long the first shards wait for all workers."""
_PARTING_S = 10
"""How long the end of a run waits for workers to drop the shards that others have done."""


async def run_ray(
    points: Sequence[Mapping[str, Any]],
    folder: Place,
    shards: Iterator[Shard | Barrier],
    watch: Watch,
    *,
    actor: type | None = None,
) -> None:
    """Run the shards on `engine.workers` actors; `watch` is told of each shard as it finishes.

    `folder` is absolute: workers have a working directory of their own. `actor` is what runs in place of
    `QuestionWorker` when the handing out itself is measured.
    """
    engine = points[0]["engine"]
    with joined(engine):
        leases = Leases(shards)
        start = partial(_start, actor or QuestionWorker, points, folder, engine)
        seats = [_Seat(start, engine["max_replacements"], watch) for _ in range(engine["workers"])]
        async with asyncio.TaskGroup() as group:
            fills = [group.create_task(seat.fill()) for seat in seats]
            await _until_most_are_filled(fills, watch)
            work = [
                group.create_task(_lane(seat, filled, leases, watch))
                for _ in range(open_shards(engine))
                for seat, filled in zip(seats, fills, strict=True)  # in turn: a short run is shared out
            ]
            await leases.all_done.wait()
            await asyncio.wait([asyncio.create_task(leases.all_settled())], timeout=_PARTING_S)
            for task in (*fills, *work):
                task.cancel()  # those that wait for a worker which is not needed any more


async def _until_most_are_filled(fills: Sequence[asyncio.Task[None]], watch: Watch) -> None:
    """Wait for all workers for a while, then go on with those that there are, and say so."""
    _, waiting = await asyncio.wait(fills, timeout=_PATIENCE_S)
    if waiting:
        watch.say(f"{len(waiting)} of {len(fills)} workers still wait for room in the Ray cluster")
        await asyncio.wait(fills, return_when=asyncio.FIRST_COMPLETED)


class QuestionWorker:
    """The actor: a `Worker` behind remote calls."""

    def __init__(self, points: Sequence[Mapping[str, Any]], folder: Place) -> None:
        """Take what the worker will open."""
        worker = ray.get_runtime_context().get_worker_id()
        self._logging = ExitStack()  # for as long as the actor lives
        self._logging.enter_context(json_lines(points[0]["engine"], run=folder.name, worker=worker))
        self._worker = Worker(points, folder, through_ray(folder.name))
        self._folder = RunFolder(folder)

    async def open(self) -> list[Served]:
        """Open the components."""
        await self._worker.__aenter__()
        return self._worker.served

    async def run(self, shard: Shard) -> Progress:
        """Run and commit one shard; cancelled once another worker has committed it, leave nothing of it behind."""
        total = Progress()

        def add(progress: Progress) -> None:
            nonlocal total
            total = total + progress

        try:
            await self._worker.run(shard, add)
        except asyncio.CancelledError:
            await asyncio.to_thread(self._folder.clear_drafts, shard.index)
            raise
        return total


def _start(kind: type, points: Sequence[Mapping[str, Any]], folder: Place, engine: Mapping[str, Any]) -> Any:
    """A new actor, on the node with the fewest of those that have what it takes."""
    actor = ray.remote(kind).options(
        num_cpus=engine["cpus_per_worker"],
        resources=engine["resources"],
        scheduling_strategy="SPREAD",
        max_concurrency=open_shards(engine) + 1,
    )
    return actor.remote(points, folder)


class _Seat:
    """A place for one worker, refilled when its actor is lost."""

    def __init__(self, start: Callable[[], Any], max_replacements: int, watch: Watch) -> None:
        self._start = start
        self._max_replacements = max_replacements
        self._watch = watch
        self._lost = 0
        self._filling = asyncio.Lock()
        self.actor: Any = None

    async def fill(self, lost: Any = None, error: RayActorError | None = None) -> None:
        """Start a worker in place of the `lost` one, once, whoever notices first; returns when its components are open.

        Raises UserError for a user's mistake, and ServiceError when workers are lost again and again.
        """
        async with self._filling:
            if lost is not None and self.actor is lost:
                self._count_loss(error)
            while self.actor is lost:
                actor = self._start()
                try:
                    self._watch.on_served(await _result(actor.open.remote()))
                    self.actor = actor
                except RayActorError as lost_at_once:
                    self._count_loss(lost_at_once)

    def _count_loss(self, error: RayActorError | None) -> None:
        self._lost += 1
        if self._lost > self._max_replacements:
            last = str(error).strip().splitlines()[-1].strip()
            raise ServiceError(f"a question worker was lost {self._lost} times; the run can be resumed ({last})")


async def _lane(seat: _Seat, filled: asyncio.Task[None], leases: Leases, watch: Watch) -> None:
    """Pull leases for one worker, one after the other."""
    await filled
    while (lease := await leases.take(seat)) is not None:
        actor = seat.actor
        reply = actor.run.remote(lease.shard)
        lease.on_beaten = partial(ray.cancel, reply)
        try:
            progress = await _result(reply)
        except TaskCancelledError:
            await leases.settle(lease, done=False)
        except RayActorError as error:
            await leases.settle(lease, done=False)
            await seat.fill(lost=actor, error=error)
        else:
            if await leases.settle(lease):
                watch.on_progress(progress)


async def _result(reply: Any) -> Any:
    """What an actor's call returns or raises: a user's mistake reads as it would without Ray."""
    try:
        return await reply
    except RayTaskError as error:
        raise error.cause from None
