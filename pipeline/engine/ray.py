"""The Ray executor: question workers are actors that pull shard leases. The one place of the engine that imports Ray.

One actor call moves a shard, never a single model call. A lost worker's leases return to the pool and a fresh worker
takes its seat; whoever leases the shard next replays its drafts.
"""

from __future__ import annotations

import asyncio
import os
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import ray
from ray.exceptions import RayActorError, RayTaskError

from pipeline.engine.leases import Leases
from pipeline.engine.local import open_shards
from pipeline.engine.shard import Progress, Shard
from pipeline.engine.watch import Watch
from pipeline.engine.worker import Served, Worker
from pipeline.errors import ServiceError


async def run_ray(points: Sequence[Mapping[str, Any]], folder: Path, shards: Iterator[Shard], watch: Watch) -> None:
    """Run the shards on `engine.workers` actors; `watch` is told of each shard as it finishes.

    `folder` is absolute: workers have a working directory of their own.
    """
    engine = points[0]["engine"]
    started = _connect(engine)
    try:
        seats = [_Seat(points, folder, engine) for _ in range(engine["workers"])]
        served = await asyncio.gather(*(seat.fill() for seat in seats))
        watch.on_served(served[0])
        leases = Leases(shards)
        async with asyncio.TaskGroup() as group:
            for _ in range(open_shards(engine)):
                for seat in seats:  # in turn: a short run is shared out, not taken by the first
                    group.create_task(_lane(seat, leases, watch))
    finally:
        if started:
            ray.shutdown()


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

    def __init__(self, points: Sequence[Mapping[str, Any]], folder: Path, engine: Mapping[str, Any]) -> None:
        self._points = points
        self._folder = folder
        self._engine = engine
        self._replacements = 0
        self._filling = asyncio.Lock()
        self.actor: Any = None

    async def fill(self) -> list[Served]:
        """Start a worker and wait until its components are open."""
        options = {"num_cpus": self._engine["cpus_per_worker"], "max_concurrency": open_shards(self._engine) + 1}
        actor = ray.remote(QuestionWorker).options(**options).remote(self._points, self._folder)
        try:
            served: list[Served] = await actor.open.remote()
        except RayTaskError as error:
            raise error.cause from None  # a user's mistake reads as it would without Ray
        self.actor = actor
        return served

    async def refill(self, lost: Any) -> None:
        """Replace the lost actor, once, whoever notices first."""
        async with self._filling:
            if self.actor is not lost:
                return
            self._replacements += 1
            if self._replacements > self._engine["max_replacements"]:
                raise ServiceError(f"a question worker was lost {self._replacements} times; the run can be resumed")
            await self.fill()


async def _lane(seat: _Seat, leases: Leases, watch: Watch) -> None:
    """Pull leases for one worker, one after the other."""
    while (shard := await leases.take()) is not None:
        actor = seat.actor
        try:
            progress = await actor.run.remote(shard)
        except RayActorError:
            await leases.settle(returned=shard)
            await seat.refill(actor)
        else:
            await leases.settle()
            watch.on_progress(progress)


def _connect(engine: Mapping[str, Any]) -> bool:
    """Join the configured cluster or the one this job runs on, else start one here. True when it is ours to stop."""
    if ray.is_initialized():
        return False
    quiet = {"log_to_driver": False, "logging_level": "ERROR"}
    if engine["address"] or os.environ.get("RAY_ADDRESS"):
        ray.init(address=engine["address"], **quiet)
    else:
        cpus = max(os.cpu_count() or 1, round(engine["workers"] * engine["cpus_per_worker"]))
        # "local": a cluster that somebody else started on this machine is theirs.
        ray.init("local", num_cpus=cpus, include_dashboard=False, _node_ip_address="127.0.0.1", **quiet)
    return True
