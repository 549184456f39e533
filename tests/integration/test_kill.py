"""`kill -9` at any moment, then the same command again: nothing lost, nothing twice, hardly a call repeated.

The model is a server of its own that counts every request, so it sees calls that a killed run made and forgot.
"""

from __future__ import annotations

import os
import random
import signal
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import polars as pl
import pytest

from pipeline.traces.folder import RunFolder
from tests.support import KGQA

CONCURRENCY = 8
QUESTIONS = 48
# One topic entity per question, so that a question has one call in flight at a time.
RUN = [
    "method=srp",
    "dataset=sample",
    "dataset.types=[1-hop,2-hop,3-hop]",
    f"run.limit={QUESTIONS}",
    f"engine.concurrency={CONCURRENCY}",
    "engine.shard_size=8",
]
SERVER = Path(__file__).with_name("recorded_server.py")
UNTIMED = ["question_id", "status", "answers", "answer_ids", "raw_answer", "hits_at_1", "f1", "llm_calls", "kg_lookups"]


def evaluate(*overrides: str) -> list[str]:
    return [*KGQA, "evaluate", *RUN, *overrides]


def table(run: Path) -> pl.DataFrame:
    """What a run answered, without what time it took."""
    return pl.scan_parquet(RunFolder(run).traces).select(UNTIMED).collect().sort("question_id")


@pytest.fixture(scope="module")
def recorded(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run whose prompts and replies the server repeats. The oracle errs, so that runs take every branch."""
    run = tmp_path_factory.mktemp("recorded") / "run"
    subprocess.run(evaluate("llm=oracle", "llm.error_rate=0.2", "llm.malformed_rate=0.1", f"run.dir={run}"), check=True)
    return run


@contextmanager
def server(recorded: Path, log: Path, latency_s: float = 0.01) -> Iterator[str]:
    """A recorded server in a process of its own; yields its override."""
    command = [sys.executable, str(SERVER), str(recorded), str(log), str(latency_s)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        try:
            yield f"llm.base_urls=[http://127.0.0.1:{process.stdout.readline().strip()}/v1]"
        finally:
            process.kill()


@pytest.fixture(scope="module")
def undisturbed(recorded: Path, tmp_path_factory: pytest.TempPathFactory) -> tuple[pl.DataFrame, Counter[str]]:
    """The table of a run that nobody kills, and the requests it made."""
    folder = tmp_path_factory.mktemp("undisturbed")
    with server(recorded, folder / "log") as urls:
        subprocess.run(evaluate("llm=endpoint", urls, f"run.dir={folder / 'run'}"), check=True)
    return table(folder / "run"), requests(folder / "log")


def requests(log: Path) -> Counter[str]:
    return Counter(log.read_text().split())


def wait_for_requests(log: Path, count: int, victim: subprocess.Popen[bytes]) -> None:
    """Return as soon as the server has seen `count` requests: a moment in the middle of the run, however fast it is."""
    while victim.poll() is None and (not log.exists() or log.read_bytes().count(b"\n") < count):
        time.sleep(0.002)


def tear_a_draft(run: Path, rng: random.Random) -> None:
    """Cut the last line of a draft anywhere, as a dying writer or file system would."""
    drafts = [path for path in (run / "drafts").glob("*.jsonl") if path.stat().st_size]
    if drafts:
        path = rng.choice(drafts)
        content = path.read_bytes()
        last_line = len(content) - content.rstrip(b"\n").rfind(b"\n") - 1
        path.write_bytes(content[: len(content) - rng.randint(1, last_line)])


@pytest.mark.parametrize("moment", range(20))
def test_killed_at_a_random_moment_the_same_command_finishes_the_same_table(
    moment: int, recorded: Path, undisturbed: tuple[pl.DataFrame, Counter[str]], tmp_path: Path
) -> None:
    expected, calls = undisturbed
    rng = random.Random(moment)
    torn = moment % 4 == 3
    with server(recorded, tmp_path / "log") as urls:
        command = evaluate("llm=endpoint", urls, f"run.dir={tmp_path / 'run'}")
        victim = subprocess.Popen(command, start_new_session=True, stderr=subprocess.DEVNULL)
        wait_for_requests(tmp_path / "log", rng.randrange(1, calls.total()), victim)
        assert victim.poll() is None, "the run ended before it could be killed"
        os.killpg(victim.pid, signal.SIGKILL)
        victim.wait()
        if torn:
            tear_a_draft(tmp_path / "run", rng)
        subprocess.run(command, check=True)
    assert table(tmp_path / "run").equals(expected)
    repeated = requests(tmp_path / "log") - calls
    assert requests(tmp_path / "log") & calls == calls
    assert repeated.total() <= CONCURRENCY + torn
    assert list((tmp_path / "run" / "drafts").iterdir()) == []
