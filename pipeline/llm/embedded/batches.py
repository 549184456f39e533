"""Batches waiting replies of similar length, so that the model generates them together."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import NamedTuple, TypeAlias

from pipeline.llm.embedded.beams import Beams
from pipeline.llm.embedded.reply import Reply

_MAX_BATCH = 16
"""Replies in a batch."""

_MAX_LENGTH_DIFFERENCE = 32
"""Largest difference in length, in tokens. Tokens beyond the shortest prompt are read one by one."""


Generated: TypeAlias = Reply | Beams
"""What a model generates for one prompt, in one or more rounds."""

Unwanted: TypeAlias = Callable[[int], bool]
"""Whether nobody awaits the reply at an index of a batch any more, so that its generation may stop."""


class _Waiting(NamedTuple):
    reply: Generated
    done: asyncio.Future[None]


class Batches:
    """A queue of replies that generates them in batches in its own threads. Everything else runs on the event loop."""

    def __init__(self, generate: Callable[[Sequence[Generated], Unwanted], None], threads: int) -> None:
        """`generate` runs one round for replies with the same `next_round`, and asks at each token who is unwanted."""
        self._generate = generate
        self._threads = threads
        self._pool = ThreadPoolExecutor(threads, thread_name_prefix="llama")
        self._waiting: list[_Waiting] = []
        self._working: set[asyncio.Task[None]] = set()

    async def finish(self, reply: Generated) -> None:
        """Return when the reply is complete. Cancelling this stops its generation, and no other of the batch."""
        done = asyncio.get_running_loop().create_future()
        self._waiting.append(_Waiting(reply, done))
        if len(self._working) < self._threads:
            self._working.add(asyncio.create_task(self._work()))
        await done

    async def close(self) -> None:
        """Start no more batches, and wait for the running ones: a batch stops when all its replies are cancelled."""
        for working in self._working:
            working.cancel()
        await asyncio.to_thread(self._pool.shutdown)

    async def _work(self) -> None:
        """Generate batches until no reply is waiting."""
        await asyncio.sleep(0)  # lets concurrent calls arrive first
        while batch := self._next_batch():
            try:
                await asyncio.get_running_loop().run_in_executor(self._pool, self._run, batch)
            except Exception as error:  # noqa: BLE001 — raised in every waiting call
                for waiting in batch:
                    if not waiting.done.done():
                        waiting.done.set_exception(error)
            else:
                self._complete_or_requeue(batch)
        self._working -= {asyncio.current_task()}  # now, so that the next call finds a free thread

    def _run(self, batch: Sequence[_Waiting]) -> None:
        """Generate one batch, in a thread."""
        self._generate([waiting.reply for waiting in batch], lambda index: batch[index].done.cancelled())

    def _complete_or_requeue(self, batch: Sequence[_Waiting]) -> None:
        for waiting in batch:
            if waiting.reply.finish_reason is None:
                self._waiting.append(waiting)
            elif not waiting.done.done():
                waiting.done.set_result(None)

    def _next_batch(self) -> list[_Waiting]:
        """Return the longest-waiting reply and those most similar in length; drop cancelled ones."""
        self._waiting = [waiting for waiting in self._waiting if not waiting.done.done()]
        if not self._waiting:
            return []
        first = self._waiting[0].reply
        length, next_round = len(first.context), first.next_round

        def difference(waiting: _Waiting) -> int:
            return abs(len(waiting.reply.context) - length)

        similar = [
            each
            for each in self._waiting
            if each.reply.next_round == next_round and difference(each) <= _MAX_LENGTH_DIFFERENCE
        ]
        batch = sorted(similar, key=difference)[:_MAX_BATCH]
        taken = {id(each) for each in batch}
        self._waiting = [each for each in self._waiting if id(each) not in taken]
        return batch
