"""Run folders in a real object store: the rows of a local one, also after a kill, and every command reads them."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import time
from collections.abc import Iterator, Sequence
from pathlib import Path

import polars as pl
import pytest
from fsspec.core import url_to_fs

from pipeline.errors import MISTAKE, OUTAGE
from pipeline.llm.prompt import Completion
from pipeline.traces import journal
from pipeline.traces.folder import RunFolder
from pipeline.traces.journal import Journal
from pipeline.traces.storage import UPath, read_all, storage_path
from tests.integration.object_store import SECRET, object_store
from tests.support import KGQA, TIMES, until

pytestmark = pytest.mark.exhaustive

QUESTIONS = ["method=srp", "dataset=synthetic", "run.limit=64", "engine.shard_size=4"]
ORACLE = ["llm=oracle", "llm.error_rate=0.2"]
NOT_COMPARED = {*TIMES, "texts", "trail"}


@pytest.fixture(scope="module", autouse=True)
def bucket(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """An empty bucket, named by the environment as any other."""
    with (
        object_store(tmp_path_factory.mktemp("swift")) as store,
        pytest.MonkeyPatch.context() as environment,
    ):
        for name, value in store.environment.items():
            environment.setenv(name, value)
        files, _ = url_to_fs("s3://runs")
        files.mkdir("runs")
        yield "s3://runs"


@pytest.fixture(scope="module")
def local(tmp_path_factory: pytest.TempPathFactory) -> Path:
    run = tmp_path_factory.mktemp("local") / "run"
    evaluate(run)
    return run


@pytest.fixture(scope="module")
def stored(bucket: str) -> UPath:
    """A run in the bucket whose driver was killed in the middle, and the same command after that."""
    words = [*QUESTIONS, *ORACLE, "engine.concurrency=4", "llm.latency_s=0.05", f"run.dir={bucket}/killed"]
    command = [*KGQA, "evaluate", *words]
    folder = run_folder(f"{bucket}/killed")
    with subprocess.Popen(command, start_new_session=True, stderr=subprocess.DEVNULL) as driver:
        while driver.poll() is None and not folder.finished():
            time.sleep(0.05)
        os.killpg(driver.pid, signal.SIGKILL)
    assert 0 < len(folder.finished()) < 16
    assert folder.read_summary() is None
    subprocess.run(command, check=True)
    return folder.path


def evaluate(run: Path | str, *overrides: str, llm: Sequence[str] = ORACLE) -> None:
    kgqa("evaluate", *QUESTIONS, *llm, *overrides, f"run.dir={run}")


def run_folder(url: str | Path) -> RunFolder:
    return RunFolder(storage_path(url))


def table(run: RunFolder) -> pl.DataFrame:
    """All that a run did, without times, and with its calls in no order: topic entities are explored concurrently."""
    frame = pl.concat(map(pl.read_parquet, read_all(run.traces))).sort("question_id")
    keys = pl.col("steps").list.eval(pl.element().struct.field("key").drop_nulls().sort())
    return frame.select(name for name in frame.columns if name not in NOT_COMPARED).with_columns(keys)


def kgqa(*words: object) -> str:
    done = subprocess.run([*KGQA, *map(str, words)], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_a_killed_run_goes_on_by_its_command_and_has_the_rows_of_a_local_one(local: Path, stored: UPath) -> None:
    assert table(RunFolder(stored)).equals(table(RunFolder(local)))
    assert list((stored / "drafts").glob("*")) == []


def test_every_command_reads_it_and_the_next_run_reuses_it(local: Path, stored: UPath, tmp_path: Path) -> None:
    shown = kgqa("evaluate", stored / "run.yaml")
    assert kgqa("score", stored) == shown, "finished: nothing was run again"
    kgqa("report", stored)
    assert "srp on synthetic" in (stored / "report.html").read_text()
    compared = json.loads(kgqa("compare", local, stored, "json=true"))
    assert [point["verdict"] for point in compared["points"]] == ["same"]
    evaluate(tmp_path / "again", f"run.reuse=[{stored}]")
    assert (RunFolder(tmp_path / "again").read_summary() or {})["physical_llm_calls"] == 0
    evaluate(tmp_path / "replayed", llm=["llm=replay", f"llm.run={stored}"])
    assert table(RunFolder(tmp_path / "replayed")).equals(table(RunFolder(local)))


def test_ray_workers_write_to_it(local: Path, bucket: str) -> None:
    evaluate(f"{bucket}/ray", "engine=ray", "engine.workers=2", "engine.concurrency=4")
    run = run_folder(f"{bucket}/ray")
    assert table(run).equals(table(RunFolder(local)))
    assert list((run.path / "drafts").glob("*")) == []


async def test_the_next_worker_has_the_calls_that_are_a_period_old(
    bucket: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(journal, "PERIOD_S", 0.01)
    run = run_folder(f"{bucket}/draft")
    async with Journal(run, 3) as first:
        for number in range(3):
            await first.append("q", f"k{number}", Completion(f"reply {number}"))
            await until(lambda so_far=number: len(run.journals(3)) == so_far + 1)
        async with Journal(run, 3) as second:  # the first still lives: a straggler
            assert second.calls("q") == {f"k{number}": Completion(f"reply {number}") for number in range(3)}
            await second.discard()
        assert run.journals(3) == []


def test_no_file_of_a_run_holds_the_credentials(stored: UPath) -> None:
    contents = [path.read_bytes() for path in stored.rglob("*") if path.is_file()]
    assert len(contents) > 16
    assert not [each for each in contents if SECRET.encode() in each]


@pytest.mark.parametrize(
    ("bucket", "changed", "code"),
    [
        ("nowhere", {}, MISTAKE),
        ("runs", {"AWS_ENDPOINT_URL": "http://127.0.0.1:9"}, OUTAGE),
        ("runs", {"AWS_SECRET_ACCESS_KEY": "wrong"}, MISTAKE),
    ],
)
def test_what_cannot_be_reached_is_one_sentence(bucket: str, changed: dict[str, str], code: int) -> None:
    command = [*KGQA, "evaluate", f"run.dir=s3://{bucket}/x"]
    done = subprocess.run(command, env=os.environ | changed, capture_output=True, text=True, check=False)
    assert done.returncode == code
    assert done.stderr.startswith(f"kgqa: s3://{bucket}/x")
    assert " cannot be reached: " in done.stderr
    assert done.stderr.count("\n") == 1
