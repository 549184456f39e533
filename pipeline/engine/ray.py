"""The Ray executor: question workers are actors that lease shards from the driver's scheduler.

One actor call runs a shard, never a single model call. When a worker is lost, its leases return to the scheduler and a
new worker takes its seat, on any node with room; the next worker of the shard replays the journal. A seat without room
waits for a node to join, while the other workers continue.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack
from functools import partial
from typing import Any

import ray
from ray.exceptions import RayActorError, RayTaskError, TaskCancelledError

from pipeline.engine.cluster import joined
from pipeline.engine.components import Backends
from pipeline.engine.local import open_shards
from pipeline.engine.logs import json_lines
from pipeline.engine.metrics import emit_through_ray
from pipeline.engine.progress import RunProgress
from pipeline.engine.scheduler import Scheduler
from pipeline.engine.shard import Progress, Rounds, Shard
from pipeline.engine.worker import Worker
from pipeline.errors import ServiceError
from pipeline.traces.folder import RunFolder
from pipeline.traces.storage import StoragePath

_PATIENCE_S = 30
"""Seconds that the first shards wait for all workers to start."""
_PARTING_S = 10
"""Seconds that the end of a run waits for workers to drop superseded shards."""


async def run_ray(
    configs: Sequence[Mapping[str, Any]],
    folder: StoragePath,
    rounds: Rounds,
    progress: RunProgress,
    *,
    actor: type | None = None,
) -> None:
    """Run the shards of each round on `engine.workers` actors.

    Args:
        configs: The resolved configurations.
        folder: The run folder, absolute: workers have a working directory of their own.
        rounds: The shards to run.
        progress: Gets the opened backends, and the rows of each finished shard.
        actor: Replaces `QuestionWorker` in benchmarks of the scheduling itself.
    """
    engine = configs[0]["engine"]
    with joined(engine):
        scheduler = Scheduler(rounds)
        start = partial(_start, actor or QuestionWorker, configs, folder, engine)
        seats = [_Seat(start, engine["max_worker_restarts"], progress) for _ in range(engine["workers"])]
        async with asyncio.TaskGroup() as group:
            fills = [group.create_task(seat.fill()) for seat in seats]
            await _wait_for_workers(fills, progress)
            work = [
                group.create_task(_lane(seat, filled, scheduler, progress))
                for _ in range(open_shards(engine))
                for seat, filled in zip(seats, fills, strict=True)  # in turn, so that a short run uses all workers
            ]
            await scheduler.all_done.wait()
            await asyncio.wait([asyncio.create_task(scheduler.all_settled())], timeout=_PARTING_S)
            for task in (*fills, *work):
                task.cancel()  # they wait for a worker that is not needed any more


async def _wait_for_workers(fills: Sequence[asyncio.Task[None]], progress: RunProgress) -> None:
    """Wait a limited time for all workers, then for at least one, and report how many are missing."""
    _, waiting = await asyncio.wait(fills, timeout=_PATIENCE_S)
    if waiting:
        progress.say(f"{len(waiting)} of {len(fills)} workers still wait for room in the Ray cluster")
        await asyncio.wait(fills, return_when=asyncio.FIRST_COMPLETED)


class QuestionWorker:
    """The actor: a `Worker` that is called remotely."""

    def __init__(self, configs: Sequence[Mapping[str, Any]], folder: StoragePath) -> None:
        """Take the configurations that the worker will open."""
        worker = ray.get_runtime_context().get_worker_id()
        self._logging = ExitStack()  # open until the actor ends
        self._logging.enter_context(json_lines(configs[0]["engine"], run=folder.name, worker=worker))
        self._worker = Worker(configs, folder, emit_through_ray(folder.name))
        self._folder = RunFolder(folder)

    async def open(self) -> list[Backends]:
        """Open the components."""
        await self._worker.__aenter__()
        return self._worker.backends

    async def run(self, shard: Shard) -> Progress:
        """Run and commit one shard. If cancelled because another worker has committed it, remove its journals."""
        finished: list[Progress] = []
        try:
            await self._worker.run(shard, finished.append)
        except asyncio.CancelledError:
            await asyncio.to_thread(self._folder.clear_journals, shard.index)
            raise
        return sum(finished, Progress())


def _start(kind: type, configs: Sequence[Mapping[str, Any]], folder: StoragePath, engine: Mapping[str, Any]) -> Any:
    """Start an actor on the least used of the nodes with enough resources."""
    actor = ray.remote(kind).options(
        num_cpus=engine["cpus_per_worker"],
        resources=engine["resources"],
        scheduling_strategy="SPREAD",
        max_concurrency=open_shards(engine) + 1,
    )
    return actor.remote(configs, folder)


class _Seat:
    """Holds one worker, and replaces it when its actor is lost."""

    def __init__(self, start: Callable[[], Any], max_worker_restarts: int, progress: RunProgress) -> None:
        self._start = start
        self._max_restarts = max_worker_restarts
        self._progress = progress
        self._lost = 0
        self._filling = asyncio.Lock()
        self.actor: Any = None

    async def fill(self, lost: Any = None, error: RayActorError | None = None) -> None:
        """Replace the `lost` worker, and return when the new one has opened its components.

        Several lanes may report the same loss: the worker is replaced once. Raises UserError for a wrong configuration,
        and ServiceError when more workers are lost than `engine.max_worker_restarts`.
        """
        async with self._filling:
            if lost is not None and self.actor is lost:
                self._count_loss(error)
            while self.actor is lost:
                actor = self._start()
                try:
                    self._progress.on_opened(await _result(actor.open.remote()))
                    self.actor = actor
                except RayActorError as lost_at_once:
                    self._count_loss(lost_at_once)

    def _count_loss(self, error: RayActorError | None) -> None:
        self._lost += 1
        if self._lost > self._max_restarts:
            last = str(error).strip().splitlines()[-1].strip()
            raise ServiceError(f"a question worker was lost {self._lost} times; the run can be resumed ({last})")


async def _lane(seat: _Seat, filled: asyncio.Task[None], scheduler: Scheduler, progress: RunProgress) -> None:
    """Run one shard after the other on the worker of a seat."""
    await filled
    while (lease := await scheduler.take(seat)) is not None:
        actor = seat.actor
        reply = actor.run.remote(lease.shard)
        lease.on_superseded = partial(ray.cancel, reply)
        try:
            finished = await _result(reply)
        except TaskCancelledError:
            await scheduler.complete(lease, done=False)
        except RayActorError as error:
            await scheduler.complete(lease, done=False)
            await seat.fill(lost=actor, error=error)
        else:
            if await scheduler.complete(lease):
                progress.on_progress(finished)


async def _result(reply: Any) -> Any:
    """Return what a call of an actor returns, or raise its own exception instead of the one that Ray wraps it in."""
    try:
        return await reply
    except RayTaskError as error:
        raise error.cause from None
