"""infra/slurm/run.sbatch on a real Slurm: a run over two nodes, which goes on after its job was requeued."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from pipeline.traces.folder import RunFolder
from tests.integration.loopback_network import wait_for
from tests.integration.slurm import Slurm, missing, slurm

pytestmark = [pytest.mark.exhaustive, pytest.mark.needs_ray]

SCRIPT = Path(__file__).resolve().parents[3] / "infra" / "slurm" / "run.sbatch"
QUESTIONS = 96
RUN = (
    *("evaluate", "method=srp", "llm=oracle", "llm.error_rate=0.2", f"run.limit={QUESTIONS}"),
    *("engine=ray", "engine.workers=2", "engine.concurrency=2", "engine.shard_size=8"),
)


@pytest.fixture(scope="module")
def nodes() -> Iterator[Slurm]:
    """A real Slurm. In CI its absence is a failure."""
    if lacking := missing():
        message = f"not installed: {', '.join(lacking)} (infra/install-slurm.sh)"
        if os.environ.get("CI"):
            pytest.fail(message)
        pytest.skip(message)
    with slurm() as running:
        yield running


def submit(nodes: Slurm, output: Path, *words: str) -> str:
    return nodes.command("sbatch", "--parsable", "--nodes=2", f"--output={output}", SCRIPT, *words).strip()


@pytest.mark.large  # four minutes: Ray starts three times where no name can be resolved
def test_a_requeued_job_continues_its_run(nodes: Slurm, tmp_path: Path) -> None:
    output, folder = tmp_path / "out", tmp_path / "run"
    job = submit(nodes, output, *RUN, f"run.dir={folder}")
    shards = folder / "traces"
    wait_for(lambda: any(shards.glob("**/*.parquet")), 300)
    kept = {file: file.stat().st_mtime_ns for file in shards.glob("**/*.parquet")}
    assert nodes.job(job)["JobState"] == "RUNNING", "there is something left to do"
    nodes.command("scancel", "--signal=USR1", "--batch", job)  # what Slurm sends before the time is over
    wait_for(lambda: nodes.job(job)["JobState"] not in ("RUNNING", "COMPLETING", "PENDING"), 300)
    said = output.read_text()
    assert nodes.job(job)["JobState"] == "COMPLETED", said
    assert nodes.job(job)["Restarts"] == "1"
    assert {file: file.stat().st_mtime_ns for file in kept} == kept, "finished shards are not answered again"
    summary = RunFolder(folder).read_summary()
    assert summary is not None
    assert summary["points"][0]["questions"] == QUESTIONS


def test_a_command_that_a_requeued_job_could_not_continue_is_refused(nodes: Slurm, tmp_path: Path) -> None:
    output = tmp_path / "out"
    job = submit(nodes, output, *RUN)
    wait_for(lambda: nodes.job(job)["JobState"] == "FAILED", 60)
    assert nodes.job(job)["ExitCode"] == "2:0"
    assert "run.dir=FOLDER is missing" in output.read_text()
