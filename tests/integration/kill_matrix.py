"""What the rows of the kill matrix share: the stage of a run, and how a finished run is judged."""

from __future__ import annotations

import os
import signal
import subprocess
import time
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from pipeline.kg.virtuoso import VirtuosoServer
from tests.integration.conftest import KillMatrix
from tests.integration.processes import MARK
from tests.integration.rows import Rows, read
from tests.support import KGQA


@dataclass
class Stage:
    """What the run of one row stands on, and the command that runs it."""

    folder: Path
    """Its run folder, unless told otherwise, is `run` in here."""
    models: list[subprocess.Popen[str]]
    graphs: list[VirtuosoServer]
    words: list[str]
    mark: str
    """In the environment of every process of the run."""
    seen: Callable[[Stage], int] = lambda stage: stage.requests.total()
    """How many calls the run has made so far."""

    @property
    def run(self) -> Path:
        return self.folder / "run"

    @property
    def said(self) -> str:
        """What the last command wrote to stderr so far."""
        return (self.folder / "stderr").read_text(errors="replace")

    def start(self, *words: str) -> subprocess.Popen[str]:
        """Begin the run, or go on with it."""
        command = [*KGQA, "evaluate", *self.words, f"run.dir={self.run}", *words]
        environment = {**os.environ, MARK: self.mark, "COLUMNS": "100"}
        with (self.folder / "stderr").open("wb") as stderr:
            return subprocess.Popen(
                command, start_new_session=True, stdout=subprocess.PIPE, stderr=stderr, text=True, env=environment
            )

    @contextmanager
    def struck(self, *words: str, after: int) -> Iterator[subprocess.Popen[str]]:
        """Begin the run; the block runs once it has made so many calls."""
        with self.start(*words) as process:
            try:
                self.wait_until(lambda: self.seen(self) >= after, process)
                yield process
            finally:
                if process.poll() is None:
                    os.killpg(process.pid, signal.SIGKILL)

    def end(self, process: subprocess.Popen[str]) -> str:
        """Wait for the end of a run; returns its table, without the name of its folder."""
        printed, _ = process.communicate(timeout=600)
        assert process.returncode == 0, self.said
        return printed.replace(str(self.run), "RUN")

    def go_on(self, *words: str) -> str:
        """The same command again, to its end."""
        with self.start(*words) as process:
            return self.end(process)

    def wait_until(self, condition: Callable[[], bool], process: subprocess.Popen[str]) -> None:
        while not condition():
            assert process.poll() is None, f"the run ended too early: {self.said}"
            time.sleep(0.01)

    @property
    def requests(self) -> Counter[str]:
        """How often each prompt was asked."""
        log = self.folder / "requests"
        return Counter(log.read_text().split()) if log.exists() else Counter()


@dataclass(frozen=True)
class Undisturbed:
    """A run that nothing happens to."""

    rows: Rows
    printed: str
    requests: Counter[str]


@dataclass(frozen=True)
class Row:
    """A row of the matrix that is yet to be filled in."""

    matrix: KillMatrix
    what: str
    done: str

    def enter(self, stage: Stage, undisturbed: Undisturbed, printed: str, *, repeated: int | None = None) -> None:
        """Enter a finished run, and fail unless it is as if nothing had happened."""
        rows = read(stage.run)
        ids = [each["question_id"] for each in rows]
        # Before the table, Ray says on the same stream what became of its workers.
        equal = rows == undisturbed.rows and printed.endswith(undisturbed.printed)
        self.matrix.add(self.what, self.done, questions=len(set(ids)), repeated=repeated, equal=equal)
        assert len(ids) == len(undisturbed.rows)
        assert equal
        assert list((stage.run / "drafts").iterdir()) == []


@contextmanager
def stopped(processes: Sequence[int]) -> Iterator[None]:
    """Processes that do nothing any more: the kernel still accepts connections for them, and nobody answers."""
    for pid in processes:
        os.kill(pid, signal.SIGSTOP)
    try:
        yield
    finally:
        for pid in processes:
            os.kill(pid, signal.SIGCONT)
