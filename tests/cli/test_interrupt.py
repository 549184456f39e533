"""Ctrl-C: exit code 130, one line, no process left; the same command then continues the run."""

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

from tests.support import KGQA

QUESTIONS, ANSWERED, CONCURRENCY = 24, 10, 4
LOCAL = [f"engine.concurrency={CONCURRENCY}", "engine.shard_size=4"]
RAY = ["engine=ray", "engine.workers=1", *LOCAL]


@pytest.mark.parametrize(
    "engine", [pytest.param(LOCAL, id="local"), pytest.param(RAY, id="ray", marks=pytest.mark.exhaustive)]
)
def test_ctrl_c_ends_a_run_and_the_same_command_finishes_it(
    engine: list[str], model_server: Callable[..., tuple], environment: dict[str, str], tmp_path: Path
) -> None:
    model, words = model_server(holds_after=ANSWERED)
    run = ["method=cot", "dataset.triples=2000", f"run.limit={QUESTIONS}", "run.dir=run"]
    command = [*KGQA, "evaluate", *run, *engine, *words]
    marker = uuid.uuid4().hex
    own = {**environment, "KGQA_TEST_MARK": marker}
    streams = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, "text": True}
    with subprocess.Popen(command, env=own, cwd=tmp_path, start_new_session=True, **streams) as process:
        assert model.holding.wait(120), "the run never made so many requests"
        os.killpg(process.pid, signal.SIGINT)  # as a terminal does: to the command and all that it started
        out, err = process.communicate()
    assert process.returncode == 130
    assert out == ""
    assert "Traceback" not in err
    said = "kgqa: stopped; run the same command again to continue"
    assert [line for line in err.splitlines() if "kgqa: " in line] == [err.splitlines()[-1]] == [said]
    assert_gone(marker)

    model.release()
    ended = subprocess.run(command, env=own, cwd=tmp_path, **streams, check=False)
    assert ended.returncode == 0, ended.stderr
    ids = pl.read_parquet(tmp_path / "run" / "traces" / "*.parquet")["question_id"]
    assert len(ids) == ids.n_unique() == QUESTIONS
    assert model.requests <= QUESTIONS + CONCURRENCY, "only what was in flight is asked again"


def assert_gone(marker: str) -> None:
    """No process of the run is left, after the moment that a cluster takes to go down."""
    patience = time.monotonic() + 30
    while (left := processes(marker)) and time.monotonic() < patience:
        time.sleep(0.05)
    assert left == []


def processes(marker: str) -> list[str]:
    """The running processes with the marker in their environment."""
    found = []
    for folder in Path("/proc").glob("[0-9]*"):
        try:
            if marker.encode() in (folder / "environ").read_bytes():
                found.append(folder.name)
        except OSError:  # it has just gone
            continue
    return found
