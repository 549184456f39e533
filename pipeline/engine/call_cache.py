"""The cache of one question's model calls, in which concurrent equal calls wait for one call.

Equal calls of one configuration or of many are made only once.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import replace
from typing import NamedTuple

from pipeline.llm.prompt import Completion


class _Flight(NamedTuple):
    """A call that is being made."""

    completion: asyncio.Future[Completion | None]
    began_s: float
    """On the clock of `time.perf_counter`."""


class CallCache:
    """Completions of one question by call key."""

    def __init__(
        self,
        *,
        made_in_this_run: Mapping[str, Completion],
        from_earlier_runs: Mapping[str, Completion],
        on_call: Callable[[str, Completion], Awaitable[None]] | None = None,
    ) -> None:
        """Start from the calls that are known already. Those of earlier runs count as shared.

        `on_call` is awaited with each new completion before anybody gets it.
        """
        self._made_in_this_run = dict(made_in_this_run)
        self._done: dict[str, Completion] = dict(from_earlier_runs)
        self._flights: dict[str, _Flight] = {}
        self._on_call = on_call
        self.is_replayed = bool(made_in_this_run)
        """Whether the run made calls for the question before it went on, and has made none since."""

    async def get(self, key: str, call: Callable[[], Awaitable[Completion]]) -> tuple[Completion, bool]:
        """Return the completion under `key`, and whether it was shared. Awaits `call` if the key is not cached.

        If `call` raises, every waiter gets the exception. Failures are not cached.
        """
        if (made := self._made_in_this_run.pop(key, None)) is not None:  # this run's own call, not a shared one
            self._done[key] = made
            return made, False
        while key not in self._done:
            if (flight := self._flights.get(key)) is None:
                return await self._make(key, call), False
            await asyncio.shield(flight.completion)  # None if the caller was cancelled: try again
        return self._done[key], True

    def is_in_flight(self, key: str) -> bool:
        """Whether `get` would await a call that has begun, and share its reply or its failure."""
        return key in self._flights

    @property
    def longest_s(self) -> float:
        """The seconds that the longest of the calls in flight has taken so far; 0 if none is in flight."""
        now = time.perf_counter()
        return now - min((each.began_s for each in self._flights.values()), default=now)

    async def _make(self, key: str, call: Callable[[], Awaitable[Completion]]) -> Completion:
        self.is_replayed = False
        flight, began = self._flights[key] = _Flight(asyncio.get_running_loop().create_future(), time.perf_counter())
        try:
            completion = await call()
            if completion.seconds is None:
                completion = replace(completion, seconds=time.perf_counter() - began)
            if self._on_call is not None:
                await self._on_call(key, completion)
            self._done[key] = completion
            flight.set_result(completion)
        except Exception as error:
            flight.set_exception(error)
            flight.exception()  # mark it as retrieved: there may be no waiter
            raise
        finally:
            del self._flights[key]
            if not flight.done():
                flight.set_result(None)
        return completion
