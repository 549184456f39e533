"""Statistics that a client keeps of each server, for metrics and the progress display."""

from __future__ import annotations

import asyncio
import time
from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Literal, Protocol, TypeAlias, runtime_checkable

ServerKind: TypeAlias = Literal["graph", "model"]

_MAX_LATENCIES = 10_000
"""Latencies kept when nothing consumes them."""


@dataclass(slots=True, eq=False)
class ServerStats:
    """One server, as one client sees it."""

    kind: ServerKind
    url: str
    latencies: deque[float] = field(default_factory=lambda: deque(maxlen=_MAX_LATENCIES))
    """Seconds that each request took, oldest first. Consumed on read."""
    failures: int = 0
    """Requests so far that got no response, or an error of the server (status 500 and above)."""
    healthy: bool = True
    """Whether requests are sent to the server at present."""
    models: dict[str, set[str]] = field(default_factory=dict)
    """The names of models under which the server has answered, by the name that it was asked for."""
    requests: dict[asyncio.Timeout, float] = field(default_factory=dict)
    """Those that were sent and have no response yet, and since when, on the clock of `time.monotonic`."""

    @property
    def longest_s(self) -> float:
        """The seconds that the longest of the requests has waited for its response; 0 if there are none."""
        now = time.monotonic()
        return now - min(self.requests.values(), default=now)


@runtime_checkable
class HasServerStats(Protocol):
    """A component that sends requests to servers."""

    @property
    def server_stats(self) -> Sequence[ServerStats]:
        """Statistics of each server that is known at present. The same object for as long as the server is."""
        ...
