"""The stage of the kill matrix: model servers that repeat recorded replies, and two Virtuoso replicas."""

from __future__ import annotations

import subprocess
import sys
import uuid
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

import pytest

from pipeline.cli.main import main
from pipeline.config import default
from pipeline.kg.virtuoso import VirtuosoServer
from pipeline.simulation.world import SyntheticWorld
from tests.integration import recorded_server
from tests.integration.conftest import KillMatrix
from tests.integration.kill_matrix.stage import RUN, Judge, Row, Stage, Undisturbed
from tests.integration.rows import read


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
def judge(stage: Stage, undisturbed: Undisturbed, kill_matrix: KillMatrix) -> Judge:
    """Enter a finished run into the matrix, and fail when it lost, repeated or changed anything."""

    def enter(row: str, done: str, printed: str, *, most_repeated: int | None = None) -> None:
        repeated = (stage.requests - undisturbed.requests).total()
        Row(kill_matrix, row, done).enter(stage, undisturbed, printed, repeated=repeated)
        assert stage.requests & undisturbed.requests == undisturbed.requests
        assert most_repeated is None or repeated <= most_repeated

    return enter
