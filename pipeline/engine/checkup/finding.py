"""A finding: what a check saw, how bad it is, and how to mend it."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Literal, TypeAlias

from pipeline.engine.run import Point

Level: TypeAlias = Literal["ok", "warning", "problem"]
"""`problem`: the run would fail or be wrong. `warning`: it would run, but worse than it could."""


@dataclass(frozen=True, slots=True)
class Finding:
    """One line of the doctor's table."""

    level: Level
    subject: str
    """What was looked at: `versions`, `model http://…`."""
    found: str
    mend: str = ""
    """One sentence; empty where there is nothing to mend."""


@dataclass(frozen=True, slots=True)
class Check:
    """Something to look at."""

    subject: str
    look: Callable[[Point], Awaitable[list[Finding]]]
    mend: str
    """What to do where it cannot be looked at."""
    patience_s: float = 60
    """After which it counts as unanswered."""


def ok(subject: str, found: str) -> Finding:
    """As it should be."""
    return Finding("ok", subject, found)


def warning(subject: str, found: str, mend: str) -> Finding:
    """Worse than it could be."""
    return Finding("warning", subject, found, mend)


def problem(subject: str, found: str, mend: str) -> Finding:
    """In the way of a run."""
    return Finding("problem", subject, found, mend)
