"""The Ray executor: the same rows as the local one, also when a worker is killed in the middle of its shards."""

from __future__ import annotations

import os
import signal
import subprocess
import time
import uuid
from pathlib import Path
from typing import Any

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


@pytest.mark.parametrize("fate", [signal.SIGKILL, signal.SIGSTOP], ids=["killed", "hung"])
def test_a_worker_that_is_killed_or_hangs_costs_no_question(
    fate: signal.Signals, local: pl.DataFrame, tmp_path: Path
) -> None:
    run, mark = tmp_path / "run", uuid.uuid4().hex
    environment = os.environ | {"KGQA_TEST_MARK": mark}
    with subprocess.Popen(evaluate(run, *RAY, "llm.latency_s=0.05"), env=environment) as driver:
        os.kill(wait_for_a_busy_worker(run, mark, driver), fate)
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


def test_a_sweep_whose_worker_is_killed_gives_the_same_table(tmp_path: Path) -> None:
    words = ["method=srp,r3", "method.depth=2,3", "method.retries=0,1", *RUN[1:]]
    undisturbed = subprocess.run(
        [*KGQA, "sweep", *words, f"run.dir={tmp_path / 'local'}"], check=True, capture_output=True, text=True
    )
    run, mark = tmp_path / "run", uuid.uuid4().hex
    command = [*KGQA, "sweep", *words, *RAY, "llm.latency_s=0.05", f"run.dir={run}"]
    environment = os.environ | {"KGQA_TEST_MARK": mark}
    with subprocess.Popen(command, env=environment, stdout=subprocess.PIPE, text=True) as driver:
        os.kill(wait_for_a_busy_worker(run, mark, driver), signal.SIGKILL)
        shown, _ = driver.communicate(timeout=180)
        assert driver.returncode == 0
    assert shown.endswith(undisturbed.stdout), "after what Ray has to say of its worker"
    assert points_of(run).equals(points_of(tmp_path / "local"))


def points_of(run: Path) -> pl.DataFrame:
    """The rows of a sweep without what depends on which of its points was the first to make a call."""
    frame = pl.read_parquet(RunFolder(run).traces).sort("point", "question_id")
    return frame.drop(*TIMES, "steps", "llm_calls_shared", "kg_queries")


def wait_for_a_busy_worker(run: Path, mark: str, driver: subprocess.Popen[Any]) -> int:
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
