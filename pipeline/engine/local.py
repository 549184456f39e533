"""The local executor: every shard in this process, on one event loop."""

from __future__ import annotations

import asyncio
import math
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from pipeline.engine.leases import Leases
from pipeline.engine.metrics import on_port
from pipeline.engine.shard import Barrier, Shard
from pipeline.engine.watch import Watch
from pipeline.engine.worker import Worker
from pipeline.traces.place import Place


async def run_local(
    points: Sequence[Mapping[str, Any]], folder: Place, shards: Iterator[Shard | Barrier], watch: Watch
) -> None:
    """Run the shards; `watch` is told what was opened and of each row as it finishes."""
    port = points[0]["engine"]["metrics_port"]
    with on_port(port, folder.name) as tell:
        async with Worker(points, folder, tell) as worker:
            watch.on_served(worker.served)
            leases = Leases(shards)

            async def lane() -> None:
                while (lease := await leases.take()) is not None:
                    await worker.run(lease.shard, watch.on_progress)
                    await leases.settle(lease)

            async with asyncio.TaskGroup() as group:
                for _ in range(open_shards(points[0]["engine"])):
                    group.create_task(lane())


def open_shards(engine: Mapping[str, Any]) -> int:
    """Shards a worker holds at once: those that fill its slots, and as many that are being read or written."""
    concurrency, shard_size = int(engine["concurrency"]), int(engine["shard_size"])
    return 2 * math.ceil(concurrency / shard_size)
