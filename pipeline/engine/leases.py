"""Shards to be done: handed out once, again when they come back, and twice when one is late."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable, Iterator
from dataclasses import dataclass

from pipeline.engine.shard import BARRIER, Barrier, Shard

_LATE = 2.0
"""A shard is late once it has been out for so many times as long as those that are done were on average."""


@dataclass(eq=False)
class Lease:
    """A shard in the hands of a worker."""

    shard: Shard
    worker: object
    since: float
    """When it was handed out, by the clock of the event loop."""
    on_beaten: Callable[[], object] = lambda: None
    """Called when another worker has done the shard first."""


class Leases:
    """The one queue that every lane of every worker pulls from: the faster a worker, the more it gets.

    When there is nothing left to hand out, a worker without work gets a copy of the shard that has been out longest, if
    that is late and another worker's. The first to finish it counts; to do a shard twice does no harm.
    """

    def __init__(self, shards: Iterator[Shard | Barrier], *, late: float = _LATE) -> None:
        """`shards` is read as it is needed, off the event loop: a dataset may parse as it goes."""
        self._shards = shards
        self._late = late
        self._returned: deque[Shard] = deque()
        self._out: dict[int, list[Lease]] = {}
        self._beaten = 0
        self._done = 0
        self._done_s = 0.0
        self._at_barrier = False
        self.all_done = asyncio.Event()
        """Set once every shard is done."""
        self._changed = asyncio.Condition()

    async def take(self, worker: object = None) -> Lease | None:
        """The next shard; None once every shard is done. Waits while one that is out may come back, or be late."""
        async with self._changed:
            while True:
                shard = self._returned.popleft() if self._returned else await self._next()
                if isinstance(shard, Shard):
                    return self._lend(shard, worker)
                if shard is None and not self._out:
                    self.all_done.set()
                    return None
                if self._out:
                    slowest = self._slowest_of_others(worker)
                    due_s = None if slowest is None else slowest.since + self._late * self._done_s / self._done
                    if slowest and due_s is not None and _now() >= due_s:
                        return self._lend(slowest.shard, worker)
                    await self._wait(until=due_s)

    def _lend(self, shard: Shard, worker: object) -> Lease:
        lease = Lease(shard, worker, _now())
        self._out.setdefault(shard.index, []).append(lease)
        return lease

    async def _next(self) -> Shard | Barrier | None:
        """What comes after those that were handed out; a barrier again and again until all of them are done."""
        if self._at_barrier and self._out:
            return BARRIER
        following = await asyncio.to_thread(next, self._shards, None)
        self._at_barrier = isinstance(following, Barrier)
        return following

    def _slowest_of_others(self, worker: object) -> Lease | None:
        """The oldest lease of another worker whose shard nobody else has; None before any shard is done."""
        single = (leases[0] for leases in self._out.values() if len(leases) == 1)
        others = [lease for lease in single if lease.worker is not worker]
        return min(others, key=lambda lease: lease.since, default=None) if self._done else None

    async def _wait(self, *, until: float | None) -> None:
        """Wait for a change, or for this moment."""
        try:
            async with asyncio.timeout_at(until):
                await self._changed.wait()
        except TimeoutError:
            pass

    async def settle(self, lease: Lease, *, done: bool = True) -> bool:
        """End a lease: its shard is done, or comes back. True for the first to have done it."""
        async with self._changed:
            self._changed.notify_all()
            leases = self._out.get(lease.shard.index, [])
            if lease not in leases:
                self._beaten -= 1
                return False
            leases.remove(lease)
            if done:
                self._finish(lease, beaten=leases)
            elif not leases:
                del self._out[lease.shard.index]
                self._returned.append(lease.shard)
            return done

    def _finish(self, lease: Lease, *, beaten: list[Lease]) -> None:
        del self._out[lease.shard.index]
        self._done += 1
        self._done_s += _now() - lease.since
        self._beaten += len(beaten)
        for other in beaten:
            other.on_beaten()

    async def all_settled(self) -> None:
        """Wait until those that were beaten have given up, too."""
        async with self._changed:
            await self._changed.wait_for(lambda: not self._out and not self._beaten)


def _now() -> float:
    return asyncio.get_running_loop().time()
