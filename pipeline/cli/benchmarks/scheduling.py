"""Shards per second that the coordinator hands out: the limit of a cluster of very many workers."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from pipeline import config
from pipeline.cli.benchmarks.world import refuse
from pipeline.console import Console
from pipeline.engine.components import Backends
from pipeline.engine.progress import RunProgress
from pipeline.engine.ray import run_ray
from pipeline.engine.scheduler import Scheduler
from pipeline.engine.shard import Shard
from pipeline.engine.worker_reports import FinishedRows
from pipeline.traces.storage import StoragePath


class IdleWorker:
    """An actor that finishes every shard immediately."""

    def __init__(self, points: Sequence[Mapping[str, Any]], folder: StoragePath) -> None: ...

    async def open(self) -> list[Backends]:
        """Open nothing."""
        return []

    async def wait_for_room(self) -> None:
        """Return at once."""

    async def run(self, shard: Shard) -> FinishedRows:
        """Do nothing."""
        return FinishedRows(len(shard.examples))


def scheduling(shards: int = 4_000) -> dict[str, float]:
    """Shards per second through Ray actors that do nothing, with empty and with full shards, and without Ray."""
    composed = config.compose(["engine=ray", "dataset.triples=1000", "dataset.questions=32"])
    examples = tuple(config.build("dataset", composed).examples(refuse))
    empty = [Shard(index, ()) for index in range(shards)]
    full = [Shard(index, examples) for index in range(shards)]
    figures = {
        "leases_per_s": _rate_through_ray(composed, empty),
        "full_leases_per_s": _rate_through_ray(composed, full),
        "leases_without_ray_per_s": asyncio.run(_rate_of_queue(empty)),
    }
    figures["ray_to_queue"] = figures["leases_per_s"] / figures["leases_without_ray_per_s"]
    figures["full_to_empty"] = figures["full_leases_per_s"] / figures["leases_per_s"]
    return figures


class _Timed(RunProgress):
    """Records when each shard is done."""

    def __init__(self) -> None:
        super().__init__(Console(quiet=True), total=0, on_opened=lambda _: None, confidence=0.95)
        self.times: list[float] = []

    def on_progress(self, progress: FinishedRows) -> None:
        self.times.append(time.perf_counter())


def _rate_through_ray(settings: Mapping[str, Any], shards: Sequence[Shard]) -> float:
    watch = _Timed()
    asyncio.run(run_ray([settings], Path(), iter([shards]), watch, actor=IdleWorker))
    return _rate(watch.times)


async def _rate_of_queue(shards: Sequence[Shard], lanes: int = 8) -> float:
    scheduler, times = Scheduler(iter([shards])), list[float]()

    async def lane() -> None:
        while (lease := await scheduler.take()) is not None:
            await scheduler.complete(lease)
            times.append(time.perf_counter())

    await asyncio.gather(*(lane() for _ in range(lanes)))
    return _rate(times)


def _rate(times: Sequence[float]) -> float:
    """Return the shards per second, without the first tenth as warm-up."""
    warm = len(times) // 10
    return (len(times) - 1 - warm) / (times[-1] - times[warm])
