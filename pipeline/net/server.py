"""One server of several equal ones: its health, what it has asked for, and how fast it answers."""

from __future__ import annotations

import contextlib
import math
import time
from collections import deque
from dataclasses import dataclass, field
from datetime import UTC, datetime
from email.utils import parsedate_to_datetime
from typing import Any

from pipeline.net.http_connections import Response
from pipeline.net.server_stats import ServerStats

_TOO_MANY_REQUESTS = 429
ASKED_LATER = frozenset({408, _TOO_MANY_REQUESTS})
"""Statuses with which a healthy server asks for the request later."""
_ANSWERS, _RATE_S = 100, 30.0
"""Latest answers of a server, and seconds, from which its rate is computed."""
_AT_WORK_S = 1.0
"""A server that has had a request for longer is at work on it, unless it needs so long to send one away."""


@dataclass(slots=True, eq=False)
class Server(ServerStats):
    """One server of a client: its statistics, its health and its outstanding requests."""

    slots: contextlib.AbstractAsyncContextManager[Any] = field(kw_only=True)
    """Limits the requests that are sent at the same time."""
    outstanding: int = 0
    """Requests that were sent, or wait for a slot, and have no response yet."""
    consecutive_failures: int = 0
    problem: str = ""
    """Why the server last became unhealthy."""
    has_answered: bool = False
    """Whether it has answered a request since the client connected."""
    refusal: str = ""
    """With what it refuses every request, if it is unhealthy for that."""
    next_trial: float = math.inf
    """`time.monotonic()` from which an unhealthy server may get a trial request."""
    resting_until: float = 0.0
    """`time.monotonic()` until which the server has asked for no requests."""
    sent_away_s: float = 0.0
    """The longest time after which it has asked for a request later."""
    answers: deque[float] = field(default_factory=lambda: deque(maxlen=_ANSWERS))
    """`time.monotonic()` of the latest answers."""
    software: str = ""
    """The `Server` header of the last probe's response."""

    @property
    def has_only_refused(self) -> bool:
        """Whether it refuses every request, and has done so since this client connected: it is not being restarted."""
        return bool(self.refusal) and not self.has_answered

    @property
    def rest_s(self) -> float:
        """Seconds for which the server has asked for no requests; 0 or less if it gets them."""
        return self.resting_until - time.monotonic()

    @property
    def answers_per_s(self) -> float:
        """How many requests it has answered per second of late; 0 if none."""
        now = time.monotonic()
        recent = [moment for moment in self.answers if moment > now - _RATE_S]
        least_s = 1.0 if len(recent) < _ANSWERS else 1e-3  # a few answers at once are no high rate
        return len(recent) / max(now - recent[0], least_s) if recent else 0.0

    def serves_others(self, within_s: float) -> bool:
        """Whether it has answered a request within so many seconds, or is at work on one."""
        answered = bool(self.answers) and self.answers[-1] >= time.monotonic() - within_s
        return answered or self.longest_s > max(_AT_WORK_S, 2 * self.sent_away_s)

    @property
    def idle_because(self) -> str:
        """Why it gets no requests at present."""
        is_resting = self.healthy and self.rest_s > 0
        return f"{self.url} " + ("asked for no requests" if is_resting else f"is unhealthy: {self.problem}")

    def give_up(self) -> None:
        """End all requests that have no response, as a time-out would: the server is gone."""
        for request in self.requests:
            if not request.expired():
                request.reschedule(-math.inf)


def is_busy(response: Response) -> bool:
    """Whether a server that answers asks for the request later: with status 429, or with an error and a pause."""
    return response.status == _TOO_MANY_REQUESTS or asked_pause_s(response) > 0


def asked_pause_s(response: Response) -> float:
    """Return the seconds for which the server asks for no requests with an error; 0 if it does not."""
    return _retry_after_s(response.headers.get("retry-after", "")) if response.status >= 400 else 0.0


def _retry_after_s(value: str) -> float:
    """Return the seconds of a Retry-After header, which is a number or a date; 0 if it is neither."""
    try:
        return max(0.0, float(value))  # 0 for NaN
    except ValueError:
        pass
    try:
        return max(0.0, (parsedate_to_datetime(value) - datetime.now(UTC)).total_seconds())
    except (ValueError, TypeError, OverflowError):
        return 0.0
