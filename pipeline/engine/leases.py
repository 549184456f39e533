"""Shards to be done: handed out once, and again when they come back."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Iterator

from pipeline.engine.shard import Shard


class Leases:
    """The one queue that every lane of every worker pulls from."""

    def __init__(self, shards: Iterator[Shard]) -> None:
        """`shards` is read as it is needed, off the event loop: a dataset may parse as it goes."""
        self._shards = shards
        self._returned: deque[Shard] = deque()
        self._out = 0
        self.all_done = asyncio.Event()
        """Set once every shard is done."""
        self._changed = asyncio.Condition()

    async def take(self) -> Shard | None:
        """The next shard; None once every shard is done. Waits while one that is out may still come back."""
        async with self._changed:
            while True:
                shard = (
                    self._returned.popleft() if self._returned else await asyncio.to_thread(next, self._shards, None)
                )
                if shard is not None:
                    self._out += 1
                    return shard
                if self._out == 0:
                    self.all_done.set()
                    return None
                await self._changed.wait()

    async def settle(self, *, returned: Shard | None = None) -> None:
        """End a lease: its shard is done, or is to be handed out again."""
        async with self._changed:
            self._out -= 1
            if returned is not None:
                self._returned.append(returned)
            self._changed.notify_all()
