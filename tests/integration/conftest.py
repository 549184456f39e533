"""Real servers for the integration tests, on free loopback ports, stopped at the end of the session."""

from __future__ import annotations

import contextlib
import os
import shutil
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path

import pytest

from pipeline.kg import virtuoso
from pipeline.kg.terms import Terms
from pipeline.kg.virtuoso import Server, ServerSettings
from pipeline.types import Triple

VirtuosoFactory = Callable[..., list[Server]]


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
