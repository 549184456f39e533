"""What the driver shows and notes while a run goes on."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from types import TracebackType
from typing import Self

from rich.console import Console
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

from pipeline.engine.shard import Progress
from pipeline.engine.worker import Served


class Watch:
    """A progress bar with rate, time left and running Hits@1, fed by the executor."""

    def __init__(self, console: Console, *, total: int | None, on_served: Callable[[Sequence[Served]], None]) -> None:
        """`total` rows are expected, None when that is not known; `on_served` may refuse to go on by raising."""
        self._check = on_served
        self.sum = Progress()
        self._bar = Bar(
            TextColumn("{task.description}"),
            BarColumn(),
            MofNCompleteColumn(),
            TextColumn("{task.fields[rate]}"),
            TimeElapsedColumn(),
            TimeRemainingColumn(),
            TextColumn("Hits@1 {task.fields[hits]}"),
            console=console,
        )
        self._task = self._bar.add_task("questions", total=total, rate="", hits="–", start=False)

    def on_served(self, served: Sequence[Served]) -> None:
        """Check what a worker has opened, and show that the run goes on."""
        self._check(served)
        if not self._bar.live.is_started:
            self._bar.start()
            self._bar.start_task(self._task)

    def say(self, line: str) -> None:
        """Tell something above the bar."""
        self._bar.console.print(line, markup=False)

    def on_progress(self, progress: Progress) -> None:
        """Add rows that have just finished."""
        self.sum = self.sum + progress
        hits = f"{self.sum.hits / self.sum.scored:.3f}" if self.sum.scored else "–"
        elapsed = self._bar.tasks[0].elapsed or 0.0
        rate = f"{self.sum.questions / elapsed:.1f}/s" if elapsed else ""
        self._bar.update(self._task, completed=self.sum.questions, hits=hits, rate=rate)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._bar.live.is_started:
            self._bar.stop()
