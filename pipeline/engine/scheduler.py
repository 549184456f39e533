"""Leases shards to workers: each once, again when a worker is lost, and a second time when a shard is late."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import dataclass

from pipeline.engine.shard import Rounds, Shard

_LATE = 2.0
"""A shard is late when it has been leased for this many times the average duration of the finished ones."""


@dataclass(eq=False)
class Lease:
    """A shard that a worker is working on."""

    shard: Shard
    worker: object
    since: float
    """When the lease began, by the clock of the event loop."""
    on_superseded: Callable[[], object] = lambda: None
    """Called when the lease is superseded: another worker has finished the shard first."""


class Scheduler:
    """The one queue from which all workers take their shards: a faster worker gets more of them.

    When no shard is left to lease, a worker without work gets a copy of the shard that has been leased longest, if it
    is late and another worker has it. The first to finish counts. To do a shard twice is harmless.
    """

    def __init__(self, rounds: Rounds, *, late: float = _LATE) -> None:
        """Take the shards. They are read as they are needed, off the event loop: a dataset may parse as it goes."""
        self._rounds = rounds
        self._round: Iterator[Shard] = iter(())
        self._late = late
        self._returned: deque[Shard] = deque()
        self._leased: dict[int, list[Lease]] = {}
        self._superseded = 0
        """Number of superseded leases that have not ended yet."""
        self._done = 0
        self._done_s = 0.0
        self.all_done = asyncio.Event()
        """Set once every shard is done."""
        self._changed = asyncio.Condition()

    async def take(self, worker: object = None) -> Lease | None:
        """Lease the next shard; None once every shard is done.

        Waits while a leased shard may come back, may be late, or must be done before the next round.
        """
        async with self._changed:
            while True:
                shard = self._returned.popleft() if self._returned else await self._next()
                if shard is not None:
                    return self._lease(shard, worker)
                if not self._leased:
                    self.all_done.set()
                    return None
                slowest = self._slowest_of_others(worker)
                due_s = None if slowest is None else slowest.since + self._late * self._done_s / self._done
                if slowest and due_s is not None and _now() >= due_s:
                    return self._lease(slowest.shard, worker)
                await self._wait(until=due_s)

    async def complete(self, lease: Lease, *, done: bool = True) -> bool:
        """End a lease: its shard is done, or returns to the queue. True for the first worker to finish the shard."""
        async with self._changed:
            self._changed.notify_all()
            leases = self._leased.get(lease.shard.index, [])
            if lease not in leases:
                self._superseded -= 1
                return False
            leases.remove(lease)
            if done:
                self._finish(lease, superseded=leases)
            elif not leases:
                del self._leased[lease.shard.index]
                self._returned.append(lease.shard)
            return done

    async def all_settled(self) -> None:
        """Wait until no lease is left, not even a superseded one."""
        async with self._changed:
            await self._changed.wait_for(lambda: not self._leased and not self._superseded)

    def _lease(self, shard: Shard, worker: object) -> Lease:
        lease = Lease(shard, worker, _now())
        self._leased.setdefault(shard.index, []).append(lease)
        return lease

    async def _next(self) -> Shard | None:
        """Read the next shard. None at the end of the run, and at the end of a round while one of its shards is out."""
        while True:
            shard = await asyncio.to_thread(next, self._round, None)
            if shard is not None or self._leased:
                return shard
            following = await asyncio.to_thread(next, self._rounds, None)
            if following is None:
                return None
            self._round = iter(following)

    def _slowest_of_others(self, worker: object) -> Lease | None:
        """Return the oldest lease of another worker on a shard that no second worker has; None before any is done."""
        single = (leases[0] for leases in self._leased.values() if len(leases) == 1)
        others = [lease for lease in single if lease.worker is not worker]
        return min(others, key=lambda lease: lease.since, default=None) if self._done else None

    async def _wait(self, *, until: float | None) -> None:
        """Wait for a change, or until this moment."""
        with suppress(TimeoutError):
            async with asyncio.timeout_at(until):
                await self._changed.wait()

    def _finish(self, lease: Lease, *, superseded: list[Lease]) -> None:
        del self._leased[lease.shard.index]
        self._done += 1
        self._done_s += _now() - lease.since
        self._superseded += len(superseded)
        for other in superseded:
            other.on_superseded()


def _now() -> float:
    return asyncio.get_running_loop().time()
