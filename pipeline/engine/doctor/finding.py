"""Findings of `kgqa doctor`: the result of a check, its severity, and how to fix a problem."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass
from typing import Literal, TypeAlias

from pipeline.engine.configuration import Configuration

Level: TypeAlias = Literal["ok", "warning", "problem", "stopped"]
"""`problem`: the run would fail or be wrong. `warning`: it would run, but slower or with worse results.

`stopped`: the check could not be made, because of a problem that an earlier one found.
"""


@dataclass(frozen=True, slots=True)
class Finding:
    """One line of the doctor's table."""

    level: Level
    subject: str
    """The thing that was checked: `versions`, `model http://…`."""
    found: str
    fix: str = ""
    """One sentence; empty if nothing has to be fixed."""


@dataclass(frozen=True, slots=True)
class Check:
    """One check of `kgqa doctor`."""

    subject: str
    run: Callable[[Configuration], Awaitable[list[Finding]]]
    fix: str
    """What to do if the check itself fails."""
    timeout_s: float = 60
    """Seconds after which the check counts as unanswered."""


def ok(subject: str, found: str) -> list[Finding]:
    """Return one finding, which is no problem."""
    return [Finding("ok", subject, found)]


def warning(subject: str, found: str, fix: str) -> list[Finding]:
    """Return one finding, which should be fixed."""
    return [Finding("warning", subject, found, fix)]


def problem(subject: str, found: str, fix: str) -> list[Finding]:
    """Return one finding, which must be fixed before a run."""
    return [Finding("problem", subject, found, fix)]


def compared(subject: str, held: Mapping[str, str | None], what: str, fix: str) -> list[Finding]:
    """Return a problem if servers differ in what they hold; None stands for a server that cannot be used."""
    known = {url: one for url, one in held.items() if one is not None}
    if len(set(known.values())) < 2:
        return []
    listing = ", ".join(f"{one} at {url}" for url, one in known.items())
    return problem(subject, f"its servers {what}: {listing}", fix)
