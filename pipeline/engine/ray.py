"""The Ray executor: question workers are actors that lease shards from the driver's scheduler.

One actor call runs a shard, never a single model call. When a worker dies, its leases return to the scheduler and its
slot starts a new one, on any node with room (`worker_restarts.py`); the next worker of the shard replays the journal.
"""

from __future__ import annotations

import asyncio
import sys
import time
from collections.abc import Mapping, Sequence
from contextlib import ExitStack, redirect_stdout, suppress
from functools import partial
from typing import Any

import ray
from ray.exceptions import RayActorError, TaskCancelledError
from ray.util.client import ray as client

from pipeline.engine.cluster import accepts_connections, joined
from pipeline.engine.components import Backends
from pipeline.engine.logs import json_lines
from pipeline.engine.metrics import emit_through_ray
from pipeline.engine.open_shards import most_open_shards, shards_that_fit
from pipeline.engine.progress import LOOK_S, RunProgress
from pipeline.engine.scheduler import Lease, Scheduler
from pipeline.engine.shard import Rounds, Shard
from pipeline.engine.worker import Worker
from pipeline.engine.worker_reports import FinishedRows, Standing
from pipeline.engine.worker_restarts import WorkerSlot, result_of
from pipeline.errors import ServiceError, UserError
from pipeline.text import counted
from pipeline.traces.folder import RunFolder
from pipeline.traces.storage import StoragePath

_START_WAIT_S = 30
"""Seconds that the first shards wait for all workers to start."""
_STARTING = "they are still starting, or the Ray cluster has no room for them"
_NODE_CHECK_S = 5
"""Seconds between two looks whether the driver's own node and the head are alive."""
_HEAD_WAIT_S = 30
"""Seconds that the head may be away. After 60, Ray itself ends the process, with words that name no next step."""
_SHUTDOWN_WAIT_S = 10
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
    with redirect_stdout(sys.stderr), joined(engine) as is_own:  # Ray prints there that a worker has died
        lacking = _lacking_resources(engine)
        if is_own and lacking:
            raise UserError(
                f"engine.resources names {lacking}, which the Ray cluster that is started here does not have: name a "
                "cluster that has it (engine.address), or leave it out"
            )
        scheduler = Scheduler(rounds)
        start = partial(_start, actor or QuestionWorker, configs, folder, engine)
        slots = [
            WorkerSlot(number, start, engine["max_worker_restarts"], progress)
            for number in range(1, engine["workers"] + 1)
        ]
        async with asyncio.TaskGroup() as group:
            watch = group.create_task(_watch_cluster())
            fills = [group.create_task(slot.fill()) for slot in slots]
            await _wait_for_workers(fills, progress, lacking)
            looks = []
            if actor is None:
                await _say_missing_nodes(slots, progress)
                looks.append(group.create_task(_show_standing(slots, progress)))
            work = group.create_task(_run_shards(slots, fills, scheduler, progress, fitting=shards_that_fit(engine)))
            await scheduler.all_done.wait()
            await asyncio.wait([asyncio.create_task(scheduler.all_settled())], timeout=_SHUTDOWN_WAIT_S)
            for task in (*fills, *looks, work, watch):
                task.cancel()  # they wait for a worker that is not needed any more


async def _watch_cluster() -> None:
    """Raise ServiceError when the node of this process, or the head of the cluster, is gone.

    Without its node, Ray starts no worker, and reports no error.
    """
    context = ray.get_runtime_context()
    own = context.get_node_id()
    head = None if client.is_connected() else context.gcs_address  # ray://… is not the address of the head
    away_since: float | None = None
    while True:
        await asyncio.sleep(_NODE_CHECK_S)
        if head and not await accepts_connections(head):  # asked first: without a head, `_living_nodes` does not return
            away_since = away_since or time.monotonic()
            if time.monotonic() - away_since > _HEAD_WAIT_S:
                raise ServiceError(
                    f"the head of the Ray cluster, {head}, has accepted no connection for {_HEAD_WAIT_S} seconds (was "
                    "its process killed, or has its machine stopped?). Run the same command again to continue"
                )
            continue
        away_since = None
        if own not in await asyncio.to_thread(_living_nodes):
            raise ServiceError(
                "the Ray node of this machine has ended (was its process killed, or was the memory full?). Run the "
                "same command again to continue"
            )


def _living_nodes() -> set[str]:
    """Return the ids of the cluster's nodes that are alive."""
    return {node["NodeID"] for node in ray.nodes() if node["Alive"]}


def _lacking_resources(engine: Mapping[str, Any]) -> str:
    """Return the names of `engine.resources` that no node of the cluster has at present; empty if all are there."""
    return ", ".join(sorted((engine["resources"] or {}).keys() - ray.cluster_resources().keys()))


async def _wait_for_workers(fills: Sequence[asyncio.Task[None]], progress: RunProgress, lacking: str) -> None:
    """Wait a limited time for all workers, then for at least one, and report how many are missing.

    `lacking` are resources that a node has to bring.
    """
    _, waiting = await asyncio.wait(fills, timeout=_START_WAIT_S)
    if waiting:
        missing = f"{len(waiting)} of {counted(len(fills), 'worker')}"
        reason = f"no node of the Ray cluster has {lacking} (engine.resources)" if lacking else _STARTING
        progress.say(f"{missing} not started yet: {reason}")
        await asyncio.wait(fills, return_when=asyncio.FIRST_COMPLETED)


async def _say_missing_nodes(slots: Sequence[WorkerSlot], progress: RunProgress) -> None:
    """Print what one of the workers misses in the graph."""
    opened = next(slot.actor for slot in slots if slot.actor is not None)
    with suppress(RayActorError):  # the task that runs its shards reports it
        for line in await result_of(opened.missing_nodes.remote()):
            progress.say(line)


async def _show_standing(slots: Sequence[WorkerSlot], progress: RunProgress) -> None:
    """Tell the progress bar again and again what the workers are doing. One that does not answer is left out."""

    async def look(slot: WorkerSlot) -> Standing:
        with suppress(RayActorError, TimeoutError):
            return await asyncio.wait_for(result_of(slot.actor.standing.remote()), LOOK_S)
        return Standing()

    while True:
        await asyncio.sleep(LOOK_S)
        standings = await asyncio.gather(*(look(slot) for slot in slots if slot.actor is not None))
        progress.on_standing(Standing.of_all(standings))


class QuestionWorker:
    """The actor: a `Worker` that is called remotely."""

    def __init__(self, configs: Sequence[Mapping[str, Any]], folder: StoragePath) -> None:
        """Take the configurations that the worker will open."""
        worker = ray.get_runtime_context().get_worker_id()
        self._logging = ExitStack()  # open until the actor ends
        self._logging.enter_context(json_lines(configs[0]["engine"], run=folder.name, worker=worker))
        self._worker = Worker(configs, folder, emit_through_ray(folder.name))
        self._folder = RunFolder(folder)
        self._open: dict[int, list[FinishedRows]] = {}
        """The finished rows of the shards that are being run."""

    async def open(self) -> list[Backends]:
        """Open the components."""
        await self._worker.__aenter__()
        return self._worker.backends

    async def missing_nodes(self) -> list[str]:
        """Return a sentence for each kind of nodes that questions name and their graph does not have."""
        return await self._worker.missing_nodes()

    async def wait_for_room(self) -> None:
        """Return when this worker should run another shard."""
        await self._worker.wait_for_room()

    async def standing(self) -> Standing:
        """Return what waits long, and how many rows of unfinished shards have finished."""
        rows = {shard: sum(each.questions for each in finished) for shard, finished in self._open.items()}
        return self._worker.standing()._replace(open_rows=rows)

    async def run(self, shard: Shard) -> FinishedRows:
        """Run and commit one shard. If cancelled because another worker has committed it, remove its journals."""
        finished = self._open[shard.index] = []
        try:
            await self._worker.run(shard, finished.append)
        except asyncio.CancelledError:
            await asyncio.to_thread(self._folder.clear_journals, shard.index)
            raise
        finally:
            del self._open[shard.index]
        return sum(finished, FinishedRows())


def _start(kind: type, configs: Sequence[Mapping[str, Any]], folder: StoragePath, engine: Mapping[str, Any]) -> Any:
    """Start an actor on the least used of the nodes with enough resources."""
    actor = ray.remote(kind).options(
        num_cpus=engine["cpus_per_worker"],
        resources=engine["resources"],
        scheduling_strategy="SPREAD",
        max_concurrency=most_open_shards(engine["concurrency"], engine["shard_size"]) + 2,  # and two questions about it
    )
    return actor.remote(configs, folder)


async def _run_shards(
    slots: Sequence[WorkerSlot],
    fills: Sequence[asyncio.Task[None]],
    scheduler: Scheduler,
    progress: RunProgress,
    *,
    fitting: int,
) -> None:
    """Run shards on all workers until none is left. A worker with `fitting` shards is asked whether it has room."""
    async with asyncio.TaskGroup() as group:

        async def lease(slot: WorkerSlot, filled: asyncio.Task[None]) -> None:
            """Lease shards as long as the worker of the slot has room for them."""
            await filled
            running: set[asyncio.Task[None]] = set()
            while True:
                if len(running) >= fitting:
                    await _wait_for_room(slot)
                if (leased := await scheduler.take(slot)) is None:
                    return
                task = group.create_task(_run(slot, leased, scheduler, progress))
                running.add(task)
                task.add_done_callback(running.discard)

        for slot, filled in zip(slots, fills, strict=True):
            group.create_task(lease(slot, filled))


async def _wait_for_room(slot: WorkerSlot) -> None:
    """Return when the worker of a slot should run another shard. Restarts a worker that dies meanwhile."""
    while True:
        actor = slot.actor
        try:
            await result_of(actor.wait_for_room.remote())
        except RayActorError as error:
            await slot.fill(dead=actor, error=error)
        else:
            return


async def _run(slot: WorkerSlot, lease: Lease, scheduler: Scheduler, progress: RunProgress) -> None:
    """Run a shard on the worker of a slot, or return it to the scheduler if the worker dies."""
    actor = slot.actor
    reply = actor.run.remote(lease.shard)
    lease.on_superseded = partial(ray.cancel, reply)
    try:
        finished = await result_of(reply)
    except TaskCancelledError:
        await scheduler.complete(lease, done=False)
    except RayActorError as error:
        await scheduler.complete(lease, done=False)
        await slot.fill(dead=actor, error=error)
    else:
        if await scheduler.complete(lease):
            progress.on_progress(finished)
