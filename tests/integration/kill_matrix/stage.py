"""What the rows of the kill matrix share: the stage of a run, its faults, and how a finished run is judged.

Most rows run the same questions over two model servers and two Virtuoso replicas. A model server repeats the replies of
an earlier run and is a process of its own, so its log tells what was really asked, by runs that were killed as well.
Faults strike once so many calls were seen: in the middle of the run, however fast it is. `tests/integration/models` has
the rows with a real Llama.
"""

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

import polars as pl

from pipeline.kg.virtuoso import VirtuosoServer
from pipeline.traces.folder import RunFolder
from tests.integration.conftest import KillMatrix
from tests.integration.processes import MARK
from tests.integration.rows import Rows, read
from tests.support import KGQA

CONCURRENCY = 8
QUESTIONS = 48
# One topic entity per question, so that a question has one call in flight at a time. So few edits that no prompt is
# asked twice: the recorded server has one reply for each.
RUN = [
    *("method=srp", "method.retries=1"),
    "dataset=synthetic",
    "dataset.types=[1-hop,2-hop,3-hop]",
    f"run.limit={QUESTIONS}",
    f"engine.concurrency={CONCURRENCY}",
    "engine.shard_size=8",
]


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


Judge = Callable[..., None]
"""Enters a finished run into the matrix: `judge(row, what was done, what the run printed, most_repeated=…)`."""


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


def middle(undisturbed: Undisturbed) -> int:
    """How many calls a run makes before most faults."""
    return undisturbed.requests.total() // 3


def meet_a_full_disk(stage: Stage, undisturbed: Undisturbed, judge: Judge, words: Sequence[str] = ()) -> None:
    """Fill the file system of the run folder in mid-run, make room, and go on."""
    filler = stage.run / "filler"
    with stage.struck(*words, after=middle(undisturbed)) as driver:
        fill(filler)
        printed, _ = driver.communicate(timeout=120)
    assert (driver.returncode, printed) == (2, "")
    [sentence] = [line for line in stage.said.splitlines() if "kgqa: " in line]
    assert "cannot be written: No space left on device" in sentence
    assert "Traceback" not in stage.said
    for shard in RunFolder(stage.run).finished():
        assert pl.read_parquet(RunFolder(stage.run).shard(shard)).height
    filler.unlink()
    judge("full disk", "run ends with exit code 2; same command", stage.go_on(*words), most_repeated=CONCURRENCY)


def fill(file: Path) -> None:
    """Take all the room that there is left."""
    with file.open("wb", buffering=0) as stream:
        try:
            while True:
                stream.write(bytes(1 << 16))
        except OSError:
            pass
