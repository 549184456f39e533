"""The Ray executor: the same rows as the local one, also when a worker is killed in the middle of its shards."""

from __future__ import annotations

import os
import signal
import subprocess
import time
import uuid
from pathlib import Path

import polars as pl
import pytest

from pipeline.traces.folder import RunFolder
from tests.support import KGQA

RUN = ["method=srp", "dataset=sample", "llm=oracle", "llm.error_rate=0.2", "run.limit=64", "engine.shard_size=4"]
RAY = ["engine=ray", "engine.workers=2", "engine.concurrency=4"]
TIMES = {"llm_s", "kg_s", "wall_s", "texts"}


def evaluate(run: Path, *overrides: str) -> list[str]:
    return [*KGQA, "evaluate", *RUN, f"run.dir={run}", *overrides]


def table(run: Path) -> pl.DataFrame:
    """All that a run did, without times, and with its calls in no order: topic entities are explored concurrently."""
    frame = pl.read_parquet(RunFolder(run).traces).sort("question_id")
    keys = pl.col("steps").list.eval(pl.element().struct.field("key").drop_nulls().sort())
    return frame.select(name for name in frame.columns if name not in TIMES).with_columns(keys)


@pytest.fixture(scope="module")
def local(tmp_path_factory: pytest.TempPathFactory) -> pl.DataFrame:
    run = tmp_path_factory.mktemp("local") / "run"
    subprocess.run(evaluate(run), check=True)
    return table(run)


def test_two_workers_give_the_rows_of_the_local_engine(local: pl.DataFrame, tmp_path: Path) -> None:
    subprocess.run(evaluate(tmp_path / "run", *RAY), check=True)
    assert table(tmp_path / "run").equals(local)


def test_a_killed_worker_costs_no_question(local: pl.DataFrame, tmp_path: Path) -> None:
    run, mark = tmp_path / "run", uuid.uuid4().hex
    environment = os.environ | {"KGQA_TEST_MARK": mark}
    with subprocess.Popen(evaluate(run, *RAY, "llm.latency_s=0.05"), env=environment) as driver:
        victim = wait_for_a_busy_worker(run, mark, driver)
        os.kill(victim, signal.SIGKILL)
        assert driver.wait(timeout=180) == 0
    assert table(run).equals(local)
    assert list((run / "drafts").iterdir()) == []


def test_a_killed_driver_goes_on_by_the_same_command(local: pl.DataFrame, tmp_path: Path) -> None:
    run, mark = tmp_path / "run", uuid.uuid4().hex
    command = evaluate(run, *RAY, "llm.latency_s=0.05")
    with subprocess.Popen(command, env=os.environ | {"KGQA_TEST_MARK": mark}, start_new_session=True) as driver:
        wait_for_a_busy_worker(run, mark, driver)
        os.kill(driver.pid, signal.SIGKILL)  # its cluster has no time to clear away what names it
    subprocess.run(command, check=True, timeout=180)
    assert table(run).equals(local)
    assert list((run / "drafts").iterdir()) == []
    assert question_workers(mark) == []


def wait_for_a_busy_worker(run: Path, mark: str, driver: subprocess.Popen[bytes]) -> int:
    """The process id of a question worker of this run, once its first shards are committed."""
    while driver.poll() is None:
        if (run / "traces").is_dir() and RunFolder(run).finished():
            return next(pid for pid in question_workers(mark))
        time.sleep(0.01)
    raise AssertionError("the run ended before a worker could be killed")


def question_workers(mark: str) -> list[int]:
    """Ray names an actor's process after its class; the mark in its environment says that it is ours."""
    found = []
    for process in Path("/proc").iterdir():
        try:
            is_worker = b"ray::QuestionWorker" in (process / "cmdline").read_bytes()
            if is_worker and mark.encode() in (process / "environ").read_bytes():
                found.append(int(process.name))
        except OSError:  # not a process, or gone
            continue
    return found
