"""One kind of lookup, shared by all questions of a process: coalesced, single-flight and remembered (methods.md §8.6).

Arguments that arrive within a few milliseconds, whoever asks, fill one bucket, and a bucket becomes one query. While
it is under way, whoever asks for the same argument waits for it. Answers, empty ones too, are kept in a bounded LRU.
"""

from __future__ import annotations

import asyncio
from collections import OrderedDict
from collections.abc import Awaitable, Callable, Hashable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Generic, TypeAlias, TypeVar

from pipeline.kg.port import Batch

K = TypeVar("K", bound=Hashable)
V = TypeVar("V")


@dataclass(frozen=True, slots=True)
class Fetched(Generic[K, V]):
    """What a server said about some arguments."""

    values: Mapping[K, V]
    """Has every argument that was asked for."""
    queries: int
    endpoint: str | None


Fetch: TypeAlias = Callable[[Sequence[K]], Awaitable[Fetched[K, V]]]
"""Asks a server; gets at most `size` distinct arguments, and raises ServiceError."""


class Lookup(Generic[K, V]):
    """A memoised batch lookup. All calls belong to one event loop."""

    def __init__(self, fetch: Fetch[K, V], *, size: int, wait_s: float, entries: int) -> None:
        """Fill buckets of `size` arguments for at most `wait_s` seconds, and remember `entries` answers."""
        self._fetch = fetch
        self._size = size
        self._wait_s = wait_s
        self._entries = entries
        self._memo: OrderedDict[K, V] = OrderedDict()
        self._asked: dict[K, _Bucket[K, V]] = {}
        """The bucket in which each argument without an answer waits."""
        self._open: _Bucket[K, V] | None = None
        self._running: set[asyncio.Task[None]] = set()

    async def __call__(self, keys: Sequence[K]) -> Batch[K, V]:
        """The answer for each argument, in the order asked. Raises ServiceError when one cannot be had."""
        result: Batch[K, V] = Batch()
        waiting: dict[_Bucket[K, V], list[K]] = {}
        opened = set()
        for key in keys:
            if key in result:
                continue
            value = result[key] = self._memo.get(key, _MISSING)
            if value is not _MISSING:
                self._memo.move_to_end(key)
                continue
            bucket = self._asked.get(key)
            if bucket is None:
                bucket = self._put(key)
                if len(bucket.keys) == 1:
                    opened.add(bucket)
            waiting.setdefault(bucket, []).append(key)
        for bucket, wanted in waiting.items():
            # Shielded: a question that gives up must not take the answer from the others in the bucket.
            fetched = await asyncio.shield(bucket.fetched)
            result.update({key: fetched.values[key] for key in wanted})
            result.endpoint = fetched.endpoint or result.endpoint
            # A bucket is charged to the call that opened it, so that the counts of all calls add up.
            result.queries += fetched.queries if bucket in opened else 0
        return result

    async def close(self) -> None:
        """Give up what is under way."""
        for task in self._running:
            task.cancel()
        await asyncio.gather(*self._running, return_exceptions=True)

    def _put(self, key: K) -> _Bucket[K, V]:
        if self._open is None:
            loop = asyncio.get_running_loop()
            self._open = _Bucket(loop.create_future())
            self._open.timer = loop.call_later(self._wait_s, self._send, self._open)
        bucket = self._asked[key] = self._open
        bucket.keys.append(key)
        if len(bucket.keys) == self._size:
            self._send(bucket)
        return bucket

    def _send(self, bucket: _Bucket[K, V]) -> None:
        assert bucket.timer is not None
        bucket.timer.cancel()
        self._open = None
        task = asyncio.create_task(self._fill(bucket))
        self._running.add(task)
        task.add_done_callback(self._running.discard)

    async def _fill(self, bucket: _Bucket[K, V]) -> None:
        try:
            fetched = await self._fetch(bucket.keys)
        except Exception as error:  # noqa: BLE001 — handed to everyone who waits
            bucket.fetched.set_exception(error)
            bucket.fetched.exception()  # Marks it as seen: those who waited may be gone.
        else:
            self._remember(fetched.values)
            bucket.fetched.set_result(fetched)
        finally:
            bucket.fetched.cancel()  # Does nothing unless this task was cancelled.
            for key in bucket.keys:
                del self._asked[key]

    def _remember(self, values: Mapping[K, V]) -> None:
        self._memo.update(values)
        while len(self._memo) > self._entries:
            self._memo.popitem(last=False)


@dataclass(slots=True, eq=False)
class _Bucket(Generic[K, V]):
    """Arguments that are asked for together."""

    fetched: asyncio.Future[Fetched[K, V]]
    keys: list[K] = field(default_factory=list)
    timer: asyncio.TimerHandle | None = None


_MISSING: Any = object()
