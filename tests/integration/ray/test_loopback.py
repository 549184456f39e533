"""Every server that a command starts listens on the loopback interface alone, unless its user says otherwise."""

from __future__ import annotations

import os
import signal
import subprocess
import time
import uuid
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

import pytest

from pipeline.net.subprocess_server import free_ports
from tests.integration.processes import MARK, is_loopback, listening
from tests.support import KGQA

pytestmark = pytest.mark.exhaustive

START = Path(__file__).resolve().parents[3] / "infra" / "virtuoso" / "start.sh"


@contextmanager
def running(command: Sequence[str | Path], folder: Path, **environment: str) -> Iterator[str]:
    """A command in a process group of its own; gives the mark of all that it starts."""
    mark = uuid.uuid4().hex
    own = {**os.environ, MARK: mark, **environment}
    with subprocess.Popen(command, cwd=folder, env=own, start_new_session=True, stdout=subprocess.DEVNULL) as process:
        try:
            yield mark
        finally:
            os.killpg(process.pid, signal.SIGINT)


def once_all_listen(mark: str, commands: Sequence[str]) -> dict[str, set[tuple[str, int]]]:
    """What listens on what, once all these commands do."""
    patience = time.monotonic() + 120
    while time.monotonic() < patience:
        found = listening(mark)
        if all(any(word in name for name in found) for word in commands):
            return found
        time.sleep(0.1)
    pytest.fail(f"not all of {commands} listen: {found}")


COMMANDS = {
    "a cluster that a run starts": (
        [*KGQA, "evaluate", "llm=oracle", "llm.latency_s=60", "engine=ray", "engine.workers=1", "run.dir=run"],
        ["gcs_server", "raylet", "DashboardAgent", "RuntimeEnvAgent", "QuestionWorker"],
    ),
    "kgqa graph serve": ([*KGQA, "graph", "serve", "dataset=synthetic", "dataset.triples=1000"], ["virtuoso-t"]),
    "start.sh": ([START, "database"], ["virtuoso-t"]),
}


@pytest.mark.parametrize("name", COMMANDS)
def test_servers_listen_on_loopback_only(virtuoso_installed: None, name: str, tmp_path: Path) -> None:
    command, servers = COMMANDS[name]
    sql, http = free_ports(2)
    with running(command, tmp_path, SQL_PORT=str(sql), HTTP_PORT=str(http), MEMORY_GB="0.1") as mark:
        found = once_all_listen(mark, servers)
    assert {on for addresses in found.values() for on in addresses if not is_loopback(on)} == set()
