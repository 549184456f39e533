"""`kgqa graph load` and `kgqa graph serve` as a user runs them."""

from __future__ import annotations

import contextlib
import json
import os
import re
import signal
import subprocess
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import NamedTuple

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from pipeline.config import default
from pipeline.datasets.metaqa import MetaQA
from pipeline.kg.embedded import EmbeddedGraph
from pipeline.kg.sparql import SparqlGraph
from pipeline.net.subprocess_server import free_ports, is_free
from pipeline.types import Relation
from tests.support import KGQA

pytestmark = pytest.mark.exhaustive


class Served(NamedTuple):
    """A `kgqa graph serve` that has started."""

    process: subprocess.Popen[str]
    endpoints: list[str]
    words: str
    """What it prints before the endpoints: how a run reads its graph."""


@pytest.fixture
def kgqa(tmp_path: Path) -> Callable[..., subprocess.CompletedProcess[str]]:
    """Run `kgqa graph …` in an empty folder."""

    def run(*words: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run([*KGQA, "graph", *words], cwd=tmp_path, capture_output=True, text=True, check=False)

    return run


@pytest.fixture
def serving(virtuoso_installed: None, tmp_path: Path) -> Iterator[Callable[..., Served]]:
    """Start `kgqa graph serve …` in an empty folder, and wait for its endpoints."""
    with contextlib.ExitStack() as started:

        def start(*words: str) -> Served:
            process = subprocess.Popen(
                [*KGQA, "graph", "serve", "server.memory_gb=0.1", *words],
                cwd=tmp_path,
                stdout=subprocess.PIPE,
                text=True,
            )
            started.enter_context(process)
            started.callback(process.kill)
            for line in process.stdout:
                if found := re.search(r"(.*kg\.endpoints=)\[(.*)\]'", line):
                    return Served(process, found[2].split(","), found[1])
            pytest.fail(f"graph serve ended with {process.wait()}")

        yield start


def below(folder: Path) -> list[int]:
    """The processes that work in a folder."""
    found = []
    for process in Path("/proc").glob("[0-9]*"):
        with contextlib.suppress(OSError):
            if Path(os.readlink(process / "cwd")).is_relative_to(folder / "graphs"):
                found.append(int(process.name))
    return found


def two_free_ports() -> tuple[int, int]:
    """Two that follow one another."""
    return next((port, port + 1) for port in free_ports(100) if is_free("127.0.0.1", port + 1))


def wait_until_gone(folder: Path) -> None:
    deadline = time.monotonic() + 30
    while below(folder):
        assert time.monotonic() < deadline, f"still running: {below(folder)}"
        time.sleep(0.1)


async def test_serve_loads_once_answers_and_leaves_nothing_running(serving, shared_data, tmp_path):
    words = ["dataset=metaqa", f"dataset.path={shared_data / 'metaqa'}", "replicas=2"]
    process, endpoints, _ = serving(*words)
    assert len(endpoints) == 2
    assert len(below(tmp_path)) == 2
    async with (
        default(SparqlGraph, endpoints=tuple(endpoints)) as served,
        default(EmbeddedGraph, dataset=default(MetaQA, path=shared_data / "metaqa", hops=1)) as embedded,
    ):
        hops = [("Kismet", Relation("directed_by", "out")), ("Drama", Relation("has_genre", "in"))]
        assert await served.neighbours(hops, 500) == await embedded.neighbours(hops, 500)
        assert await served.relations(["Kismet"]) == await embedded.relations(["Kismet"])
    os.kill(below(tmp_path)[0], signal.SIGKILL)
    process.send_signal(signal.SIGINT)
    assert process.wait(30) == 0
    assert below(tmp_path) == []

    (database,) = (tmp_path / "graphs").iterdir()
    loaded = (database / "virtuoso.db").stat().st_mtime_ns
    process = serving(*words, "replicas=1").process
    assert (database / "virtuoso.db").stat().st_mtime_ns == loaded
    process.terminate()
    assert process.wait(30) == 0
    assert below(tmp_path) == []


def test_replicas_die_with_a_killed_serve(serving, tmp_path):
    (tmp_path / "facts.nt").write_text(
        '<http://x/a> <http://www.w3.org/2000/01/rdf-schema#label> "Ann" .\n'
        "<http://x/a> <http://x/knows> <http://x/b> .\n"
    )
    (tmp_path / "questions.jsonl").write_text('{"id": 1, "question": "?", "topic_entities": ["Ann"], "answers": []}\n')
    chosen = ("dataset=custom", "dataset.triples=facts.nt", "dataset.questions=questions.jsonl", "kg/vocabulary=rdfs")
    process, _, printed = serving(*chosen, "replicas=1", "kg.snapshot=mine")
    assert printed == "kg=sparql kg/vocabulary=rdfs kg.snapshot=mine 'kg.endpoints=", "what a run needs, for a shell"
    assert len(below(tmp_path)) == 1
    process.kill()
    wait_until_gone(tmp_path)
    process = serving(*chosen, "replicas=2").process
    for server in below(tmp_path):
        os.kill(server, signal.SIGKILL)
    assert process.wait(30) == 4, "the exit code of an outage, because no replica runs any more"


def test_the_servers_have_the_same_ports_after_a_restart(serving, kgqa):
    port, next_port = two_free_ports()
    for _ in range(2):
        process, endpoints, _ = serving("replicas=2", f"port={port}", "dataset.triples=2000")
        assert endpoints == [f"http://127.0.0.1:{each}/sparql" for each in (port, next_port)]
        refused = kgqa("serve", f"port={next_port}", "database=other", "dataset.triples=2000")
        assert refused.returncode == 2
        assert f"port {next_port} of 127.0.0.1 is in use" in refused.stderr
        process.terminate()
        assert process.wait(30) == 0
    refused = kgqa("serve", "replicas=2", "port=65535")
    assert (refused.returncode, "the last one is 65535" in refused.stderr) == (2, True)


async def test_load_makes_a_store_that_the_embedded_graph_opens(kgqa, shared_data, tmp_path):
    done = kgqa("load", "dataset=metaqa", f"dataset.path={shared_data / 'metaqa'}", "output=store")
    assert done.returncode == 0, done.stderr
    assert re.search(r"133,582 triples.*43,234 entities.*9 relations.*0 literals", done.stdout, re.DOTALL)
    async with default(EmbeddedGraph, store=tmp_path / "store") as graph:
        assert f"fingerprint {graph.fingerprint}" in done.stdout
    again = kgqa("load", "output=store")
    assert (again.returncode, "already exists" in again.stderr) == (2, True)
    assert "Traceback" not in again.stderr


def test_load_into_running_servers(kgqa, virtuoso_factory, tmp_path):
    endpoints = ",".join(server.endpoint for server in virtuoso_factory([], replicas=2))
    done = kgqa("load", "dataset.triples=1000", "target=virtuoso", f"kg.endpoints=[{endpoints}]")
    assert done.returncode == 0, done.stderr
    store = kgqa("load", "dataset.triples=1000", "output=store")
    fingerprints = [re.search("fingerprint .*", one.stdout)[0] for one in (done, store)]
    assert fingerprints[0] == fingerprints[1]


def test_load_converts_rog_and_grbench(kgqa, tmp_path):
    rows = [{"id": "q", "question": "?", "answer": [], "q_entity": [], "graph": [["A", "r.s", "m.1"]] * 2}]
    pq.write_table(pa.Table.from_pylist(rows), tmp_path / "test.parquet")
    done = kgqa("load", "dataset=rog", f"dataset.path={tmp_path}", "target=ntriples", "output=rog.nt")
    assert done.returncode == 0, done.stderr
    assert "1 triples (2 read, 0 rejected)" in done.stdout

    folder = tmp_path / "amazon"
    folder.mkdir()
    node = {"features": {"title": "T", "price": float("nan")}, "neighbors": {"brand": ["b"]}}
    (folder / "graph.json").write_text(json.dumps({"item_nodes": {"i": node}}))
    (folder / "data.json").write_text("")
    done = kgqa("load", "dataset=grbench", f"dataset.path={tmp_path}", "target=ntriples", "output=grbench.nt")
    assert done.returncode == 0, done.stderr
    assert "4 triples (4 read, 0 rejected)" in done.stdout


def test_rejected_facts_are_listed_beside_the_output(kgqa, tmp_path):
    (tmp_path / "facts.tsv").write_text(f"a\tr\tb\n{'x' * 3000}\tr\tb\n")
    (tmp_path / "questions.jsonl").write_text("")
    words = ["dataset=custom", "dataset.triples=facts.tsv", "dataset.questions=questions.jsonl"]
    done = kgqa("load", *words, "output=out/store")
    assert done.returncode == 0, done.stderr
    assert "1 triples (2 read, 1 rejected)" in done.stdout
    rejected = tmp_path / "out" / "store.rejected.jsonl"
    assert done.stdout.splitlines()[-1].endswith("out/store.rejected.jsonl lists them with reasons")
    assert json.loads(rejected.read_text()) == {
        "file": "graph of custom",
        "line": 2,
        "reason": f"'{'x' * 60}…' is longer than 1880 bytes as an IRI",
        "unit": "line",
    }
    strict = kgqa("load", *words, "output=strict", "dataset.strict=true")
    assert strict.returncode == 2
    assert not (tmp_path / "strict").exists()


@pytest.mark.parametrize(
    ("words", "sentence"),
    [
        (["lode"], "kgqa graph has no 'lode'. Did you mean 'load'?"),
        (
            ["load", "target=rdf", "output=x"],
            "target='rdf' is wrong: input should be 'ntriples', 'oxigraph' or 'virtuoso'",
        ),
        (["load"], "target=oxigraph needs output="),
        (["load", "output=x", "dataset=webqsp", "dataset.path=."], "WebQSP has no graph of its own"),
        (["serve", "replicas=0"], "replicas=0 is wrong: input should be greater than 0"),
        (["serve", "server.threads=many"], "server.threads='many' is wrong"),
        (["serve", "kg.endpionts=x"], "unknown key 'kg.endpionts'. Did you mean 'kg.endpoints'?"),
    ],
)
def test_mistakes_are_one_sentence(kgqa, tmp_path, words, sentence):
    done = kgqa(*words)
    assert done.returncode == 2
    assert sentence in done.stderr
    assert "Traceback" not in done.stderr
    assert list(tmp_path.iterdir()) == []
