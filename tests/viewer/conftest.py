"""The runs that the tests of the viewer share."""

from __future__ import annotations

from pathlib import Path

import pytest

from pipeline.traces.folder import RunFolder
from pipeline.viewer.index import RunIndex
from tests.viewer.support import make_hostile, make_run


@pytest.fixture(scope="session")
def run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of a run of every method. Tests that write to it use a copy."""
    return make_run(tmp_path_factory.mktemp("viewed") / "run")


@pytest.fixture(scope="session")
def hostile(run: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A copy of it with hostile texts."""
    return make_hostile(run, tmp_path_factory.mktemp("hostile") / "run")


@pytest.fixture(scope="session")
def index(run: Path, tmp_path_factory: pytest.TempPathFactory) -> RunIndex:
    """Its table of questions."""
    index = RunIndex(RunFolder(run), "run", tmp_path_factory.mktemp("cache"))
    index.update()
    return index
