"""What a Virtuoso container runs: a copy of a snapshot, served also after the server before it was killed."""

from __future__ import annotations

import os
import socket
import subprocess
import time
import urllib.parse
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from pipeline.config import default
from pipeline.kg import virtuoso
from pipeline.kg.virtuoso import VirtuosoConfig
from pipeline.rdf_terms import Terms
from pipeline.types import Triple

pytestmark = pytest.mark.exhaustive

REPLICA = Path(__file__).resolve().parents[2] / "infra" / "virtuoso" / "replica.sh"


@pytest.fixture(scope="module")
def snapshot(virtuoso_installed: None, tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("snapshot")
    facts = folder / "graph.nt"
    facts.write_text("".join(Terms().n_triple(Triple(f"m.{n}", "a.b", "m.0")) for n in range(7)))
    virtuoso.build_database([facts], folder / "database", default(VirtuosoConfig, memory_gb=0.1, threads=4))
    return folder / "database"


@contextmanager
def serving(folder: Path, snapshot: Path) -> Iterator[tuple[subprocess.Popen[bytes], str]]:
    ports = []
    for _ in range(2):
        with socket.socket() as free:
            free.bind(("127.0.0.1", 0))
            ports.append(str(free.getsockname()[1]))
    environment = os.environ | {"SQL_PORT": ports[0], "HTTP_PORT": ports[1], "MEMORY_GB": "0.1", "THREADS": "4"}
    with subprocess.Popen([REPLICA, folder, snapshot], env=environment) as server:
        try:
            endpoint = f"http://127.0.0.1:{ports[1]}/sparql"
            until = time.monotonic() + 120
            while not virtuoso.is_healthy(endpoint):
                assert server.poll() is None
                assert time.monotonic() < until
                time.sleep(0.1)
            yield server, endpoint
        finally:
            server.kill()


def facts(endpoint: str) -> str:
    query = {"query": "SELECT (COUNT(*) AS ?n) { ?s ?p <http://rdf.freebase.com/ns/m.0> }", "format": "text/csv"}
    with urllib.request.urlopen(endpoint, urllib.parse.urlencode(query).encode(), timeout=60) as response:
        return response.read().decode().split()[-1]


def test_a_killed_replica_comes_back_with_its_own_copy(snapshot: Path, tmp_path: Path) -> None:
    with serving(tmp_path / "data", snapshot) as (server, endpoint):
        assert facts(endpoint) == "7"
        server.kill()
        server.wait()
    # In a container each server is process 1, so that the lock that was left names one that runs.
    (tmp_path / "data" / "virtuoso.lck").write_text(f"VIRT_PID={os.getpid()}\n")
    with serving(tmp_path / "data", tmp_path / "no snapshot is needed again") as (_, endpoint):
        assert facts(endpoint) == "7"


def test_a_folder_without_a_database_is_told(tmp_path: Path) -> None:
    done = subprocess.run([REPLICA, tmp_path / "data"], capture_output=True, text=True, check=False)
    assert done.returncode == 2
    assert "holds no virtuoso.db: load a graph into it first" in done.stderr
