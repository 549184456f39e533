"""Requests that wait until a server has room for them, the first one first."""

from __future__ import annotations

import asyncio
from collections import deque


class WaitingRequests:
    """A queue of requests. Each is woken once, and looks itself whether there is room."""

    def __init__(self) -> None:
        """Begin with an empty queue."""
        self._waiting: deque[asyncio.Future[None]] = deque()

    async def wait(self) -> None:
        """Return when it is this request's turn to look for room."""
        turn = asyncio.get_running_loop().create_future()
        self._waiting.append(turn)
        try:
            await turn
        except asyncio.CancelledError:
            if not turn.cancelled():  # it was woken, and does not look
                self.wake_one()
            raise

    def wake_one(self) -> None:
        """Wake the first request that waits, as there is room for one more."""
        while self._waiting:
            turn = self._waiting.popleft()
            if not turn.done():
                turn.set_result(None)
                return

    def wake_all(self) -> None:
        """Wake all requests, as other servers are available now."""
        for _ in range(len(self._waiting)):
            self.wake_one()
