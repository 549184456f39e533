"""Replies that are written together: those that wait when a thread is free, as far as they are alike."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import NamedTuple

from pipeline.llm.embedded.reply import Reply

_MOST = 16
"""Replies in a batch."""

_APART = 32
"""Tokens by which their prompts differ at most: what some have more than the shortest is read token by token."""


class _Waiting(NamedTuple):
    reply: Reply
    done: asyncio.Future[None]


class Batches:
    """Has replies written, batch by batch, in threads of its own; all else happens on the event loop."""

    def __init__(self, write: Callable[[Sequence[Reply]], None], threads: int) -> None:
        """`write` takes replies with the same `wanted` one round further."""
        self._write = write
        self._threads = threads
        self._pool = ThreadPoolExecutor(threads, thread_name_prefix="llama")
        self._waiting: list[_Waiting] = []
        self._working: set[asyncio.Task[None]] = set()

    async def finish(self, reply: Reply) -> None:
        """Return when the reply is done; whoever is cancelled here leaves the others of its batch alone."""
        done = asyncio.get_running_loop().create_future()
        self._waiting.append(_Waiting(reply, done))
        if len(self._working) < self._threads:
            self._working.add(asyncio.create_task(self._work()))
        await done

    async def close(self) -> None:
        """Wait for the batches that are being written, and begin no other."""
        for working in self._working:
            working.cancel()
        await asyncio.to_thread(self._pool.shutdown)

    async def _work(self) -> None:
        """Write until nothing waits."""
        await asyncio.sleep(0)  # calls that are made together come together
        while batch := self._next():
            try:
                replies = [waiting.reply for waiting in batch]
                await asyncio.get_running_loop().run_in_executor(self._pool, self._write, replies)
            except Exception as error:  # noqa: BLE001 — whatever it is, each of them has to be told
                for waiting in batch:
                    if not waiting.done.done():
                        waiting.done.set_exception(error)
            else:
                self._settle(batch)
        self._working -= {asyncio.current_task()}  # at once: a call that comes now has to find a place free

    def _settle(self, batch: Sequence[_Waiting]) -> None:
        for waiting in batch:
            if waiting.reply.finish_reason is None:
                self._waiting.append(waiting)
            elif not waiting.done.done():
                waiting.done.set_result(None)

    def _next(self) -> list[_Waiting]:
        """The one that has waited longest, and those that are most like it; those that were cancelled are dropped."""
        self._waiting = [waiting for waiting in self._waiting if not waiting.done.done()]
        if not self._waiting:
            return []
        first = self._waiting[0].reply
        length, wanted = len(first.ids), first.wanted

        def apart(waiting: _Waiting) -> int:
            return abs(len(waiting.reply.ids) - length)

        alike = [one for one in self._waiting if one.reply.wanted == wanted and apart(one) <= _APART]
        batch = sorted(alike, key=apart)[:_MOST]
        taken = {id(one) for one in batch}
        self._waiting = [one for one in self._waiting if id(one) not in taken]
        return batch
