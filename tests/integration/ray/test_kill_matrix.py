"""The kill matrix: whatever dies, hangs or fills up in mid-run, each question is answered once, the table is the same.

Most rows run the same questions over two model servers and two Virtuoso replicas. A model server repeats the replies of
an earlier run and is a process of its own, so its log tells what was really asked, by runs that were killed as well.
Faults strike once so many calls were seen: in the middle of the run, however fast it is. `tests/integration/models` has
the rows with a real Llama.
"""

from __future__ import annotations

import os
import random
import re
import signal
import subprocess
import sys
import time
import uuid
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

import polars as pl
import pytest

from pipeline.cli.main import main
from pipeline.config import default
from pipeline.kg.virtuoso import VirtuosoServer
from pipeline.simulation.world import SyntheticWorld
from pipeline.traces.folder import RunFolder
from tests.integration import recorded_server
from tests.integration.conftest import KillMatrix
from tests.integration.kill_matrix import Row, Stage, Undisturbed, stopped
from tests.integration.processes import question_workers
from tests.integration.ray_nodes import LOOPBACK, cluster_of_head
from tests.integration.rows import read
from tests.support import LARGE

CONCURRENCY = 8
QUESTIONS = 48
# One topic entity per question, so that a question has one call in flight at a time. So few edits that no prompt is
# asked twice: the recorded server has one reply for each.
RUN = [
    *("method=srp", "method.retries=1"),
    "dataset=synthetic",
    "dataset.types=[1-hop,2-hop,3-hop]",
    f"run.limit={QUESTIONS}",
    f"engine.concurrency={CONCURRENCY}",
    "engine.shard_size=8",
]
RAY = ["engine=ray", "engine.workers=2", f"engine.concurrency={CONCURRENCY // 2}", "engine.shard_size=4"]
OUTAGE_S = 10
_UNHEALTHY_MODEL = r"model server \S+ is unhealthy"


@pytest.fixture(scope="module")
def recorded(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The replies that the servers repeat, by prompt. The oracle errs, so that runs take every branch."""
    run = tmp_path_factory.mktemp("recorded") / "run"
    words = ["llm=oracle", "llm.error_rate=0.2", "llm.malformed_rate=0.1", f"run.dir={run}"]
    assert main(["evaluate", *RUN, *words]) == 0
    return recorded_server.write_replies(run, run.with_name("replies.json"))


@pytest.fixture(scope="module")
def graphs(virtuoso_factory: Callable[..., list[VirtuosoServer]]) -> list[VirtuosoServer]:
    return virtuoso_factory(default(SyntheticWorld).triples(), replicas=2)


@pytest.fixture(scope="module")
def staged(recorded: Path, graphs: list[VirtuosoServer]) -> Callable[[Path], object]:
    """Sets the stage in a folder: with model servers of its own, and both graph servers up."""

    @contextmanager
    def stage(folder: Path) -> Iterator[Stage]:
        command = [sys.executable, recorded_server.__file__, str(recorded), str(folder / "requests"), "0.02"]
        with ExitStack() as stack:
            models = [stack.enter_context(subprocess.Popen(command, stdout=subprocess.PIPE, text=True)) for _ in "12"]
            for model in models:
                stack.callback(model.kill)
            ports = [model.stdout.readline().strip() for model in models if model.stdout]
            urls = ",".join(f"http://127.0.0.1:{port}/v1" for port in ports)
            words = [*RUN, "llm=endpoint", f"llm.base_urls=[{urls}]"]
            words += ["kg=sparql", f"kg.endpoints=[{','.join(graph.endpoint for graph in graphs)}]"]
            yield Stage(folder, models, graphs, words, uuid.uuid4().hex)
            for graph in graphs:
                if not graph.running:
                    graph.start()

    return stage


@pytest.fixture(scope="module")
def undisturbed(staged: Callable[..., object], tmp_path_factory: pytest.TempPathFactory) -> Undisturbed:
    with staged(tmp_path_factory.mktemp("undisturbed")) as stage:
        printed = stage.go_on()
        return Undisturbed(read(stage.run), printed, stage.requests)


@pytest.fixture
def stage(staged: Callable[..., object], tmp_path: Path) -> Iterator[Stage]:
    with staged(tmp_path) as stage:
        yield stage


@pytest.fixture
def judge(stage: Stage, undisturbed: Undisturbed, kill_matrix: KillMatrix) -> Callable[..., None]:
    """Enter a finished run into the matrix, and fail when it lost, repeated or changed anything."""

    def enter(row: str, done: str, printed: str, *, most_repeated: int | None = None) -> None:
        repeated = (stage.requests - undisturbed.requests).total()
        Row(kill_matrix, row, done).enter(stage, undisturbed, printed, repeated=repeated)
        assert stage.requests & undisturbed.requests == undisturbed.requests
        assert most_repeated is None or repeated <= most_repeated

    return enter


Judge = Callable[..., None]


def tear_a_draft(run: Path, rng: random.Random) -> bool:
    """Cut the last line of a draft anywhere, as a dying writer or file system would."""
    drafts = [path for path in (run / "drafts").glob("*.jsonl") if path.stat().st_size]
    if drafts:
        path = rng.choice(drafts)
        content = path.read_bytes()
        last_line = len(content) - content.rstrip(b"\n").rfind(b"\n") - 1
        path.write_bytes(content[: len(content) - rng.randint(1, last_line)])
    return bool(drafts)


@pytest.mark.parametrize(
    "moment",
    [
        *(pytest.param(moment, marks=pytest.mark.exhaustive) for moment in range(4)),
        *(pytest.param(moment, marks=LARGE) for moment in range(4, 20)),
    ],
)
def test_driver(moment: int, stage: Stage, undisturbed: Undisturbed, judge: Judge) -> None:
    rng = random.Random(moment)
    with stage.struck(after=rng.randrange(1, undisturbed.requests.total())) as driver:
        os.killpg(driver.pid, signal.SIGKILL)
    torn = moment % 4 == 3 and tear_a_draft(stage.run, rng)
    judge("driver", "kill -9 at random moments, same command", stage.go_on(), most_repeated=CONCURRENCY + torn)


def middle(undisturbed: Undisturbed) -> int:
    return undisturbed.requests.total() // 3


@pytest.mark.exhaustive
def test_driver_on_ray(stage: Stage, undisturbed: Undisturbed, judge: Judge) -> None:
    with stage.struck(*RAY, after=middle(undisturbed)) as driver:
        os.kill(driver.pid, signal.SIGKILL)  # its cluster has no time to clear away what names it
    judge("driver on Ray", "kill -9, same command", stage.go_on(*RAY), most_repeated=CONCURRENCY)
    assert question_workers(stage.mark) == []


@pytest.mark.exhaustive
@pytest.mark.parametrize("fate", [signal.SIGKILL, signal.SIGSTOP], ids=["killed", "hung"])
def test_question_worker(fate: signal.Signals, stage: Stage, undisturbed: Undisturbed, judge: Judge) -> None:
    with stage.struck(*RAY, after=middle(undisturbed)) as driver:
        os.kill(question_workers(stage.mark)[0], fate)
        printed = stage.end(driver)
    hung = fate == signal.SIGSTOP
    judge(
        "hung question worker" if hung else "question worker",
        "the process stops responding" if hung else "kill -9",
        printed,
    )


@pytest.mark.exhaustive
def test_ray_node(stage: Stage, undisturbed: Undisturbed, judge: Judge) -> None:
    with cluster_of_head(num_cpus=0) as cluster:
        nodes = [cluster.add_node(num_cpus=2, node_ip_address=LOOPBACK) for _ in "12"]
        with stage.struck(*RAY, f"engine.address={cluster.address}", after=middle(undisturbed)) as driver:
            cluster.remove_node(nodes[0], allow_graceful=False)
            printed = stage.end(driver)
    judge("Ray node", "kill -9 of its raylet, which also ends its workers", printed)


@pytest.mark.exhaustive
def test_one_graph_replica(stage: Stage, undisturbed: Undisturbed, judge: Judge) -> None:
    with stage.struck(after=middle(undisturbed)) as driver:
        stage.graphs[0].kill()
        printed = stage.end(driver)
    assert f"graph server {stage.graphs[0].endpoint} is unhealthy" in stage.said
    judge("one Virtuoso replica", "kill -9, not restarted", printed, most_repeated=0)


@pytest.mark.exhaustive
def test_all_graph_replicas(stage: Stage, undisturbed: Undisturbed, judge: Judge) -> None:
    with stage.struck(after=middle(undisturbed)) as driver:
        for graph in stage.graphs:
            graph.kill()
        time.sleep(OUTAGE_S)
        assert driver.poll() is None
        for graph in stage.graphs:
            graph.start()
        printed = stage.end(driver)
    judge("both Virtuoso replicas", f"kill -9, restarted after {OUTAGE_S} s", printed, most_repeated=0)


IMPATIENT = ["kg.timeout_s=1", "llm.timeout_s=1", "llm.breaker_failures=2", "llm.breaker_reset_s=1"]


@pytest.mark.exhaustive
def test_a_hung_graph_replica(stage: Stage, undisturbed: Undisturbed, judge: Judge) -> None:
    with (
        stage.struck(*IMPATIENT, after=middle(undisturbed)) as driver,
        stopped([stage.graphs[0].process.pid]),
    ):
        printed = stage.end(driver)
    assert f"graph server {stage.graphs[0].endpoint} is unhealthy" in stage.said
    judge("hung endpoint: a graph server", "accepts, never answers", printed, most_repeated=0)


@pytest.mark.exhaustive
def test_all_graph_replicas_hung(stage: Stage, undisturbed: Undisturbed, judge: Judge) -> None:
    with stage.struck(*IMPATIENT, after=middle(undisturbed)) as driver:
        with stopped([graph.process.pid for graph in stage.graphs]):
            stage.wait_until(lambda: stage.said.count("is unhealthy: no answer within") >= 2, driver)
        printed = stage.end(driver)
    judge("hung endpoints: all graph servers", "all unhealthy, then back", printed, most_repeated=0)


@pytest.mark.exhaustive
def test_a_hung_model_server(stage: Stage, undisturbed: Undisturbed, judge: Judge) -> None:
    with (
        stage.struck(*IMPATIENT, after=middle(undisturbed)) as driver,
        stopped([stage.models[0].pid]),
    ):
        printed = stage.end(driver)
    assert re.search(_UNHEALTHY_MODEL, stage.said)
    judge("hung endpoint: a model server", "accepts, never answers", printed)


@pytest.mark.exhaustive
def test_all_model_servers_hung(stage: Stage, undisturbed: Undisturbed, judge: Judge) -> None:
    with stage.struck(*IMPATIENT, after=middle(undisturbed)) as driver:
        with stopped([model.pid for model in stage.models]):
            stage.wait_until(lambda: len(re.findall(_UNHEALTHY_MODEL, stage.said)) >= 2, driver)
        printed = stage.end(driver)
    judge("hung endpoints: all model servers", "all unhealthy, then back", printed)


@pytest.mark.exhaustive
@pytest.mark.parametrize("engine", [[], RAY], ids=["local", "ray"])
def test_full_disk(
    engine: list[str], stage: Stage, small_disk: Callable[[Path], None], undisturbed: Undisturbed, judge: Judge
) -> None:
    small_disk(stage.run)
    filler = stage.run / "filler"
    with stage.struck(*engine, after=middle(undisturbed)) as driver:
        fill(filler)
        printed, _ = driver.communicate(timeout=120)
    assert (driver.returncode, printed) == (2, "")
    [sentence] = [line for line in stage.said.splitlines() if "kgqa: " in line]
    assert "cannot be written: No space left on device" in sentence
    assert "Traceback" not in stage.said
    for shard in RunFolder(stage.run).finished():
        assert pl.read_parquet(RunFolder(stage.run).shard(shard)).height
    filler.unlink()
    judge("full disk", "run ends with exit code 2; same command", stage.go_on(*engine), most_repeated=CONCURRENCY)


def fill(file: Path) -> None:
    """Take all the room that there is left."""
    with file.open("wb", buffering=0) as stream:
        try:
            while True:
                stream.write(bytes(1 << 16))
        except OSError:
            pass
