"""The rows of the kill matrix with a real Llama on vLLM, which decodes greedily in single precision."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NamedTuple

import pytest
from ray.cluster_utils import Cluster

from pipeline.llm.vllm import VllmServer
from tests.integration.conftest import KillMatrix
from tests.integration.kill_matrix.stage import Row, Stage, Undisturbed, stopped
from tests.integration.models.conftest import ServedRun, kept, staged
from tests.integration.processes import MARK, engines, model_servers
from tests.integration.ray_nodes import LOOPBACK, cluster_of_head
from tests.integration.rows import read

pytestmark = pytest.mark.exhaustive

AFTER = 8
"""Calls of a run before a fault."""


def test_plain_vllm_server(vllm_server: VllmServer, kill_matrix: KillMatrix, tmp_path: Path) -> None:
    words = ["llm=endpoint", f"llm.base_urls=[{vllm_server.base_url}]"]
    before, stage = staged(tmp_path / "a", words), staged(tmp_path / "b", words)
    printed = before.go_on()
    undisturbed = Undisturbed(read(before.run), printed, before.requests)
    with stage.struck(after=AFTER) as driver:
        vllm_server.kill()
        vllm_server.start()
        Row(kill_matrix, "plain vLLM server", "kill -9, started again").enter(stage, undisturbed, stage.end(driver))


@pytest.fixture
def served(served_run: ServedRun) -> list[str]:
    """The words of a run that serves the Llama itself. Its servers are restarted if they hang for a few seconds."""
    return [*served_run.words, "llm.hang_timeout_s=8"]


@pytest.fixture
def undisturbed(served_run: ServedRun) -> Undisturbed:
    return served_run.undisturbed


class Fault(NamedTuple):
    """What is done to the processes of a model server."""

    what: str
    done: str
    processes: Callable[[str], list[int]]
    fate: signal.Signals


FAULTS = (
    Fault("model server of a run", "kill -9, restarted", model_servers, signal.SIGKILL),
    Fault("hung model server of a run", "the process stops responding, restarted", model_servers, signal.SIGSTOP),
    Fault("hung engine of a run's model server", "its calls stop, restarted", engines, signal.SIGSTOP),
)


def strike(stage: Stage, fault: Fault, driver: subprocess.Popen[str]) -> None:
    """Do it after some more calls, and wait for the server that takes the place of the lost one."""
    calls, said = kept(stage), len(stage.said)
    stage.wait_until(lambda: kept(stage) >= calls + 2, driver)
    [process] = fault.processes(stage.mark)
    os.kill(process, fault.fate)
    stage.wait_until(lambda: "has joined" in stage.said[said:], driver)
    assert "is gone" in stage.said[said:]


def test_model_server(served: list[str], undisturbed: Undisturbed, kill_matrix: KillMatrix, tmp_path: Path) -> None:
    """One run meets all faults, one after the other: each start of a server takes a minute of two cores."""
    stage = staged(tmp_path / "run", served)
    with stage.struck(after=AFTER) as driver:
        for fault in FAULTS:
            strike(stage, fault, driver)
        printed = stage.end(driver)
    for fault in FAULTS:
        Row(kill_matrix, fault.what, fault.done).enter(stage, undisturbed, printed)
    assert model_servers(stage.mark) == []


@contextmanager
def cluster(monkeypatch: pytest.MonkeyPatch, mark: str) -> Iterator[Cluster]:
    """A cluster for the run with this mark. Its head has no room for a model server; the test adds other nodes."""
    monkeypatch.setenv(MARK, mark)
    with cluster_of_head(num_cpus=0) as nodes:
        monkeypatch.setenv("RAY_ADDRESS", nodes.address)
        yield nodes


@pytest.fixture
def patient(served: list[str]) -> list[str]:
    """The words of a run that takes no server for hung."""
    return [*served, "llm.hang_timeout_s=1000"]


def add_node(nodes: Cluster) -> Any:
    """Add a node with room for one model server."""
    return nodes.add_node(num_cpus=1, node_ip_address=LOOPBACK)


def test_added_and_drained_nodes(
    patient: list[str],
    undisturbed: Undisturbed,
    kill_matrix: KillMatrix,
    monkeypatch: pytest.MonkeyPatch,
    tmp_path: Path,
) -> None:
    """A node joins in mid-run, then another one replaces the first one. Both rows share a run, for it is slow.

    The servers are held up until the next one has joined, so that the run is not over before.
    """
    stage = staged(tmp_path / "run", [*patient, "llm.replicas=2"])
    with cluster(monkeypatch, stage.mark) as nodes:
        first = add_node(nodes)
        with stage.struck(after=AFTER) as driver:
            with stopped(model_servers(stage.mark)):
                add_node(nodes)
                stage.wait_until(lambda: stage.said.count("has joined") == 1, driver)
            with stopped(model_servers(stage.mark)):
                add_node(nodes)
                drain(nodes.address, first.node_id)
                stage.wait_until(lambda: stage.said.count("has joined") == 2, driver)
            printed = stage.end(driver)
    Row(kill_matrix, "added Ray node", "a second model server joins").enter(stage, undisturbed, printed)
    Row(kill_matrix, "drained Ray node", "its model server is replaced").enter(stage, undisturbed, printed)
    assert "1 of 2 model servers wait for room" in stage.said
    assert "is drained: its model server is replaced" in stage.said


def drain(address: str, node: str) -> None:
    command = [sys.executable, "-m", "ray.scripts.scripts", "drain-node", f"--address={address}", f"--node-id={node}"]
    reason = ["--reason=DRAIN_NODE_REASON_PREEMPTION", "--reason-message=test", "--deadline-remaining-seconds=3600"]
    subprocess.run([*command, *reason], check=True)
