"""Fixtures shared by the whole suite."""

from __future__ import annotations

import os
import re
import socket
from pathlib import Path

import pytest
from hypothesis import settings
from xdist.remote import Producer
from xdist.scheduler import LoadScopeScheduling

from pipeline.config import default
from pipeline.simulation.world import SyntheticWorld
from tests.support import refuse

_ROOT = Path(__file__).resolve().parent.parent

# No profile has a deadline: how long a value takes depends on what else the machine does.
settings.register_profile("full", deadline=None)  # tests a property with 100 values
settings.register_profile("quick", max_examples=5, deadline=None)  # for `make test`
settings.register_profile("large", max_examples=100_000, deadline=None)  # for `make test-large`
settings.load_profile("full")

_MARKER_OF_FIXTURE = {
    "browser": "needs_browser",
    "ray_cluster": "needs_ray",
    "virtuoso_installed": "needs_virtuoso",
    "vllm_server": "needs_vllm",
    "served_llama": "needs_vllm",
}


_LONGEST_FIRST = (
    "integration/models",
    "integration/ray",
    "integration",
    "docs",
    "golden",
    "cli",
    "engine",
    "methods",
    "simulation",
    "llm",
)
"""Folders of tests whose modules take longest. A long module that started last would leave the other process idle."""


_OF_RAY = re.compile(r"/integration/(ray|models)/|/test_on_ray\.py::|\bray\]$")
"""The names of the tests that start Ray or vLLM."""
_YIELDING = 5
"""The niceness of the processes that run other tests: those of Ray take longest, and have many processes."""


class ModulesInOneProcess(LoadScopeScheduling):
    """Gives all tests of a module to one process, so that its fixtures are made once.

    All tests of Ray and of real models are one group. They share clusters and model servers. Some of them stop every
    Ray process of the machine. Ray does not start in time if two of them use the processors.
    """

    def _split_scope(self, nodeid: str) -> str:
        return "ray" if _OF_RAY.search(nodeid) else nodeid.partition("::")[0]


@pytest.hookimpl(optionalhook=True)  # `pytest -p no:xdist` does not know it
def pytest_xdist_make_scheduler(config: pytest.Config, log: Producer) -> LoadScopeScheduling:
    """Distribute the tests of `pytest -n 3`, in the order in which they were collected."""
    config.option.loadscopereorder = False
    return ModulesInOneProcess(config, log)


def pytest_runtest_setup(item: pytest.Item) -> None:
    """Let a process without tests of Ray yield to the one that has them."""
    own = os.getpriority(os.PRIO_PROCESS, 0)
    if hasattr(item.config, "workerinput") and not _OF_RAY.search(item.nodeid) and own < _YIELDING:
        os.setpriority(os.PRIO_PROCESS, 0, _YIELDING)


def pytest_ignore_collect(collection_path: Path, config: pytest.Config) -> bool | None:
    """Leave out tests/gpu unless the command names it. It needs a GPU, and is run by itself."""
    gpu = _ROOT / "tests" / "gpu"
    named = any(Path(config.invocation_params.dir, word.partition("::")[0]).is_relative_to(gpu) for word in config.args)
    return True if collection_path == gpu and not named else None


@pytest.hookimpl(trylast=True)
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Leave out all sizes of a test but the exhaustive one, and let `pytest -n 3` start with the longest modules."""
    if not config.option.markexpr:
        _deselect(config, items, "smaller")
    if "large" not in config.option.markexpr:
        _deselect(config, items, "large")
    if hasattr(config, "workerinput"):
        items.sort(key=_place)


def _deselect(config: pytest.Config, items: list[pytest.Item], marker: str) -> None:
    config.hook.pytest_deselected(items=[item for item in items if item.get_closest_marker(marker)])
    items[:] = [item for item in items if not item.get_closest_marker(marker)]


def _place(item: pytest.Item) -> int:
    folders = (place for place, folder in enumerate(_LONGEST_FIRST) if f"tests/{folder}/" in item.nodeid)
    return next(folders, len(_LONGEST_FIRST))


def pytest_itemcollected(item: pytest.Item) -> None:
    """Mark a test by the servers that its fixtures start, for `pytest -m "not needs_vllm"`."""
    for fixture in getattr(item, "fixturenames", ()):
        if marker := _MARKER_OF_FIXTURE.get(fixture):
            item.add_marker(marker)


@pytest.fixture(scope="session")
def shared_data() -> Path:
    """The folder of real data (`KGQA_SHARED_DATA`); its absence is a failure in CI."""
    folder = Path(os.environ.get("KGQA_SHARED_DATA", _ROOT.parent / "shared" / "data"))
    if not folder.is_dir():
        message = f"no real data at {folder}; set KGQA_SHARED_DATA to the folder that holds metaqa/ and freebase-slice/"
        if os.environ.get("CI"):
            pytest.fail(message)
        pytest.skip(message)
    return folder


@pytest.fixture(scope="session")
def llama(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of a small Llama with random weights, made as `kgqa init-model` makes it."""
    from pipeline.training.llama import LlamaShape, make_llama  # which imports all methods

    folder = tmp_path_factory.mktemp("models") / "llama"
    make_llama(default(SyntheticWorld), refuse, default(LlamaShape), seed=0).save(folder)
    return folder


@pytest.fixture
def closed_port() -> int:
    """A port of this machine on which nothing listens."""
    with socket.create_server(("127.0.0.1", 0)) as listener:
        return int(listener.getsockname()[1])
