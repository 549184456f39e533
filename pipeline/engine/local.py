"""The local executor: every shard in this process, on one event loop."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from typing import Any

from pipeline.engine.metrics import serve_metrics
from pipeline.engine.progress import LOOK_S, RunProgress
from pipeline.engine.scheduler import Lease, Scheduler
from pipeline.engine.shard import Rounds
from pipeline.engine.worker import Worker
from pipeline.traces.storage import StoragePath


async def run_local(
    configs: Sequence[Mapping[str, Any]], folder: StoragePath, rounds: Rounds, progress: RunProgress
) -> None:
    """Run the shards of each round. Reports the opened backends and each finished row to `progress`."""
    engine = configs[0]["engine"]
    with serve_metrics(engine["metrics_port"], folder.name) as emit:
        async with Worker(configs, folder, emit) as worker:
            progress.on_opened(worker.backends)
            for line in await worker.missing_nodes():
                progress.say(line)
            scheduler = Scheduler(rounds)
            watching = asyncio.create_task(_show_standing(worker, progress))
            try:
                async with asyncio.TaskGroup() as group:
                    while (lease := await _next(worker, scheduler)) is not None:
                        group.create_task(_run(worker, lease, scheduler, progress))
            finally:
                watching.cancel()


async def _next(worker: Worker, scheduler: Scheduler) -> Lease | None:
    """Lease a shard when the worker has room for it; None once every shard is done."""
    await worker.wait_for_room()
    return await scheduler.take()


async def _run(worker: Worker, lease: Lease, scheduler: Scheduler, progress: RunProgress) -> None:
    await worker.run(lease.shard, progress.on_progress)
    await scheduler.complete(lease)


async def _show_standing(worker: Worker, progress: RunProgress) -> None:
    """Tell the progress bar again and again what waits long for a reply."""
    while True:
        await asyncio.sleep(LOOK_S)
        progress.on_standing(worker.standing())
