"""`kgqa doctor` before real servers: Virtuoso replicas, one of them lost, and a Ray cluster."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest
import ray

from pipeline.config import default
from pipeline.engine.doctor import machine
from pipeline.kg.virtuoso import VirtuosoServer
from pipeline.simulation.world.world import SyntheticWorld
from tests.engine.doctor.support import point, worst
from tests.support import KGQA

pytestmark = pytest.mark.exhaustive


@pytest.fixture(scope="module")
def virtuosi(virtuoso_factory: Callable[..., list[VirtuosoServer]]) -> list[VirtuosoServer]:
    """Two replicas of the small synthetic world."""
    return virtuoso_factory(default(SyntheticWorld, triples=2000).triples(), replicas=2)


def doctor(*words: str, folder: Path) -> tuple[int, str]:
    """The exit code, and all that was printed on one line."""
    command = [*KGQA, "doctor", "dataset.triples=2000", "llm=oracle", f"run.dir={folder}/run", *words]
    done = subprocess.run(command, capture_output=True, text=True, env={**os.environ, "COLUMNS": "80"}, check=False)
    assert max(map(len, done.stdout.splitlines())) <= 80
    assert "Traceback" not in done.stderr
    assert not list(folder.iterdir()), "the doctor leaves nothing behind"
    return done.returncode, " ".join(done.stdout.split())


def test_all_is_well_with_two_replicas_on_ray(virtuosi: list[VirtuosoServer], tmp_path: Path) -> None:
    endpoints = ",".join(server.endpoint for server in virtuosi)
    code, said = doctor("kg=sparql", f"kg.endpoints=[{endpoints}]", "engine=ray", "engine.workers=1", folder=tmp_path)
    assert (code, said.endswith("no problem found")) == (0, True), said
    assert said.count("fingerprint") == said.count("SPARQLWrapper reads it too") == 2
    assert "CPUs would be started on this machine" in said


def test_one_replica_is_lost(virtuosi: list[VirtuosoServer], closed_port: int, tmp_path: Path) -> None:
    endpoints = f"{virtuosi[0].endpoint},http://127.0.0.1:{closed_port}/sparql"
    code, said = doctor("kg=sparql", f"kg.endpoints=[{endpoints}]", folder=tmp_path)
    assert code == 1
    assert said.endswith("1 problem")
    assert "start one with `kgqa graph serve`, or correct the URLs" in said
    assert "dry run one question: " in said, "the other one answers"


def test_a_graph_of_another_world(virtuosi: list[VirtuosoServer], tmp_path: Path) -> None:
    words = ("kg=sparql", f"kg.endpoints=[{virtuosi[0].endpoint}]", "dataset.seed=8")
    code, said = doctor(*words, folder=tmp_path)
    assert code == 1
    assert "Name the graph of these questions" in said


async def test_a_cluster_with_too_few_cpus(monkeypatch: pytest.MonkeyPatch) -> None:
    # Else Ray asks for a token in the environment, and leaves it there: later clusters of the tests would want one.
    monkeypatch.setenv("RAY_AUTH_MODE", "disabled")
    ray.init("local", num_cpus=1, include_dashboard=False, _node_ip_address="127.0.0.1", log_to_driver=False)
    try:
        words = ("engine=ray", "engine.address=auto", "engine.workers=3")
        level, found, fix = worst(await machine.ray_cluster(point(*words)))
    finally:
        ray.shutdown()
    assert (level, found) == ("warning", "auto: 1 CPUs on 1 nodes, 3 reserved by engine.workers=3")
    assert fix == "Lower engine.workers or engine.cpus_per_worker, or add nodes: some workers would wait."
