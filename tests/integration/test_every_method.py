"""Every method, in one fused sweep: the same rows on Ray, with a Virtuoso server, alone, and after a kill."""

from __future__ import annotations

import os
import signal
import subprocess
import time
import uuid
from collections.abc import Callable
from pathlib import Path

import polars as pl
import pytest

from pipeline.cli.main import main
from pipeline.config import default
from pipeline.kg.virtuoso import VirtuosoServer
from pipeline.simulation.world.world import SyntheticWorld
from pipeline.traces.folder import RunFolder
from tests.integration.conftest import RayCluster
from tests.integration.processes import MARK
from tests.support import AS_RUN, KGQA, METHODS

pytestmark = pytest.mark.exhaustive

QUESTIONS = 8
WORDS = (
    *("dataset=synthetic", "dataset.triples=2000", f"run.limit={QUESTIONS}", "engine.shard_size=2"),
    *("llm=oracle", "llm.error_rate=0.2", "llm.malformed_rate=0.05"),
)
RAY = ("engine=ray", "engine.workers=2", "engine.concurrency=4")


def sweep(run: Path, *overrides: str, methods: tuple[str, ...] = METHODS) -> list[str]:
    return ["sweep", f"method={','.join(methods)}", *WORDS, f"run.dir={run}", *overrides]


def rows(run: Path) -> pl.DataFrame:
    """The rows of a sweep, by method and question, with the number of calls of each role."""
    frame = pl.read_parquet(RunFolder(run).traces)
    roles = pl.col("steps").list.eval(pl.element().struct.field("role").sort()).alias("roles")
    return frame.with_columns(roles).drop(*AS_RUN, "point").sort("method", "question_id")


@pytest.fixture(scope="module")
def together(tmp_path_factory: pytest.TempPathFactory) -> pl.DataFrame:
    run = tmp_path_factory.mktemp("local") / "run"
    assert main(sweep(run)) == 0
    found = rows(run)
    assert found.height == QUESTIONS * len(METHODS)
    assert not (found["status"] == "failed").any()
    return found


def different(found: pl.DataFrame, expected: pl.DataFrame) -> list[tuple[str, str, str]]:
    """The method, question and column of each value that differs."""
    pairs = zip(found.iter_rows(named=True), expected.iter_rows(named=True), strict=True)
    return [
        (row["method"], row["question_id"], column)
        for row, other in pairs
        for column in row
        if row[column] != other[column]
    ]


@pytest.mark.parametrize("engine", [pytest.param(RAY, id="ray")])  # the id puts it into the process of all tests of Ray
def test_with_virtuoso(
    engine: tuple[str, ...],
    together: pl.DataFrame,
    virtuoso_factory: Callable[..., list[VirtuosoServer]],
    ray_cluster: RayCluster,
    tmp_path: Path,
) -> None:
    (server,) = virtuoso_factory(default(SyntheticWorld, triples=2000).triples(), replicas=1)
    graph = ("kg=sparql", f"kg.endpoints=[{server.endpoint}]")
    words = sweep(tmp_path / "run", *engine, f"engine.address={ray_cluster.address}", *graph)
    subprocess.run([*KGQA, *words], check=True)
    assert different(rows(tmp_path / "run"), together) == []


@pytest.mark.parametrize("method", METHODS)
def test_each_alone(method: str, together: pl.DataFrame, tmp_path: Path) -> None:
    assert main(sweep(tmp_path / "run", methods=(method,))) == 0
    alone = rows(tmp_path / "run")
    assert different(alone, together.filter(pl.col("method").is_in(alone["method"].unique().implode()))) == []


def test_killed_and_resumed(together: pl.DataFrame, tmp_path: Path) -> None:
    run, mark = tmp_path / "run", uuid.uuid4().hex
    slow = sweep(run, "llm.latency_s=0.02", "engine.concurrency=1")
    with subprocess.Popen([*KGQA, *slow], env=os.environ | {MARK: mark}) as driver:
        while not ((run / "traces").is_dir() and RunFolder(run).finished()):
            assert driver.poll() is None, "the run ended before it could be killed"
            time.sleep(0.01)
        os.kill(driver.pid, signal.SIGKILL)
    unfinished = rows(run).height
    assert 0 < unfinished < together.height
    assert main(slow) == 0
    assert different(rows(run), together) == []
