"""The console that every command prints to: no text that it prints controls the terminal."""

from __future__ import annotations

from collections.abc import Iterable

import rich.console
from rich.console import ConsoleOptions, RenderableType
from rich.progress import Progress
from rich.segment import Segment

from pipeline.text import printable

UNLIMITED = 10_000
"""The width of what is not printed to a terminal, such as a pipe: nothing is too wide for it."""


class Console(rich.console.Console):
    """A console that replaces control characters in texts, which may come from a model, a server or a run folder."""

    def render(self, renderable: RenderableType, options: ConsoleOptions | None = None) -> Iterable[Segment]:
        """Return the parts of a text or table, all of them printable."""
        for part in super().render(renderable, options):
            yield part if part.control else Segment(printable(part.text), part.style)


def progress(begins: str) -> Progress:
    """Return a progress bar on standard error, below a line that says what begins. No bar where it is no terminal."""
    console = Console(stderr=True)
    console.print(begins, markup=False, soft_wrap=True)
    return Progress(console=console, transient=True, disable=not console.is_terminal)
