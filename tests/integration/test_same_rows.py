"""One run, whichever backend holds its graph and whichever engine works on its shards: the same rows.

Every run is the real command in a process of its own, so that each has another seed for the hashes of its strings.
Whole traces are compared, except for times and for the ways that answers took.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import polars as pl
import pytest

from pipeline.datasets.metaqa import MetaQA
from pipeline.datasets.sample.world import SampleWorld
from pipeline.kg.virtuoso import Server
from pipeline.traces.folder import RunFolder
from tests.support import KGQA

Rows = list[dict[str, Any]]
VirtuosoFactory = Callable[..., list[Server]]

QUESTIONS = 64
# It errs, so that runs take every branch: with this seed they do within the questions that are asked.
ORACLE = ("llm=oracle", "llm.error_rate=0.2", "llm.malformed_rate=0.05", "run.seed=3")
# It chooses among what it is shown, so that another order of candidates makes another answer.
SIMILARITY = ("llm=similarity",)
SMALL_SHARDS = ("engine.concurrency=8", "engine.shard_size=4")
ENGINES = {"local": (), "ray": ("engine=ray", "engine.workers=2", *SMALL_SHARDS)}

# Queries follow from which questions happen to wait for an answer together.
INCOMPARABLE = ["llm_s", "kg_s", "wall_s", "kg_queries"]
INCOMPARABLE_OF_STEPS = {"start_s", "duration_s", "queries", "endpoint", "shared"}


@dataclass
class Job:
    """Questions over a graph that the dataset brings along and that two replicas serve."""

    words: tuple[str, ...]
    servers: list[Server]
    folder: Path
    references: dict[tuple[str, ...], Rows] = field(default_factory=dict)

    @property
    def graphs(self) -> dict[str, tuple[str, ...]]:
        endpoints = ",".join(server.endpoint for server in self.servers)
        return {"embedded": (), "sparql": ("kg=sparql", f"kg.endpoints=[{endpoints}]")}

    def reference(self, model: tuple[str, ...]) -> Rows:
        """The rows of the local engine over the graph in memory, which those of any other run must equal."""
        if model not in self.references:
            self.references[model] = self.rows(self.folder / f"reference-{len(self.references)}", *model)
        return self.references[model]

    def rows(self, run: Path, *overrides: str) -> Rows:
        subprocess.run(self.evaluate(run, *overrides), check=True)
        return read(run)

    def evaluate(self, run: Path, *overrides: str) -> list[str]:
        settings = ["method=srp", *self.words, f"run.limit={QUESTIONS}", f"run.dir={run}"]
        return [*KGQA, "evaluate", *settings, *overrides]


@pytest.fixture(scope="module")
def sample(virtuoso_factory: VirtuosoFactory, tmp_path_factory: pytest.TempPathFactory) -> Job:
    servers = virtuoso_factory(SampleWorld().triples(), replicas=2)
    return Job(("dataset=sample",), servers, tmp_path_factory.mktemp("sample"))


@pytest.fixture(scope="module")
def metaqa(shared_data: Path, virtuoso_factory: VirtuosoFactory, tmp_path_factory: pytest.TempPathFactory) -> Job:
    path = shared_data / "metaqa"
    servers = virtuoso_factory(MetaQA(path=path, hops=3).triples(), replicas=2)
    words = ("dataset=metaqa", f"dataset.path={path}", "dataset.hops=3")
    return Job(words, servers, tmp_path_factory.mktemp("metaqa"))


def read(run: Path) -> Rows:
    """The rows in the order of the questions, with the texts of each step inside the step."""
    rows = list(pl.read_parquet(RunFolder(run).traces).drop(INCOMPARABLE).iter_rows(named=True))
    for row in rows:
        row["steps"] = comparable(row["steps"], row.pop("texts"))
    return rows


def comparable(steps: list[dict[str, Any]], texts: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """What a method did: as it did it from a single topic entity, but sorted where it went on from several at once."""
    keys = [step["key"] for step in steps]
    done = []
    for step, text in zip(steps, texts, strict=True):
        kept = {name: value for name, value in (step | text).items() if name not in INCOMPARABLE_OF_STEPS}
        parent = kept.pop("parent")
        done.append(kept | {"parent": None if parent is None else keys[parent]})
    if sum(step["role"] == "relations_selected" for step in done) < 2:
        return done
    return sorted(({**step, "index": None} for step in done), key=lambda step: json.dumps(step, sort_keys=True))


def differences(found: Rows, expected: Rows) -> list[tuple[str, str]]:
    """The questions and columns in which two runs differ, once it is clear that both have all questions."""
    questions = [row["question_id"] for row in expected]
    assert len(set(questions)) == QUESTIONS
    assert [row["question_id"] for row in found] == questions
    return [
        (question, column)
        for question, row, other in zip(questions, found, expected, strict=True)
        for column in row
        if row[column] != other[column]
    ]


def test_the_runs_compared_leave_little_out(sample: Job) -> None:
    rows = sample.reference(ORACLE)
    assert len({row["type"] for row in rows}) == 8
    assert {row["hits_at_1"] for row in rows} == {0, 1}
    steps = [step for row in rows for step in row["steps"]]
    assert {step["role"] for step in steps} >= {"srp.judge", "srp.edit", "srp.answer", "parse_failed", "cap_hit"}
    assert any(step["parent"] for step in steps)
    assert any(step["truncated"] for step in steps)
    literals = {fact["tail"] for row in rows for fact in row["evidence"] if fact["tail"] == fact["tail_name"]}
    assert any(text.isdecimal() for text in literals)
    assert any(text.count("-") == 2 for text in literals)


@pytest.mark.parametrize(("graph", "engine"), [("embedded", "ray"), ("sparql", "local"), ("sparql", "ray")])
def test_the_sample_world_has_the_same_rows_everywhere(sample: Job, graph: str, engine: str, tmp_path: Path) -> None:
    rows = sample.rows(tmp_path, *ORACLE, *sample.graphs[graph], *ENGINES[engine])
    assert differences(rows, sample.reference(ORACLE)) == []


def test_a_store_on_disk_gives_the_same_rows(sample: Job, tmp_path: Path) -> None:
    store = tmp_path / "store"
    subprocess.run([*KGQA, "graph", "load", *sample.words, f"output={store}"], check=True)
    rows = sample.rows(tmp_path / "run", *ORACLE, f"kg.store={store}")
    assert differences(rows, sample.reference(ORACLE)) == []


def test_candidates_come_in_the_same_order(sample: Job, tmp_path: Path) -> None:
    rows = sample.rows(tmp_path, *SIMILARITY, *sample.graphs["sparql"])
    assert differences(rows, sample.reference(SIMILARITY)) == []


@pytest.mark.parametrize(("model", "engine"), [(ORACLE, "local"), (ORACLE, "ray"), (SIMILARITY, "local")])
def test_metaqa_has_the_same_rows_everywhere(metaqa: Job, model: tuple[str, ...], engine: str, tmp_path: Path) -> None:
    rows = metaqa.rows(tmp_path, *model, *metaqa.graphs["sparql"], *ENGINES[engine])
    assert differences(rows, metaqa.reference(model)) == []


@pytest.fixture
def victim(sample: Job) -> Iterator[Server]:
    """A replica that may be killed; it is there again for the next test."""
    server = sample.servers[0]
    yield server
    server.kill()
    server.start()


def test_a_replica_stopped_in_mid_run_costs_no_row(sample: Job, victim: Server, tmp_path: Path) -> None:
    run, log = tmp_path / "run", tmp_path / "log"
    command = sample.evaluate(run, *ORACLE, *SMALL_SHARDS, "llm.latency_s=0.05", *sample.graphs["sparql"])
    with log.open("wb") as stderr, subprocess.Popen(command, stderr=stderr) as driver:
        try:
            wait_for_shards(run, 3, driver)
            os.kill(victim.pid, signal.SIGKILL)
            assert driver.wait(timeout=120) == 0
        finally:
            driver.kill()
    assert f"graph server {victim.endpoint} is put aside" in log.read_text()
    assert differences(read(run), sample.reference(ORACLE)) == []


def wait_for_shards(run: Path, count: int, driver: subprocess.Popen[bytes]) -> None:
    """Return once so many shards are committed."""
    while len(RunFolder(run).finished()) < count:
        assert driver.poll() is None, "the run ended before the replica could be stopped"
        time.sleep(0.01)
