"""The Ray executor: a sweep whose worker is killed, and benchmarks. `test_same_rows.py` compares its rows."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import time
import uuid
from concurrent.futures import ProcessPoolExecutor
from multiprocessing import get_context
from pathlib import Path
from typing import Any

import polars as pl
import pytest

from pipeline.cli.benchmarks.scheduling import scheduling
from pipeline.cli.benchmarks.servers import servers
from pipeline.cli.main import main
from pipeline.traces.folder import RunFolder
from tests.integration.processes import MARK, question_workers
from tests.support import KGQA, TIMES

RUN = ["dataset=synthetic", "llm=oracle", "llm.error_rate=0.2", "run.limit=32", "engine.shard_size=4"]
RAY = ["engine=ray", "engine.workers=2", "engine.concurrency=4"]
NOT_COMPARED = {*TIMES, "texts", "trail"}


def test_a_sweep_whose_worker_is_killed_gives_the_same_table(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    words = ["method=srp,r3", "method.depth=2,3", "method.retries=0,1", *RUN]
    assert main(["sweep", *words, f"run.dir={tmp_path / 'local'}"]) == 0
    undisturbed = capsys.readouterr().out
    run, mark = tmp_path / "run", uuid.uuid4().hex
    command = [*KGQA, "sweep", *words, *RAY, "llm.latency_s=0.05", f"run.dir={run}"]
    environment = os.environ | {MARK: mark}
    with subprocess.Popen(command, env=environment, stdout=subprocess.PIPE, text=True) as driver:
        os.kill(wait_for_a_busy_worker(run, mark, driver), signal.SIGKILL)
        shown, _ = driver.communicate(timeout=600)
        assert driver.returncode == 0
    expected = undisturbed.replace(str(tmp_path / "local"), str(run))
    assert shown == expected, "what Ray says of its worker is on stderr"
    assert points_of(run).equals(points_of(tmp_path / "local"))


def points_of(run: Path) -> pl.DataFrame:
    """The rows of a sweep without what depends on which of its points was the first to make a call."""
    frame = pl.read_parquet(RunFolder(run).traces).sort("point", "question_id")
    return frame.drop(*NOT_COMPARED, "steps", "llm_calls_shared", "kg_queries")


def wait_for_a_busy_worker(run: Path, mark: str, driver: subprocess.Popen[Any]) -> int:
    """The process id of a question worker of this run, once its first shards are committed."""
    while driver.poll() is None:
        if (run / "traces").is_dir() and RunFolder(run).finished():
            return question_workers(mark)[0]
        time.sleep(0.01)
    raise AssertionError("the run ended before a worker could be killed")


def test_rows_of_unfinished_shards_are_shown(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("pipeline.engine.ray.LOOK_S", 0.2)
    monkeypatch.setattr("pipeline.engine.progress.LINE_S", 0.0)
    words = ["method=cot", *RUN[:2], "run.limit=16", "engine.shard_size=16", "llm.latency_s=0.5"]
    assert (
        main(["evaluate", *words, "engine=ray", "engine.workers=1", "engine.concurrency=1", f"run.dir={tmp_path}/r"])
        == 0
    )
    shown = [
        int(number)
        for number in re.findall(r"questions 0/16 .* (\d+) more in unfinished shards", capsys.readouterr().err)
    ]
    assert shown == sorted(shown)
    assert len(set(shown)) > 3


def test_a_resource_that_a_cluster_of_our_own_cannot_have_is_named(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    words = ["method=cot", *RUN, *RAY, "engine.resources={nosuch: 1}", f"run.dir={tmp_path / 'run'}"]
    assert main(["evaluate", *words]) == 2
    said = capsys.readouterr().err
    assert "engine.resources names nosuch, which the Ray cluster that is started here does not have" in said


@pytest.mark.exhaustive
def test_the_benchmark_measures_how_fast_shards_are_handed_out() -> None:
    """In a process of its own: one that has started a Ray with a token cannot join one without, as other tests do."""
    with ProcessPoolExecutor(1, mp_context=get_context("spawn")) as process:
        figures = process.submit(scheduling, shards=50).result()
    assert all(value > 0 for value in figures.values())
    assert figures["ray_to_queue"] == figures["leases_per_s"] / figures["leases_without_ray_per_s"]


@pytest.mark.exhaustive
def test_the_benchmark_measures_model_servers_directly_and_through_one_ingress() -> None:
    figures = servers(counts=(1,), warm_s=0.5, measured_s=2.0)
    assert all(value > 0 for value in figures.values())
    assert figures["1_servers_one_ingress_to_sum_of_rates"] == figures["1_servers_one_ingress_requests_per_s"] / 40
    assert figures["1_servers_one_ingress_cpu_ms_per_request"] > figures["1_servers_cpu_ms_per_request"]
