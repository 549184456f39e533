"""The attempts of one request: how one may fail, what all that failed have shown, and how long the request goes on."""

from __future__ import annotations

import time
from collections.abc import Collection, Iterable
from dataclasses import dataclass, field

from pipeline.net.server import Server

SLOW_ATTEMPTS = 2
"""Attempts of a request that is too slow for its servers."""
_EQUAL_DEFECTS = 3
"""Replies with the same defect after which a server is not asked again: it would send another one like them."""
_TURN_S = 600.0
"""Seconds that a request waits for its turn while busy servers answer others. Then its failures count."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RetryPolicy:
    """How often and how fast requests are repeated, and when a server counts as unhealthy."""

    rounds: int
    """Rounds over the servers, the first one included. Those in which busy servers answer others do not count."""
    backoff_s: float
    """Pause before the second round; doubled for each later one, and shortened at random by up to half."""
    max_backoff_s: float
    """The longest pause, also if a server asks for a longer one."""
    max_failures: int
    """Consecutive failures after which a server is unhealthy."""
    recovery_s: float
    """Seconds between two probes or trials of an unhealthy server."""


class AttemptFailed(Exception):
    """One attempt failed, and another one may succeed."""

    def __init__(
        self,
        message: str,
        *,
        too_slow: bool = False,
        refused: bool = False,
        busy: bool = False,
        defect: str | None = None,
    ) -> None:
        """Say why another attempt may succeed.

        Args:
            message: What happened.
            too_slow: The request is to blame, not the server. Such a request is attempted only twice.
            refused: The server refused the request for good. Only other servers are asked.
            busy: The server answers, and asks for the request later.
            defect: Why its reply cannot be used. A server whose replies to a request have the same defect a few times
                is not asked again.
        """
        super().__init__(message)
        self.too_slow = too_slow
        self.refused = refused
        self.busy = busy
        self.defect = defect


@dataclass(slots=True)
class Failures:
    """The failed attempts of one request."""

    tried: set[Server] = field(default_factory=set)
    """The servers that this round need not ask: it has asked them, or they are in `refusing`."""
    busy: set[Server] = field(default_factory=set)
    """The servers that have asked for the request later in this round."""
    last: str = ""
    """What the last one was."""
    slow: int = 0
    """How many were too slow."""
    refusing: set[Server] = field(default_factory=set)
    """The servers that are not asked again."""
    _has_waited: bool = True
    """Whether `last` is no failure of this request: it says that a server asked for it later, or got no requests."""
    _defects: list[tuple[Server, str]] = field(default_factory=list)

    def begin_round(self) -> None:
        """Begin a round over the servers."""
        self.tried, self.busy = set(self.refusing), set()

    def add(self, failure: AttemptFailed, server: Server) -> None:
        """Count one."""
        self.last, self._has_waited = str(failure), failure.busy
        self.slow += failure.too_slow
        if failure.busy:
            self.busy.add(server)
        if failure.defect is not None:
            self._defects.append((server, failure.defect))
        if failure.refused or self._defects.count((server, failure.defect or "")) == _EQUAL_DEFECTS:
            self.refusing.add(server)

    def add_idle(self, servers: Iterable[Server]) -> None:
        """Note that a round could ask none of the servers: a server that is down explains more than its busy time."""
        if not self.last or (self._has_waited and not all(server.healthy for server in servers)):
            self.last = "; ".join(server.idle_because for server in servers)

    def add_known_refusals(self, servers: Iterable[Server]) -> None:
        """Count the servers that need not be asked, as they have refused every request so far."""
        for server in servers:
            if server.has_only_refused and server not in self.refusing:
                self.refusing.add(server)
                self.last = self.last or server.refusal

    def are_final(self, servers: Iterable[Server]) -> bool:
        """Whether none of the servers need be asked again."""
        return self.slow >= SLOW_ATTEMPTS or self.are_refusals(servers)

    def are_refusals(self, servers: Iterable[Server]) -> bool:
        """Whether each of the servers has refused the request, or has replied with the same defect a few times."""
        return bool(self.refusing) and self.refusing.issuperset(servers)


@dataclass(slots=True)
class Patience:
    """The rounds of one request."""

    most: int
    """How many rounds may fail."""
    lately_s: float
    """Within how many seconds a busy server must have answered another request, unless it is at work on one."""
    failed: int = 0
    """How many have failed, without those in which a server was busy."""
    stuck: int = 0
    """How many since the last turn have found a busy server that served nobody else, or came too late to wait."""
    asked: int = 0
    """In how many a server was asked, or was known to refuse every request."""
    _began: float = field(default_factory=time.monotonic)

    @property
    def is_over(self) -> bool:
        """Whether there is no further round."""
        return self.failed + self.stuck >= self.most

    def add_round(self, busy: Collection[Server]) -> bool:
        """Count a round. Return whether one of the busy servers serves others, so that a turn will come."""
        if not busy:
            self.failed += 1
            return False
        may_wait = time.monotonic() - self._began < _TURN_S
        moves_on = may_wait and any(server.serves_others(self.lately_s) for server in busy)
        self.stuck = 0 if moves_on else self.stuck + 1
        return moves_on
