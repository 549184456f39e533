"""Real servers for the integration tests, on free loopback ports, stopped at the end of the session."""

from __future__ import annotations

import contextlib
import os
import shutil
import subprocess
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from pipeline.kg import virtuoso
from pipeline.kg.terms import Terms
from pipeline.kg.virtuoso import Server, ServerSettings
from pipeline.types import Triple

VirtuosoFactory = Callable[..., list[Server]]


@dataclass
class KillMatrix:
    """What was done to runs, and what became of them; printed at the end of the session."""

    rows: dict[str, tuple[str, int, int, bool]] = field(default_factory=dict)

    def add(self, what: str, done: str, *, questions: int, repeated: int, equal: bool) -> None:
        """Enter a run; of several under one name the worst is shown."""
        _, fewest, most, all_equal = self.rows.get(what, (done, questions, repeated, equal))
        self.rows[what] = (done, min(fewest, questions), max(most, repeated), all_equal and equal)

    def lines(self) -> Iterator[str]:
        """As a table in Markdown."""
        yield "| what | what was done | questions | repeated calls | equal |"
        yield "| --- | --- | ---: | ---: | --- |"
        for what, (done, questions, repeated, equal) in self.rows.items():
            yield f"| {what} | {done} | {questions} | {repeated} | {'yes' if equal else 'NO'} |"


_KILL_MATRIX = pytest.StashKey[KillMatrix]()


@pytest.fixture(scope="session")
def kill_matrix(pytestconfig: pytest.Config) -> KillMatrix:
    return pytestconfig.stash.setdefault(_KILL_MATRIX, KillMatrix())


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter, config: pytest.Config) -> None:
    """Print the kill matrix if rows of it were run."""
    matrix = config.stash.get(_KILL_MATRIX, KillMatrix())
    if matrix.rows:
        terminalreporter.section("kill matrix")
        for line in matrix.lines():
            terminalreporter.write_line(line)


@pytest.fixture
def small_disk() -> Iterator[Callable[[Path], None]]:
    """`small_disk(folder)` makes the folder a file system of its own with little room; mounting one takes root."""
    with contextlib.ExitStack() as mounted:

        def mount(folder: Path) -> None:
            folder.mkdir()
            words = ["mount", "-t", "tmpfs", "-o", "size=8m", "tmpfs", str(folder)]
            done = subprocess.run(words, capture_output=True, text=True, check=False)
            if done.returncode:
                message = f"no file system can be mounted here: {done.stderr.strip()}"
                if os.environ.get("CI"):
                    pytest.fail(message)
                pytest.skip(message)
            mounted.callback(subprocess.run, ["umount", "--lazy", str(folder)], check=True)

        yield mount


@pytest.fixture(scope="session")
def virtuoso_installed() -> None:
    """Virtuoso 7 on this machine; its absence is a failure in CI."""
    if not shutil.which("virtuoso-t"):
        message = "virtuoso-t is not installed (Debian package virtuoso-opensource-7)"
        if os.environ.get("CI"):
            pytest.fail(message)
        pytest.skip(message)


@pytest.fixture(scope="session")
def virtuoso_factory(virtuoso_installed: None, tmp_path_factory: pytest.TempPathFactory) -> Iterator[VirtuosoFactory]:
    """`virtuoso_factory(triples, replicas=2, terms=…, settings=…)`: running servers that hold exactly these triples."""
    with contextlib.ExitStack() as running:

        def start(
            triples: Iterable[Triple],
            *,
            replicas: int = 1,
            terms: Terms | None = None,
            settings: ServerSettings | None = None,
        ) -> list[Server]:
            folder = tmp_path_factory.mktemp("virtuoso")
            file = _write(triples, folder / "graph.nt", terms or Terms())
            settings = settings or ServerSettings(memory_gb=0.1, threads=8)
            virtuoso.build_database([file], folder / "database", settings)
            return running.enter_context(virtuoso.replicas(folder / "database", replicas, folder, settings))

        yield start


def _write(triples: Iterable[Triple], file: Path, terms: Terms) -> Path:
    with file.open("w", encoding="utf-8") as stream:
        stream.writelines(map(terms.n_triple, triples))
    return file
