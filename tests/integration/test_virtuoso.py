"""The local Virtuoso servers: loaded, replicated, killed and restarted for real."""

from __future__ import annotations

import os
import urllib.error
import urllib.parse
import urllib.request
from pathlib import Path

import pytest

from pipeline.config import default
from pipeline.errors import UserError
from pipeline.kg.load import post
from pipeline.kg.virtuoso import GRAPH, VirtuosoConfig, VirtuosoServer, build_database, is_healthy, replicas
from pipeline.types import LiteralNode, Triple

CONFIG = default(VirtuosoConfig)
FACTS = [
    Triple("m.1", "type.object.name", LiteralNode('a "quoted"\nname', lang="en")),
    Triple("m.1", "film.film.starring", "m.2"),
    Triple("m.2", "film.actor.film", "m.1"),
]


def ask(endpoint: str, query: str) -> list[str]:
    """The rows of a SELECT, tab-separated, without the header."""
    request = urllib.request.Request(
        endpoint,
        data=urllib.parse.urlencode({"query": query, "default-graph-uri": GRAPH}).encode(),
        headers={"Accept": "text/tab-separated-values"},
    )
    with urllib.request.urlopen(request, timeout=30) as response:
        return response.read().decode().splitlines()[1:]


def count(server: VirtuosoServer) -> int:
    return int(ask(server.endpoint, "SELECT (COUNT(*) AS ?n) WHERE { ?s ?p ?o }")[0])


@pytest.fixture(scope="module")
def servers(virtuoso_factory):
    return virtuoso_factory(FACTS, replicas=2)


def test_replicas_of_one_database_hold_the_same_facts(servers):
    first, second = servers
    query = "SELECT ?s ?p ?o WHERE { ?s ?p ?o } ORDER BY ?s ?p"
    assert count(first) == count(second) == 3
    assert ask(first.endpoint, query) == ask(second.endpoint, query)
    assert first.endpoint != second.endpoint


def test_servers_listen_on_loopback_only(servers):
    server = servers[0]
    listening = {
        bytes.fromhex(line.split()[1].split(":")[0])[::-1]
        for table in ("/proc/net/tcp", "/proc/net/tcp6")
        for line in Path(table).read_text().splitlines()[1:]
        if int(line.split()[1].split(":")[1], 16) in {server.http_port, server.sql_port} and line.split()[3] == "0A"
    }
    assert listening == {bytes([127, 0, 0, 1])}


def test_sparql_over_http_cannot_write(servers):
    server = servers[0]
    with pytest.raises(urllib.error.HTTPError):
        ask(server.endpoint, f"INSERT DATA {{ GRAPH <{GRAPH}> {{ <urn:a> <urn:b> <urn:c> }} }}")
    assert count(server) == 3


def test_killed_replica_comes_back_at_the_same_address(servers):
    server = servers[0]
    endpoint, pid = server.endpoint, server.process.pid
    server.kill()
    assert not is_healthy(endpoint)
    with pytest.raises(ProcessLookupError):
        os.kill(pid, 0)
    server.start()
    assert server.endpoint == endpoint
    assert count(server) == 3


@pytest.mark.exhaustive
def test_copy_is_reused_until_the_database_changes(virtuoso_installed, tmp_path):
    def build(facts: int) -> None:
        file = tmp_path / "graph.nt"
        file.write_text("".join(f"<urn:{n}> <urn:r> <urn:o> .\n" for n in range(facts)))
        build_database([file], tmp_path / "database", CONFIG)

    def serve() -> tuple[int, int]:
        with replicas(tmp_path / "database", 1, tmp_path, CONFIG) as (server,):
            return count(server), (tmp_path / "replica-1" / "copied-from").stat().st_mtime_ns

    build(3)
    facts, copied = serve()
    assert facts == 3
    assert serve() == (3, copied)
    for file in (tmp_path / "database").iterdir():
        file.unlink()
    build(4)
    assert serve()[0] == 4


@pytest.mark.exhaustive
def test_a_replica_holds_what_was_loaded_without_a_checkpoint(virtuoso_installed, tmp_path):
    file = tmp_path / "graph.nt"
    file.write_text("<urn:1> <urn:r> <urn:o> .\n")
    build_database([file], tmp_path / "database", CONFIG)
    with VirtuosoServer(tmp_path / "database", CONFIG) as server:
        post([b"<urn:2> <urn:r> <urn:o> .\n"], [server.endpoint], timeout_s=30)
        running = pytest.raises(UserError, match=f"process {server.process.pid}.* is using")
        with running, replicas(tmp_path / "database", 1, tmp_path, CONFIG):
            pass
    with replicas(tmp_path / "database", 1, tmp_path, CONFIG) as (copy,):
        assert count(copy) == 2


@pytest.mark.exhaustive
def test_unloadable_file_is_named_and_leaves_no_database(virtuoso_installed, tmp_path):
    bad = tmp_path / "bad's.nt"
    bad.write_text('<urn:a> <urn:b> "never closed\n')
    with pytest.raises(UserError, match=r"could not load .*bad's\.nt: .*line 2"):
        build_database([bad], tmp_path / "database", CONFIG)
    assert [path.name for path in tmp_path.iterdir()] == ["bad's.nt"]


def test_missing_virtuoso_names_the_package(tmp_path, monkeypatch):
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(UserError, match="virtuoso-opensource-7"):
        VirtuosoServer(tmp_path, CONFIG).start()


def test_missing_database_says_what_to_do(tmp_path):
    with pytest.raises(UserError, match="load a graph into it first"), replicas(tmp_path, 1, tmp_path, CONFIG):
        pass


@pytest.mark.exhaustive
def test_second_server_in_a_folder_is_refused_and_the_first_lives_on(servers):
    server = servers[0]
    with pytest.raises(UserError, match=f"process {server.process.pid}.* already runs in"):
        VirtuosoServer(server.folder, CONFIG).start()
    assert count(server) == 3


@pytest.mark.exhaustive
def test_server_that_cannot_start_shows_its_log(virtuoso_installed, tmp_path):
    (tmp_path / "virtuoso.lck").mkdir()
    with pytest.raises(UserError, match=r"server\.log.*virtuoso\.lck"):
        VirtuosoServer(tmp_path, CONFIG).start()
