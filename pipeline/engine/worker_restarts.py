"""Restarts question workers that die, up to `engine.max_worker_restarts` times each."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

from ray.exceptions import RayActorError, RayTaskError

from pipeline.engine.progress import RunProgress
from pipeline.errors import ServiceError


class WorkerSlot:
    """Holds one worker, an actor, and replaces it when it dies.

    Without room in the cluster, a slot waits for a node to join while the other workers continue.
    """

    def __init__(self, number: int, start: Callable[[], Any], max_restarts: int, progress: RunProgress) -> None:
        """Take the number of the worker from 1, the function that starts an actor, and where restarts are reported."""
        self._number = number
        self._start = start
        self._max_restarts = max_restarts
        self._progress = progress
        self._deaths = 0
        self._filling = asyncio.Lock()
        self.actor: Any = None

    async def fill(self, dead: Any = None, error: RayActorError | None = None) -> None:
        """Replace the `dead` actor, and return when the new one has opened its components.

        Several tasks may report the same death: the actor is replaced once. Raises UserError for a wrong
        configuration, and ServiceError when the worker dies more often than it may be restarted.
        """
        async with self._filling:
            if dead is not None and self.actor is dead:
                self._count_death(error)
            while self.actor is dead:
                actor = self._start()
                try:
                    self._progress.on_opened(await result_of(actor.open.remote()))
                    self.actor = actor
                except RayActorError as died_at_once:
                    self._count_death(died_at_once)

    def _count_death(self, error: RayActorError | None) -> None:
        """Report a death and the restart that follows. Raises ServiceError if no restart is left."""
        self._deaths += 1
        reason = str(error).strip().splitlines()[-1].strip()
        if self._deaths > self._max_restarts:
            raise ServiceError(
                f"worker {self._number} died {self._deaths} times, and engine.max_worker_restarts={self._max_restarts} "
                f"({reason}). Run the same command again to continue"
            )
        self._progress.say(
            f"worker {self._number} died ({reason}): restart {self._deaths} of at most {self._max_restarts}"
        )


async def result_of(reply: Any) -> Any:
    """Return what a call of an actor returns, or raise its own exception instead of the one that Ray wraps it in."""
    try:
        return await reply
    except RayTaskError as error:
        raise error.cause from None
