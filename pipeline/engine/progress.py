"""The progress bar of a run, and the line that replaces it where there is no terminal."""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from datetime import timedelta
from math import inf
from types import TracebackType
from typing import Literal, Self

from rich.console import RenderableType
from rich.progress import BarColumn, MofNCompleteColumn, Progress, ProgressColumn, Task, TextColumn, TimeElapsedColumn
from rich.table import Table
from rich.text import Text

from pipeline.console import LINE_S, Console
from pipeline.engine.components import Backends
from pipeline.engine.worker_reports import LONG_WAIT_S, FinishedRows, LongCalls, LongLookups, Standing
from pipeline.evaluation.score_tables import percent
from pipeline.evaluation.statistics import wilson
from pipeline.percentages import percentage
from pipeline.text import counted, printable

_LEADING = 8
"""The number of configurations shown while a sweep runs."""
_RANKING_S = 0.5
"""Seconds between two rankings of the configurations."""
LOOK_S = 5.0
"""Seconds between two looks at what the workers are doing."""

# The first rows of a sweep, which begins with a thousand rows at once, say nothing about the speed of the others.
_EARLY_S = 60.0
"""The time left is unknown until so many seconds have passed, or until `_EARLY_SHARE` of the rows has finished."""
_EARLY_SHARE = 0.01

_RECENT = 8
"""The fewest rows by which the pace is known, if so many have finished."""
_RECENT_SHARE = 0.25
"""The share of the time, counted back from now, whose rows tell the pace."""

_UNKNOWN = "…"
"""What the bar shows until a row has finished."""


class Pace:
    """How fast rows finish: by those that have finished with new calls, and by how long the next one is awaited.

    Only the last quarter of the time counts, or more of it if fewer than `_RECENT` rows finished in it: the questions
    of the next dataset of a sweep may be harder, and the longest questions finish last.
    """

    def __init__(self) -> None:
        """Begin without a row."""
        self.rows = 0
        self.last_s = 0.0
        """Seconds from the start to the last row that finished."""
        self._history: deque[tuple[float, float, int]] = deque([(-1.0, 0.0, 0)])
        """For each second with a row: when its first and its last row finished, and the rows until then."""

    def finish(self, rows: int, elapsed: float) -> None:
        """Note that so many rows have finished until now."""
        self.rows, self.last_s = rows, elapsed
        began_s, _, _ = self._history[-1]
        if elapsed >= began_s + 1:
            self._history.append((elapsed, elapsed, rows))
        else:
            self._history[-1] = (began_s, elapsed, rows)

    def per_second(self, elapsed: float) -> float | None:
        """Return the rate; None until a row has finished. It falls while the next row takes longer than the mean."""
        if not self.rows or not elapsed:
            return None
        start_s, before = self._start(elapsed)
        rows, seconds = self.rows - before, self.last_s - start_s
        is_overdue = (elapsed - self.last_s) * rows > seconds
        return (rows + 1) / (elapsed - start_s) if is_overdue else rows / seconds

    def _start(self, elapsed: float) -> tuple[float, int]:
        """Return when the time that counts began, and the rows until then."""
        until = elapsed * (1 - _RECENT_SHARE)
        while len(self._history) > 1 and self._history[1][1] <= until and self.rows - self._history[1][2] >= _RECENT:
            self._history.popleft()
        _, start_s, before = self._history[0]
        return start_s, before

    def left_s(self, rows: float, elapsed: float) -> float | None:
        """Return the seconds that so many further rows will take; None until a row has finished.

        A row that takes longer than those before it is expected to take as long again as it has been awaited.
        """
        rate = self.per_second(elapsed)
        if rate is None:
            return None
        awaited = elapsed - self.last_s
        begun = min(1.0, awaited * rate)
        return max(0.0, (rows - begun) / rate, awaited if rows else 0.0)

    def is_slowing(self, elapsed: float) -> bool:
        """Whether rows finish at less than half of the mean rate: those that are left take longer than the others."""
        rate = self.per_second(elapsed)
        return rate is not None and 2 * rate * elapsed < self.rows


class _Rate(ProgressColumn):
    """The rate of the rows, at this moment."""

    def render(self, task: Task) -> Text:
        return Text(_rate_text(task))


class _TimeLeft(ProgressColumn):
    """The time until the last row, at this moment."""

    def render(self, task: Task) -> Text:
        left = _left_s(task)
        text = _UNKNOWN if left is None else str(timedelta(seconds=round(left)))
        sign = {"at least ": "≥ ", "about ": "~ ", "": ""}[_certainty(task)]
        return Text(f"{sign}{text}" if left is not None else text, style="progress.remaining")


def _rate_text(task: Task) -> str:
    rate = task.fields["pace"].per_second(task.elapsed or 0.0)
    if rate is None:
        return f"{_UNKNOWN}/s"
    units = ((1, "s"), (60, "min"), (3600, "h"))
    seconds, unit = next((each for each in units if rate * each[0] >= 1), units[-1])
    return f"{rate * seconds:.1f}/{unit}"


def _left_s(task: Task) -> float | None:
    pace, total, elapsed = task.fields["pace"], task.total or 0, task.elapsed or 0.0
    if elapsed < _EARLY_S and pace.rows < _EARLY_SHARE * total:
        return None
    left: float | None = pace.left_s(total - task.completed, elapsed)
    return left if left is None or left >= 1 else None  # the mean says nothing of the last rows, which take longest


def _certainty(task: Task) -> Literal["at least ", "about ", ""]:
    """Return the words before the time left."""
    if task.fields["pace"].is_slowing(task.elapsed or 0.0):
        return "at least "
    return "about " if task.fields["is_uneven"] else ""


class _Bar(Progress):
    """A progress bar, and below it what the workers are doing, and the leading configurations of a sweep."""

    open_rows = 0
    """Rows of unfinished shards that have finished."""
    waits = ""
    """What waits long for a reply."""
    standings: Table | None = None

    @property
    def doing(self) -> str:
        """What the workers are doing; empty if nothing is known."""
        rows = f"{self.open_rows:,} more in unfinished shards" if self.open_rows else ""
        return "; ".join(filter(None, (rows, self.waits)))

    def get_renderables(self) -> Iterable[RenderableType]:
        yield from super().get_renderables()
        if self.doing:
            yield Text(self.doing)
        if self.standings is not None and not self.finished:
            yield self.standings


class RunProgress:
    """Shows rate, time left and the Hits@1 of the finished questions; of a sweep, that of the leading configurations.

    A mean over different configurations would be the score of none. The score is named `Hits@1 of 40 so far`: short
    questions finish first, so it is that of the run only at its end.
    A bar on a terminal; otherwise, as in the log of a cluster's job, a plain line from time to time.
    """

    def __init__(
        self,
        console: Console,
        *,
        total: int,
        done: int = 0,
        on_opened: Callable[[Sequence[Backends]], None],
        confidence: float,
        names: Sequence[str] = (),
        is_resumed: bool = False,
        checks: Sequence[Callable[[FinishedRows], str | None]] = (),
    ) -> None:
        """Create the bar. It is drawn when the first worker has opened its components.

        Args:
            console: Where to draw.
            total: The number of rows, with those of an earlier attempt.
            done: The rows of an earlier attempt.
            on_opened: Called with the backends of each worker. It stops the run by raising.
            confidence: Coverage of the intervals of the leading configurations, between 0 and 1.
            names: The names of the configurations, if there are several.
            is_resumed: Whether earlier attempts had made calls or finished shards, so that the questions are fixed.
            checks: Called with rows that have just finished. They return a line to print, and stop the run by raising.
        """
        self._checks = checks
        self._on_opened = on_opened
        self._names = names
        self._is_resumed = is_resumed
        self._confidence = confidence
        self._done = done
        self.sum = FinishedRows()
        self._bar = _Bar(
            TextColumn("{task.description}"),
            BarColumn(bar_width=12),
            MofNCompleteColumn(),
            _Rate(),
            TimeElapsedColumn(),
            _TimeLeft(),
            TextColumn("{task.fields[hits]}"),
            console=console,
        )
        self._ranked_at = self._printed_at = -inf
        self._pace = Pace()
        self._unit = "questions × configurations" if names else "questions"
        self._task = self._bar.add_task(
            self._unit, total=total, completed=done, start=False, pace=self._pace, hits="", is_uneven=False
        )

    def on_opened(self, backends: Sequence[Backends]) -> None:
        """Check the backends of a worker, and start the bar if it is the first one."""
        self._on_opened(backends)
        (task,) = self._bar.tasks
        if not task.started:
            if self._names:
                left = round((task.total or 0) - task.completed)
                asked = f"{counted(left, 'question')} of {counted(len(self._names), 'configuration')}"
                fewer = "" if self._is_resumed else "; run.limit=… asks fewer"
                # Rows that cannot be read are known only when they are.
                self.say(f"up to {asked} to answer (each configuration counts its own){fewer}")
            self._printed_at = time.monotonic()
            self._bar.start_task(self._task)
            if self._draws:
                self._bar.start()

    def say(self, line: str) -> None:
        """Print a line above the bar."""
        self._bar.console.print(printable(line), markup=False)

    def on_drop(self, line: str, rows: int) -> None:
        """Print that configurations were dropped, and expect `rows` fewer."""
        self.say(line)
        if (total := self._bar.tasks[0].total) is not None:
            self._bar.update(self._task, total=max(self._rows, total - rows))

    def on_complete(self) -> None:
        """Expect no more rows: some of the expected ones could not be read."""
        self._bar.update(self._task, total=self._rows)

    def on_progress(self, progress: FinishedRows) -> None:
        """Add rows that have just finished. Raises what one of the `checks` raises."""
        self.sum = self.sum + replace(progress, failing=frozenset())
        self._bar.open_rows = max(0, self._bar.open_rows - progress.questions)  # those of a shard until now
        for check in self._checks:
            if line := check(progress):
                self.say(line)
        # A shard that was nearly finished when the run was stopped says nothing about the speed of the others.
        if progress.questions > 2 * progress.replayed:
            self._pace.finish(self.sum.questions - self.sum.replayed, self._bar.tasks[0].elapsed or 0.0)
        self._bar.update(self._task, completed=self._rows, hits=self._hits, is_uneven=self._is_uneven)
        if not self._draws:
            self._print_periodically()
        elif self._names and time.monotonic() > self._ranked_at + _RANKING_S:
            self._ranked_at = time.monotonic()
            self._bar.standings = standings(self.sum, self._names, self._confidence)

    def on_standing(self, standing: Standing) -> None:
        """Show what the workers are doing, such as what waits long for a reply: nothing else may move meanwhile."""
        waits = [each for each in (standing.calls, standing.lookups) if each is not None]
        self._bar.waits = "; ".join(map(_waiting_text, waits))
        self._bar.open_rows = sum(standing.open_rows.values())
        if not self._draws and self._bar.tasks[0].started:
            self._print_periodically()

    @property
    def _rows(self) -> int:
        """The finished rows, with those of an earlier attempt."""
        return self._done + self.sum.questions

    @property
    def _hits(self) -> str:
        """The Hits@1 of what has finished, with its number; empty for a sweep, or if nothing was scored."""
        if self._names or not self.sum.scored:
            return ""
        attempt = " in this attempt" if self._done else ""
        return f"Hits@1 of {self.sum.scored:,}{attempt} so far {percent(self.sum.hits / self.sum.scored)}"

    @property
    def _is_uneven(self) -> bool:
        """Whether a configuration has finished less than half as many rows as another one: its pace is unknown."""
        finished = [self.sum.of_configurations.get(number, (0.0, 0))[1] for number in range(len(self._names))]
        return 2 * min(finished, default=0) < max(finished, default=0)

    @property
    def _draws(self) -> bool:
        return self._bar.console.is_terminal

    def _print_periodically(self) -> None:
        if time.monotonic() > self._printed_at + LINE_S:
            self._printed_at = time.monotonic()
            self.say(self._line())

    def _line(self) -> str:
        task = self._bar.tasks[0]
        seconds = None if task.finished else _left_s(task)
        left = f"{_certainty(task)}{seconds:,.0f} s left" if seconds else ""
        failed = f"{self.sum.failed:,} failed" if self.sum.failed else ""
        done = f"{self._unit} {self._rows:,}/{task.total:,.0f}"
        parts = (done, _rate_text(task), left, self._hits, failed, self._bar.doing)
        return " · ".join(filter(None, parts))

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._bar.standings, self._bar.waits, self._bar.open_rows = None, "", 0  # the final table follows
        if self._bar.live.is_started:
            self._bar.stop()
        elif self._bar.tasks[0].started:
            self.say(self._line())


def _waiting_text(wait: LongCalls | LongLookups) -> str:
    waiting = f"waiting more than {LONG_WAIT_S:g} s for a reply of "
    if isinstance(wait, LongLookups):
        waiting += f"the graph: {wait.servers[0]}"
        if others := len(wait.servers) - 1:
            waiting += f" and {counted(others, 'other server')}"
        return printable(f"{waiting} for {wait.longest_s:,.0f} s")
    waiting += "the oracle, which asks the graph" if wait.is_oracle else "the model"
    return printable(
        f"{waiting}: {counted(wait.questions, 'question')}, {wait.question_id} for {wait.longest_s:,.0f} s"
    )


def standings(finished: FinishedRows, names: Sequence[str], confidence: float) -> Table:
    """Return the leading configurations so far, with Wilson intervals of their Hits@1."""
    table = Table("leading configurations", "questions", "Hits@1", box=None, padding=(0, 2, 0, 0))
    scored = {number: (hits / asked, asked) for number, (hits, asked) in finished.of_configurations.items() if asked}
    for number, (mean, asked) in sorted(scored.items(), key=lambda each: (-each[1][0], each[0]))[:_LEADING]:
        low, high = wilson(mean, asked, confidence=confidence)
        table.add_row(
            Text(printable(names[number])), f"{asked:,}", f"{percentage(mean)}  {percentage(low)}–{percentage(high)}"
        )
    if len(scored) > _LEADING:
        table.add_row(f"… {len(scored) - _LEADING} more", "", "")
    return table
