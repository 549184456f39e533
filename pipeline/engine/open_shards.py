"""How many shards a worker runs at the same time."""

from __future__ import annotations

import asyncio
import math
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any

_MOST_OPEN = 8
"""Shards that may be open for each one that fills the slots: a shard keeps its finished rows in memory."""


class OpenShards:
    """Counts the open shards of a worker and their unanswered questions, and says when another shard may begin.

    It may begin while the unanswered questions are too few to fill the slots and one more shard. The number of shards
    says nothing about free slots: a shard stays open until its slowest question is answered, in a single slot.
    """

    def __init__(self, engine: Mapping[str, Any]) -> None:
        """Take the section `engine` of the configuration."""
        self._enough = _enough(engine)
        self._most = most_open_shards(int(engine["concurrency"]), int(engine["shard_size"]))
        self._shards = 0
        self._questions = 0
        self._room = asyncio.Event()
        self._room.set()

    @contextmanager
    def shard(self, questions: int) -> Iterator[Callable[[], None]]:
        """Count a shard of this many questions, from its begin to its end. Gives a function to count an answer."""
        unanswered = questions

        def answer() -> None:
            nonlocal unanswered
            unanswered -= 1
            self._change(questions=-1)

        self._change(shards=1, questions=questions)
        try:
            yield answer
        finally:
            self._change(shards=-1, questions=-unanswered)

    async def wait_for_room(self) -> None:
        """Return when another shard may begin."""
        await asyncio.sleep(0)  # a shard whose task has just been made begins first
        await self._room.wait()

    def _change(self, *, shards: int = 0, questions: int = 0) -> None:
        self._shards += shards
        self._questions += questions
        if self._questions < self._enough and self._shards < self._most:
            self._room.set()
        else:
            self._room.clear()


def most_open_shards(concurrency: int, shard_size: int) -> int:
    """Return how many shards are run at most by workers with so many slots."""
    return _MOST_OPEN * math.ceil(concurrency / shard_size)


def shards_that_fit(engine: Mapping[str, Any]) -> int:
    """Return how many shards a worker has room for even if none of their questions is answered."""
    return math.ceil(_enough(engine) / int(engine["shard_size"]))


def _enough(engine: Mapping[str, Any]) -> int:
    """Return the number of questions that fill the slots and one more shard."""
    return int(engine["concurrency"]) + int(engine["shard_size"])
