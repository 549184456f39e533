"""The console that every command prints to: no text that it prints controls the terminal."""

from __future__ import annotations

import time
from collections.abc import Iterable, Iterator, Sequence
from typing import TypeVar

import rich.console
from rich.console import ConsoleOptions, RenderableType
from rich.progress import Progress, track
from rich.segment import Segment

from pipeline.text import printable

T = TypeVar("T")

LINE_S = 30.0
"""Seconds between two lines about progress, where there is no terminal for a bar."""
UNLIMITED = 10_000
"""The width of what is not printed to a terminal, such as a pipe: nothing is too wide for it."""


class Console(rich.console.Console):
    """A console that replaces control characters in texts, which may come from a model, a server or a run folder."""

    def render(self, renderable: RenderableType, options: ConsoleOptions | None = None) -> Iterable[Segment]:
        """Return the parts of a text or table, all of them printable."""
        for part in super().render(renderable, options):
            yield part if part.control else Segment(printable(part.text), part.style)


def with_progress(items: Sequence[T], description: str, console: rich.console.Console) -> Iterable[T]:
    """Yield the items. Show how many are done and how long the others will take: in lines, if there is no terminal."""
    if console.is_terminal:
        return track(items, description, console=console, transient=True)
    return _with_lines(items, description, console)


def _with_lines(items: Sequence[T], description: str, console: rich.console.Console) -> Iterator[T]:
    began = printed = time.monotonic()
    for done, item in enumerate(items):
        now = time.monotonic()
        if now > printed + LINE_S:
            left = (now - began) / done * (len(items) - done)
            console.print(f"{description}: {done:,}/{len(items):,} · {left:,.0f} s left", soft_wrap=True)
            printed = now
        yield item


def progress(begins: str) -> Progress:
    """Return a progress bar on standard error, below a line that says what begins. No bar where it is no terminal."""
    console = Console(stderr=True)
    console.print(begins, markup=False, soft_wrap=True)
    return Progress(console=console, transient=True, disable=not console.is_terminal)
