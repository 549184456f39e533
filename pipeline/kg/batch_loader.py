"""Batches and caches the lookups of concurrent questions (specification §8.6).

Keys that arrive within a few milliseconds, from any question, form one batch, which becomes one query. While the query
runs, other callers that ask for the same key wait for it. Values, also empty ones, are kept in an LRU cache.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Hashable, Sequence
from dataclasses import dataclass, field
from typing import Any, Generic, TypeAlias, TypeVar

from pipeline.kg.interface import Batch
from pipeline.kg.lru import Lru

K = TypeVar("K", bound=Hashable)
V = TypeVar("V")


Fetch: TypeAlias = Callable[[Sequence[K]], Awaitable[Batch[K, V]]]
"""Looks up a batch of distinct keys. Raises ServiceError."""


class BatchLoader(Generic[K, V]):
    """A batched and cached lookup, for one event loop."""

    def __init__(self, fetch: Fetch[K, V], *, batch_size: int, window_s: float, cache_size: int) -> None:
        """Collect batches of up to `batch_size` keys for up to `window_s` seconds, and cache `cache_size` values."""
        self._fetch = fetch
        self._batch_size = batch_size
        self._window_s = window_s
        self._cache: Lru[K, V] = Lru(cache_size)
        self._batch_of: dict[K, _PendingBatch[K, V]] = {}
        """The batch of each key that has no value yet."""
        self._open: _PendingBatch[K, V] | None = None
        self._running: set[asyncio.Task[None]] = set()

    async def __call__(self, keys: Sequence[K]) -> Batch[K, V]:
        """Return the value of each key, in the given order. Raises ServiceError if one cannot be looked up."""
        result: Batch[K, V] = Batch()
        waiting: dict[_PendingBatch[K, V], list[K]] = {}
        opened = set()
        for key in keys:
            if key in result:
                continue
            value: Any = self._cache.get(key, _MISSING)
            result[key] = value
            if value is not _MISSING:
                continue
            pending = self._batch_of.get(key)
            if pending is None:
                pending = self._add(key)
                if len(pending.keys) == 1:
                    opened.add(pending)
            waiting.setdefault(pending, []).append(key)
        for pending, wanted in waiting.items():
            # Shielded: a cancelled question must not cancel the query for the other callers.
            fetched = await asyncio.shield(pending.fetched)
            result.update({key: fetched[key] for key in wanted})
            result.endpoint = fetched.endpoint or result.endpoint
            # The call that opened the batch is charged for it, so that the counts of all calls add up.
            result.queries += fetched.queries if pending in opened else 0
        return result

    async def close(self) -> None:
        """Cancel running queries."""
        for task in self._running:
            task.cancel()
        await asyncio.gather(*self._running, return_exceptions=True)

    def _add(self, key: K) -> _PendingBatch[K, V]:
        if self._open is None:
            loop = asyncio.get_running_loop()
            self._open = _PendingBatch(loop.create_future())
            self._open.timer = loop.call_later(self._window_s, self._send, self._open)
        pending = self._batch_of[key] = self._open
        pending.keys.append(key)
        if len(pending.keys) == self._batch_size:
            self._send(pending)
        return pending

    def _send(self, pending: _PendingBatch[K, V]) -> None:
        assert pending.timer is not None
        pending.timer.cancel()
        self._open = None
        task = asyncio.create_task(self._fill(pending))
        self._running.add(task)
        task.add_done_callback(self._running.discard)

    async def _fill(self, pending: _PendingBatch[K, V]) -> None:
        try:
            fetched = await self._fetch(pending.keys)
        except Exception as error:  # noqa: BLE001 — raised in every waiting call
            pending.fetched.set_exception(error)
            pending.fetched.exception()  # Marks it as retrieved: all waiting calls may have been cancelled.
        else:
            for key, value in fetched.items():
                self._cache.put(key, value)
            pending.fetched.set_result(fetched)
        finally:
            pending.fetched.cancel()  # Does nothing unless this task was cancelled.
            for key in pending.keys:
                del self._batch_of[key]


@dataclass(slots=True, eq=False)
class _PendingBatch(Generic[K, V]):
    """Keys that are looked up with one query."""

    fetched: asyncio.Future[Batch[K, V]]
    keys: list[K] = field(default_factory=list)
    timer: asyncio.TimerHandle | None = None


_MISSING: Any = object()
