"""Fixtures shared by the whole suite."""

from __future__ import annotations

import os
import socket
from pathlib import Path

import pytest

from pipeline.datasets.sample import SampleWorld
from tests.support import refuse

_ROOT = Path(__file__).resolve().parent.parent


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
    """The folder of a small Llama with random weights, as `kgqa llm make` makes it."""
    from pipeline.training.llama import LlamaShape, make_llama  # which imports all methods

    folder = tmp_path_factory.mktemp("models") / "llama"
    make_llama(SampleWorld(), refuse, LlamaShape(), seed=0).save(folder)
    return folder


@pytest.fixture
def closed_port() -> int:
    """A port of this machine on which nothing listens."""
    with socket.create_server(("127.0.0.1", 0)) as listener:
        return int(listener.getsockname()[1])
