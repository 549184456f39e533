"""One run, wherever its graph lies and its shards are worked on: the same answers and scores, row by row.

Every run is the real command in a process of its own, so each has another seed for the hashes of its strings. What is
compared is the whole trace, but for times and for the ways in which answers travelled.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from typing import Any

import polars as pl
import pytest

from pipeline.datasets.metaqa import MetaQA
from pipeline.datasets.sample.world import SampleWorld
from pipeline.kg.virtuoso import Server
from pipeline.traces.folder import RunFolder

Rows = list[dict[str, Any]]

QUESTIONS = 64
# It errs, so that runs take every branch.
ORACLE = ("llm=oracle", "llm.error_rate=0.2", "llm.malformed_rate=0.05")
# It chooses by what it is offered, so that another order of candidates is another answer.
SIMILARITY = ("llm=similarity",)
SMALL_SHARDS = ("engine.concurrency=8", "engine.shard_size=4")
ENGINES = {"local": (), "ray": ("engine=ray", "engine.workers=2", *SMALL_SHARDS)}

TIMES = ["llm_s", "kg_s", "wall_s"]
TRANSPORT = ["kg_queries"]
OF_A_STEP = {"index", "parent", "start_s", "duration_s", "queries", "endpoint", "shared"}


@dataclass
class Job:
    """Questions over a graph that the dataset brings along and two replicas serve."""

    words: tuple[str, ...]
    folder: Path
    servers: list[Server]
    embedded: Callable[..., Rows] = field(init=False)
    """The rows of a run of the local engine over the dataset's own graph in memory: what all others must equal."""

    def __post_init__(self) -> None:
        self.embedded = cache(lambda *model: self.rows(*model))

    @property
    def sparql(self) -> tuple[str, ...]:
        return "kg=sparql", f"kg.endpoints=[{','.join(server.endpoint for server in self.servers)}]"

    def rows(self, *overrides: str) -> Rows:
        """Run and read back."""
        run = self.folder / f"run-{len(list(self.folder.iterdir()))}"
        subprocess.run(self.command(run, *overrides), check=True)
        return read(run)

    def command(self, run: Path, *overrides: str) -> list[str]:
        limits = [f"run.limit={QUESTIONS}", f"run.dir={run}"]
        return [sys.executable, "-m", "jobs.cli", "evaluate", "method=srp", *self.words, *limits, *overrides]


@pytest.fixture(scope="module")
def sample(virtuoso_factory: Callable[..., list[Server]], tmp_path_factory: pytest.TempPathFactory) -> Job:
    servers = virtuoso_factory(SampleWorld().triples(), replicas=2)
    return Job(("dataset=sample",), tmp_path_factory.mktemp("sample"), servers)


@pytest.fixture(scope="module")
def metaqa(
    shared_data: Path, virtuoso_factory: Callable[..., list[Server]], tmp_path_factory: pytest.TempPathFactory
) -> Job:
    path = shared_data / "metaqa"
    servers = virtuoso_factory(MetaQA(path=path, hops=3).triples(), replicas=2)
    words = ("dataset=metaqa", f"dataset.path={path}", "dataset.hops=3")
    return Job(words, tmp_path_factory.mktemp("metaqa"), servers)


def read(run: Path) -> Rows:
    """The rows in the order of the shards, with `steps` and `texts` as one list."""
    frame = pl.read_parquet(RunFolder(run).traces).drop(TIMES + TRANSPORT)
    return [{**row, "steps": steps(row), "texts": None} for row in frame.iter_rows(named=True)]


def steps(row: dict[str, Any]) -> list[dict[str, Any]]:
    """What a method did: in order, or in an order of its contents where topic entities are explored concurrently."""
    made = [{**step, **text} for step, text in zip(row["steps"], row["texts"], strict=True)]
    for step in made:
        step["asked again"] = None if step["parent"] is None else made[step["parent"]]["key"]
    told = [{name: value for name, value in step.items() if name not in OF_A_STEP} for step in made]
    entities = sum(step["role"] == "relations_selected" for step in made)
    return told if entities < 2 else sorted(told, key=lambda step: json.dumps(step, sort_keys=True))


def differences(found: Rows, expected: Rows) -> list[tuple[str, str]]:
    """The columns that differ, by question."""
    assert [row["question_id"] for row in found] == [row["question_id"] for row in expected]
    return [
        (one["question_id"], column)
        for one, other in zip(found, expected, strict=True)
        for column in one
        if one[column] != other[column]
    ]


def test_the_runs_that_are_compared_take_every_branch(sample: Job) -> None:
    rows = sample.embedded(*ORACLE)
    assert len({row["question_id"] for row in rows}) == QUESTIONS
    assert len({row["type"] for row in rows}) == 8
    assert {row["status"] for row in rows} >= {"ok", "no_evidence"}
    made = [step for row in rows for step in row["steps"]]
    assert {step["role"] for step in made if step["kind"] == "llm"} == {
        "srp.relation_check", "srp.path_generation", "srp.judge", "srp.edit", "srp.answer", "srp.answer_cot"
    }  # fmt: skip
    assert any(step["asked again"] for step in made)
    assert any(step["truncated"] for step in made)
    literals = {fact["tail"] for row in rows for fact in row["evidence"] if fact["tail"] == fact["tail_name"]}
    assert any(text.isdecimal() for text in literals)
    assert any(text.count("-") == 2 for text in literals)
    assert {row["hits_at_1"] for row in rows} == {0, 1}


@pytest.mark.parametrize("engine", ENGINES)
def test_two_replicas_give_the_rows_of_the_graph_in_memory(sample: Job, engine: str) -> None:
    assert differences(sample.rows(*ORACLE, *ENGINES[engine], *sample.sparql), sample.embedded(*ORACLE)) == []


def test_ray_workers_give_them_too(sample: Job) -> None:
    assert differences(sample.rows(*ORACLE, *ENGINES["ray"]), sample.embedded(*ORACLE)) == []


def test_and_so_does_a_store_on_disk(sample: Job, tmp_path: Path) -> None:
    load = [sys.executable, "-m", "jobs.cli", "graph", "load", *sample.words, f"output={tmp_path / 'store'}"]
    subprocess.run(load, cwd=tmp_path, check=True)
    assert differences(sample.rows(*ORACLE, f"kg.store={tmp_path / 'store'}"), sample.embedded(*ORACLE)) == []


def test_candidates_come_in_the_same_order(sample: Job) -> None:
    assert differences(sample.rows(*SIMILARITY, *sample.sparql), sample.embedded(*SIMILARITY)) == []


@pytest.mark.parametrize(("model", "engine"), [(ORACLE, "local"), (ORACLE, "ray"), (SIMILARITY, "local")])
def test_metaqa_has_the_same_rows_everywhere(metaqa: Job, model: tuple[str, ...], engine: str) -> None:
    expected = metaqa.embedded(*model)
    assert len({row["question_id"] for row in expected}) == QUESTIONS
    assert differences(metaqa.rows(*model, *ENGINES[engine], *metaqa.sparql), expected) == []


def test_a_replica_stopped_in_mid_run_costs_no_row(sample: Job, tmp_path: Path) -> None:
    expected = sample.embedded(*ORACLE)
    victim, run, said = sample.servers[0], tmp_path / "run", tmp_path / "said"
    command = sample.command(run, *ORACLE, *SMALL_SHARDS, "llm.latency_s=0.05", *sample.sparql)
    try:
        with said.open("wb") as stderr, subprocess.Popen(command, stderr=stderr) as driver:
            wait_for_shards(run, 3, driver)
            os.kill(victim.pid, signal.SIGKILL)
            assert driver.wait(timeout=120) == 0
    finally:
        victim.kill()
        victim.start()
    assert f"graph server {victim.endpoint} is put aside" in said.read_text()
    assert differences(read(run), expected) == []


def wait_for_shards(run: Path, count: int, driver: subprocess.Popen[bytes]) -> None:
    """Return once so many shards are committed."""
    folder = RunFolder(run)
    while len(folder.finished()) < count:
        assert driver.poll() is None, "the run ended before the replica could be stopped"
        time.sleep(0.01)
