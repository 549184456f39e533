"""Several Ray nodes: workers spread over them, nodes that are slow, lost or late, and jobs that are submitted."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import polars as pl
import pytest
from ray.cluster_utils import Cluster

from pipeline.errors import OUTAGE
from pipeline.net.subprocess_server import free_ports
from pipeline.traces.folder import RunFolder
from tests.integration.ray_nodes import LOOPBACK, cluster_of_head
from tests.support import KGQA, TIMES

pytestmark = pytest.mark.exhaustive

ROOT = Path(__file__).resolve().parents[3]
MODEL = "llm._target_=tests.integration.node_oracle.NodeOracle"
RUN = ["method=srp", "dataset=synthetic", "llm=oracle", "llm.error_rate=0.2", "run.limit=64", "engine.shard_size=4"]
NOT_COMPARED = {*TIMES, "texts", "trail"}
IMPATIENT = (
    "import sys, pipeline.engine.ray as r; from pipeline.cli.main import main; "
    "r._START_WAIT_S = 0; sys.exit(main(sys.argv[1:]))"
)


@dataclass
class Nodes:
    """A cluster whose head runs no workers."""

    cluster: Cluster
    folder: Path

    @property
    def ray(self) -> list[str]:
        address = f"engine.address={self.cluster.address}"
        return [MODEL, "engine=ray", "engine.workers=2", "engine.concurrency=4", address]

    @contextmanager
    def joined(self, name: str, latency_s: float = 0.03, cpus: int = 1, **resources: int) -> Iterator[Any]:
        """A node for as long as the block lasts, or until it is removed."""
        environment = {
            "PYTHONPATH": str(ROOT),
            "KGQA_TEST_NODE": str(self.folder / name),
            "KGQA_TEST_LATENCY_S": str(latency_s),
        }
        node = self.cluster.add_node(num_cpus=cpus, resources=resources, env_vars=environment, node_ip_address=LOOPBACK)
        try:
            yield node
        finally:
            if node in self.cluster.worker_nodes:
                self.cluster.remove_node(node)

    def questions(self, name: str) -> list[str]:
        """Those that were asked on a node."""
        file = self.folder / name
        return file.read_text().split() if file.exists() else []


@pytest.fixture(scope="module")
def cluster() -> Iterator[Cluster]:
    # The agent takes jobs, and its usual port may be taken by that of another cluster of the tests.
    (port,) = free_ports(1)
    with cluster_of_head(
        num_cpus=0, include_dashboard=True, dashboard_port=0, dashboard_agent_listen_port=port
    ) as cluster:
        yield cluster


@pytest.fixture
def nodes(cluster: Cluster, tmp_path: Path) -> Nodes:
    return Nodes(cluster, tmp_path)


@pytest.fixture(scope="module")
def local(tmp_path_factory: pytest.TempPathFactory) -> pl.DataFrame:
    run = tmp_path_factory.mktemp("local") / "run"
    subprocess.run([*KGQA, "evaluate", *RUN, f"run.dir={run}"], check=True)
    return table(run)


def table(run: Path) -> pl.DataFrame:
    """All that a run did, without times, and with its calls in no order: topic entities are explored concurrently."""
    frame = pl.read_parquet(RunFolder(run).traces).sort("question_id")
    keys = pl.col("steps").list.eval(pl.element().struct.field("key").drop_nulls().sort())
    return frame.select(name for name in frame.columns if name not in NOT_COMPARED).with_columns(keys)


@contextmanager
def running(run: Path, *words: str, program: tuple[str, ...] = tuple(KGQA)) -> Iterator[Callable[[], str]]:
    """A driver; yields what waits for its end and returns what it has said."""
    command = [*program, "evaluate", *RUN, f"run.dir={run}", *words]
    environment = os.environ | {"PYTHONPATH": str(ROOT), "KGQA_TEST_NODE": os.devnull}
    with subprocess.Popen(command, env=environment, stderr=subprocess.PIPE, text=True) as driver:

        def ended() -> str:
            _, said = driver.communicate(timeout=240)
            assert driver.returncode == 0, said
            return said

        try:
            yield ended
        finally:
            driver.kill()


def wait(until: Callable[[], object]) -> None:
    end = time.monotonic() + 120
    while not until():
        assert time.monotonic() < end
        time.sleep(0.02)


def test_a_slow_node_does_less_and_what_it_is_late_with_is_done_by_another(
    local: pl.DataFrame, nodes: Nodes, tmp_path: Path
) -> None:
    run = tmp_path / "run"
    with nodes.joined("slow", latency_s=3, cpus=4), nodes.joined("fast", cpus=4), running(run, *nodes.ray) as ended:
        said = ended()
    slow, fast = nodes.questions("slow"), nodes.questions("fast")
    assert len(fast) > 5 * len(slow) > 0, "workers are spread over the nodes, and pull work as fast as they do it"
    assert set(slow) & set(fast), "the fast one began again what the slow one did not finish"
    assert "64/64" in said
    assert table(run).equals(local)
    assert list((run / "drafts").iterdir()) == []


def test_workers_go_where_their_resources_are_and_a_node_that_joins_gets_some(
    local: pl.DataFrame, nodes: Nodes, tmp_path: Path
) -> None:
    run = tmp_path / "run"
    words = [*nodes.ray, "engine.workers=3", "engine.resources={models: 1}"]
    with (
        nodes.joined("elsewhere", cpus=4),
        nodes.joined("first", latency_s=1, cpus=4, models=1),  # so slow that there is work left for the one that joins
        running(run, *words, program=(sys.executable, "-c", IMPATIENT)) as ended,
    ):
        wait(lambda: RunFolder(run).finished())
        with nodes.joined("second", cpus=4, models=2):
            said = ended()
    assert "workers not started yet: they are still starting, or the Ray cluster has no room" in " ".join(said.split())
    assert nodes.questions("elsewhere") == []
    assert nodes.questions("second"), "the workers that waited have got to work"
    assert table(run).equals(local)


def test_the_end_of_the_drivers_node_is_noticed_while_workers_wait_for_room(tmp_path: Path) -> None:
    with cluster_of_head(num_cpus=2) as cluster:
        words = ["method=cot", "engine=ray", f"engine.address={cluster.address}", "engine.resources={models: 1}"]
        command = [sys.executable, "-c", IMPATIENT, "evaluate", *words, *RUN, f"run.dir={tmp_path / 'run'}"]
        with subprocess.Popen(command, stderr=subprocess.PIPE, text=True) as driver:
            assert driver.stderr is not None
            assert any("not started yet: no node of the Ray cluster has models" in line for line in driver.stderr)
            os.kill(cluster.head_node.all_processes["raylet"][0].process.pid, signal.SIGKILL)
            _, said = driver.communicate(timeout=240)
    assert driver.returncode == OUTAGE, said
    assert "the Ray node of this machine has ended" in said


def submitted(command: list[str]) -> subprocess.CompletedProcess[str]:
    """The job at its end. A node takes jobs only once the head knows of its agent, which Ray gives no way to await."""
    deadline = time.monotonic() + 300
    while True:
        done = subprocess.run(command, capture_output=True, text=True, timeout=240, check=False)
        if "No available agent to submit job" not in done.stderr or time.monotonic() > deadline:
            return done


def test_a_submitted_job_leaves_a_complete_run_folder(local: pl.DataFrame, nodes: Nodes, tmp_path: Path) -> None:
    """The job brings the code along, so that every node runs what was submitted."""
    run = tmp_path / "run"
    entry = [sys.executable, "jobs/evaluate.py", *RUN, *nodes.ray[1:-1], f"run.dir={run}"]
    submit = [f"{Path(sys.executable).parent}/ray", "job", "submit", "--working-dir", str(ROOT)]
    submit += ["--address", f"http://{nodes.cluster.webui_url}", "--", *entry]
    with nodes.joined("one"), nodes.joined("two"):
        done = submitted(submit)
    assert done.returncode == 0, done.stdout + done.stderr
    assert table(run).equals(local)
    assert RunFolder(run).read_summary() is not None
    assert (RunFolder(run).read_run() or {})["git_commit"] is None, "it ran what was submitted, not this checkout"


def test_no_cluster_at_the_address_is_said_at_once(tmp_path: Path) -> None:
    command = [*KGQA, "evaluate", *RUN, "engine=ray", f"run.dir={tmp_path / 'run'}"]
    for address, said in (
        ("127.0.0.1:9", "no Ray cluster answers at 127.0.0.1:9"),
        ("here:now", "not of the form HOST:PORT"),
    ):
        done = subprocess.run([*command, f"engine.address={address}"], capture_output=True, text=True, check=False)
        assert done.returncode == 2
        assert "correct engine.address" in done.stderr
        assert said in done.stderr


@contextmanager
def head_with_a_token(environment: dict[str, str]) -> Iterator[str]:
    """The address of a cluster that `ray start` starts, and that takes up the token in the home folder."""
    (port,) = free_ports(1)
    command = [f"{Path(sys.executable).parent}/ray", "start", "--head", "--block", f"--port={port}", "--num-cpus=2"]
    command += [f"--node-ip-address={LOOPBACK}", "--include-dashboard=false"]
    with (
        tempfile.TemporaryDirectory(prefix="ray") as folder,  # with a short name: sockets are in it
        subprocess.Popen(
            [*command, f"--temp-dir={folder}"], env=environment, stdout=subprocess.PIPE, text=True
        ) as head,
    ):
        assert head.stdout is not None
        try:
            assert any("Ray runtime started" in line for line in head.stdout), head.wait()
            yield f"{LOOPBACK}:{port}"
        finally:
            head.terminate()


def test_a_cluster_that_wants_its_token_is_told_apart(tmp_path: Path) -> None:
    """`ray start` asks for the token that an earlier Ray left in the home folder."""
    token = tmp_path / ".ray" / "auth_token"
    token.parent.mkdir()
    token.write_text("0" * 64)
    environment = os.environ | {"HOME": str(tmp_path)}

    def evaluate(name: str, **variables: str) -> subprocess.CompletedProcess[str]:
        command = [*KGQA, "evaluate", *RUN, "engine=ray", f"engine.address={address}", f"run.dir={tmp_path / name}"]
        both = environment | variables
        return subprocess.run(command, env=both, capture_output=True, text=True, timeout=240, check=False)

    with head_with_a_token(environment) as address:
        refused = evaluate("refused")
        taken = evaluate("taken", RAY_AUTH_MODE="token")
    assert refused.returncode == 2
    assert "the Ray cluster there requires its token: set RAY_AUTH_MODE=token" in refused.stderr
    assert taken.returncode == 0, taken.stderr


def test_a_cluster_of_our_own_leaves_no_token_behind(tmp_path: Path) -> None:
    environment = {name: value for name, value in os.environ.items() if not name.startswith("RAY_")}
    command = [*KGQA, "evaluate", *RUN, "engine=ray", "engine.workers=1", f"run.dir={tmp_path / 'run'}"]
    subprocess.run(command, env=environment | {"HOME": str(tmp_path)}, check=True, capture_output=True, timeout=240)
    assert not (tmp_path / ".ray").exists()
