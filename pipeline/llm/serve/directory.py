"""The addresses of a job's model servers: an actor that the servers report to and that clients follow."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Mapping
from typing import NamedTuple

_SILENCE_S = 30
"""Seconds without a report after which a server is taken to be gone, as when its machine has lost power."""
_LEARNING_S = 3.0
"""Seconds in which a new directory hears from all replicas: until then it does not say which servers there are."""
_WAIT_S = 1.0
"""Seconds between two looks for servers that are silent."""


class Report(NamedTuple):
    """What a replica says of its server, every few seconds."""

    node: str
    """The id of its Ray node."""
    url: str | None
    """The base URL of the server; None while it does not answer."""
    is_leaving: bool = False
    """Whether the server finishes its calls and takes no others."""
    running: int = 0
    """Calls that the server has and has not answered."""
    waiting: int = 0
    """Those of them that wait for room in the engine."""
    problem: str | None = None
    """Why the server could not be started."""


class Servers(NamedTuple):
    """The servers of a model at a time."""

    version: int
    token: str
    """What clients send as the API key; empty if the servers ask for none."""
    urls: tuple[str, ...]
    """The servers that take calls."""
    leaving: tuple[str, ...]


class Directory:
    """The actor. It holds what the replicas have last reported, and no other state: a restarted one learns it again."""

    def __init__(self, token: str) -> None:
        """Take the token of the servers."""
        self._token = token
        self._reports: dict[int, tuple[float, Report]] = {}
        self._version = time.time_ns()  # another one after a restart
        self._knows_all_at = time.monotonic() + _LEARNING_S
        self._changed = asyncio.Event()

    async def report(self, number: int, report: Report) -> None:
        """Note what a replica says of its server."""
        self._update({**self._reports, number: (time.monotonic(), report)})

    async def forget(self, number: int) -> None:
        """Drop a replica that was stopped."""
        self._update({other: each for other, each in self._reports.items() if other != number})

    async def reports(self) -> Mapping[int, Report]:
        """Return the last report of each replica."""
        return {number: report for number, (_, report) in self._reports.items()}

    async def changes(self, version: int) -> Servers:
        """Return the servers, once they differ from those of `version`."""
        await asyncio.sleep(self._knows_all_at - time.monotonic())
        while self._version == version:
            try:
                await asyncio.wait_for(self._changed.wait(), _WAIT_S)
            except TimeoutError:
                oldest = time.monotonic() - _SILENCE_S
                self._update({number: each for number, each in self._reports.items() if each[0] >= oldest})
        return Servers(self._version, self._token, *self._urls(self._reports))

    def _update(self, reports: dict[int, tuple[float, Report]]) -> None:
        differ = self._urls(reports) != self._urls(self._reports)
        self._reports = reports
        if differ:
            self._version += 1
            self._changed.set()
            self._changed = asyncio.Event()

    @staticmethod
    def _urls(reports: Mapping[int, tuple[float, Report]]) -> tuple[tuple[str, ...], tuple[str, ...]]:
        """Return the URLs of the servers that take calls, and of those that are leaving."""
        up = [(report.url, report.is_leaving) for _, report in reports.values() if report.url]
        return tuple(url for url, leaving in up if not leaving), tuple(url for url, leaving in up if leaving)
