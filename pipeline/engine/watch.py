"""What the driver shows and notes while a run goes on."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Sequence
from math import inf, sqrt
from types import TracebackType
from typing import Self

from rich.console import Console, RenderableType
from rich.progress import (
    BarColumn,
    MofNCompleteColumn,
    TextColumn,
    TimeElapsedColumn,
    TimeRemainingColumn,
)
from rich.progress import (
    Progress as Bar,
)
from rich.table import Table
from rich.text import Text

from pipeline.engine.shard import Progress
from pipeline.engine.worker import Served
from pipeline.text import printable

_LEADING = 8
"""Points shown while a sweep goes on."""
_RANKING_S = 0.5
"""Seconds between two rankings of them."""
_LINE_S = 30.0
"""Seconds between two lines where there is no terminal to draw a bar on."""


class _Bar(Bar):
    """With the leading points of a sweep beneath."""

    standings: Table | None = None

    def get_renderables(self) -> Iterable[RenderableType]:
        yield from super().get_renderables()
        if self.standings is not None and not self.finished:
            yield self.standings


class Watch:
    """Rate, time left and running Hits@1, fed by the executor; of a sweep, the leading points.

    A bar on a terminal; elsewhere, as in the log of a cluster's job, a plain line now and then.
    """

    def __init__(
        self,
        console: Console,
        *,
        total: int | None,
        on_served: Callable[[Sequence[Served]], None],
        names: Sequence[str] = (),
    ) -> None:
        """`total` rows are expected, None when that is not known; `on_served` may refuse to go on by raising.

        `names` are what the points are called, where there are several.
        """
        self._check = on_served
        self._names = names
        self.sum = Progress()
        self._bar = _Bar(
            TextColumn("{task.description}"),
            BarColumn(),
            MofNCompleteColumn(),
            TextColumn("{task.fields[rate]}"),
            TimeElapsedColumn(),
            TimeRemainingColumn(),
            TextColumn("Hits@1 {task.fields[hits]}"),
            console=console,
        )
        self._ranked = self._told = -inf
        self._task = self._bar.add_task("questions", total=total, rate="", hits="–", start=False)

    def on_served(self, served: Sequence[Served]) -> None:
        """Check what a worker has opened, and show that the run goes on."""
        self._check(served)
        if not self._bar.tasks[0].started:
            self._told = time.monotonic()
            self._bar.start_task(self._task)
            if self._draws:
                self._bar.start()

    def say(self, line: str) -> None:
        """Tell something above the bar."""
        self._bar.console.print(printable(line), markup=False)

    def on_drop(self, line: str, rows: int) -> None:
        """Tell that points were dropped, and expect so many rows fewer."""
        self.say(line)
        if (total := self._bar.tasks[0].total) is not None:
            self._bar.update(self._task, total=max(self.sum.questions, total - rows))

    def on_progress(self, progress: Progress) -> None:
        """Add rows that have just finished."""
        self.sum = self.sum + progress
        hits = f"{self.sum.hits / self.sum.scored:.3f}" if self.sum.scored else "–"
        elapsed = self._bar.tasks[0].elapsed or 0.0
        rate = f"{self.sum.questions / elapsed:.1f}/s" if elapsed else ""
        self._bar.update(self._task, completed=self.sum.questions, hits=hits, rate=rate)
        if not self._draws:
            self._tell_now_and_then()
        elif self._names and time.monotonic() > self._ranked + _RANKING_S:
            self._ranked = time.monotonic()
            self._bar.standings = standings(self.sum, self._names)

    @property
    def _draws(self) -> bool:
        return self._bar.console.is_terminal

    def _tell_now_and_then(self) -> None:
        if time.monotonic() > self._told + _LINE_S:
            self._told = time.monotonic()
            self.say(self._line())

    def _line(self) -> str:
        task = self._bar.tasks[0]
        total = "?" if task.total is None else f"{task.total:,.0f}"
        left = f"{task.time_remaining:,.0f} s left" if task.time_remaining and not task.finished else ""
        failed = f"{self.sum.failed:,} failed" if self.sum.failed else ""
        hits = f"Hits@1 {task.fields['hits']}"
        parts = (f"questions {self.sum.questions:,}/{total}", task.fields["rate"], left, hits, failed)
        return " · ".join(filter(None, parts))

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._bar.standings = None  # the final table follows
        if self._bar.live.is_started:
            self._bar.stop()
        elif self._bar.tasks[0].started:
            self.say(self._line())


def standings(progress: Progress, names: Sequence[str]) -> Table:
    """The points that lead so far, with 95 % Wilson intervals of their Hits@1."""
    table = Table("leading points", "questions", "Hits@1", box=None, padding=(0, 2, 0, 0))
    scored = {point: (hits / asked, asked) for point, (hits, asked) in progress.of_points.items() if asked}
    for point, (mean, asked) in sorted(scored.items(), key=lambda each: (-each[1][0], each[0]))[:_LEADING]:
        low, high = _wilson(mean, asked)
        table.add_row(
            Text(printable(names[point])), f"{asked:,}", f"{100 * mean:.1f}  {100 * low:.1f}–{100 * high:.1f}"
        )
    if len(scored) > _LEADING:
        table.add_row(f"… {len(scored) - _LEADING} more", "", "")
    return table


def _wilson(mean: float, asked: int) -> tuple[float, float]:
    z2 = 1.96**2 / asked
    middle, margin = mean + z2 / 2, sqrt(z2 * (mean * (1 - mean) + z2 / 4))
    return (middle - margin) / (1 + z2), (middle + margin) / (1 + z2)
