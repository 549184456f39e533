"""What a Virtuoso container runs: a copy of a complete snapshot, served also after its server was killed."""

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
from pipeline.kg.virtuoso import VirtuosoConfig, VirtuosoServer
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
def serving(folder: Path, *snapshot: Path) -> Iterator[tuple[subprocess.Popen[bytes], str]]:
    ports = []
    for _ in range(2):
        with socket.socket() as free:
            free.bind(("127.0.0.1", 0))
            ports.append(str(free.getsockname()[1]))
    environment = os.environ | {"SQL_PORT": ports[0], "HTTP_PORT": ports[1], "MEMORY_GB": "0.1", "THREADS": "4"}
    with subprocess.Popen([REPLICA, folder, *snapshot], env=environment) as server:
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
    assert "holds no virtuoso.db: load a graph into it first" in refusal(tmp_path / "data")


def refusal(*folders: Path) -> str:
    done = subprocess.run([REPLICA, *folders], capture_output=True, text=True, check=False, timeout=60)
    assert done.returncode == 2, "not served"
    return done.stderr


LOAD = "ld_add('{}', 'urn:kgqa:graph'); rdf_loader_run(); "


@pytest.mark.parametrize(
    ("sql", "killed", "refused"),
    [
        (LOAD + "checkpoint;", False, None),
        (LOAD + "checkpoint;", True, "is in use, or its server was killed (virtuoso.lck): "),
        (LOAD, False, "has changes after its last checkpoint (virtuoso.trx, "),
        (LOAD, True, "is in use, or its server was killed (virtuoso.lck): "),
    ],
    ids=["stopped", "killed", "stopped without a checkpoint", "killed without a checkpoint"],
)
def test_all_facts_are_served_or_the_snapshot_is_refused(
    snapshot: Path, tmp_path: Path, sql: str, killed: bool, refused: str | None
) -> None:
    """The source server is stopped or killed after a load. Without a checkpoint, bulk-loaded facts are in no file."""
    source = tmp_path / "source"
    config = default(VirtuosoConfig, memory_gb=0.1, threads=4)
    server = VirtuosoServer(source, config, readable=(snapshot.parent,))
    with server:
        server._isql(sql.format(snapshot.parent / "graph.nt"))
        if killed:
            server.kill()
    if refused is not None:
        for folders in ((tmp_path / "data", source), (source,)):
            assert refused in refusal(*folders)
        assert not (tmp_path / "data" / "virtuoso.db").exists()
        with VirtuosoServer(source, config):
            pass  # the repair that the message describes
    with serving(tmp_path / "data", source) as (_, endpoint):
        assert facts(endpoint) == ("7" if "checkpoint" in sql else "0")
    with serving(source) as (_, endpoint):
        assert facts(endpoint) == ("7" if "checkpoint" in sql else "0"), "a clone is served as it is"


def test_a_database_in_use_is_refused(snapshot: Path, tmp_path: Path) -> None:
    with serving(tmp_path / "data", snapshot):
        assert "is in use" in refusal(tmp_path / "copy", tmp_path / "data")
