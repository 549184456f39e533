"""What a client of replicated servers notes of each of them, for whoever watches a run."""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Literal, Protocol, runtime_checkable

_KEPT = 10_000
"""Latencies kept of a server that nobody watches."""


@dataclass(slots=True)
class Traffic:
    """One server, as one client sees it."""

    kind: Literal["graph", "model"]
    url: str
    latencies: deque[float] = field(default_factory=lambda: deque(maxlen=_KEPT))
    """Seconds of the answers, oldest first. Whoever reads one takes it out."""
    failures: int = 0
    """Requests so far that were broken, timed out or answered by an error of the server."""
    usable: bool = True
    """Whether requests are sent there at present."""


@runtime_checkable
class Connected(Protocol):
    """A component that asks servers."""

    @property
    def traffic(self) -> Sequence[Traffic]:
        """Of each server, for as long as the component is open."""
        ...
