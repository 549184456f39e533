"""Shards to be done: handed out once, and again when they come back."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Iterator

from pipeline.engine.shard import BARRIER, Barrier, Shard


class Leases:
    """The one queue that every lane of every worker pulls from."""

    def __init__(self, shards: Iterator[Shard | Barrier]) -> None:
        """`shards` is read as it is needed, off the event loop: a dataset may parse as it goes."""
        self._shards = shards
        self._returned: deque[Shard] = deque()
        self._out = 0
        self._at_barrier = False
        self.all_done = asyncio.Event()
        """Set once every shard is done."""
        self._changed = asyncio.Condition()

    async def take(self) -> Shard | None:
        """The next shard; None once every shard is done. Waits while one that is out may still come back."""
        async with self._changed:
            while True:
                shard = self._returned.popleft() if self._returned else await self._next()
                if isinstance(shard, Shard):
                    self._out += 1
                    return shard
                if shard is None and self._out == 0:
                    self.all_done.set()
                    return None
                if self._out:
                    await self._changed.wait()

    async def _next(self) -> Shard | Barrier | None:
        """What comes after those that were handed out; a barrier again and again until all of them are done."""
        if self._at_barrier and self._out:
            return BARRIER
        following = await asyncio.to_thread(next, self._shards, None)
        self._at_barrier = isinstance(following, Barrier)
        return following

    async def settle(self, *, returned: Shard | None = None) -> None:
        """End a lease: its shard is done, or is to be handed out again."""
        async with self._changed:
            self._out -= 1
            if returned is not None:
                self._returned.append(returned)
            self._changed.notify_all()
