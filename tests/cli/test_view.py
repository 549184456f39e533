"""`kgqa view`: what it says when it cannot serve. The pages have tests of their own."""

from __future__ import annotations

import socket
from pathlib import Path

import pytest

from tests.cli.support import Kgqa


@pytest.fixture(autouse=True)
def _cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))


def test_a_folder_that_is_not_a_run_is_one_sentence(kgqa: Kgqa, tmp_path: Path) -> None:
    assert kgqa("view", tmp_path).sentence == f"{tmp_path} is not a run folder: it has no run.yaml"


def test_a_port_that_is_taken_is_one_sentence(kgqa: Kgqa, finished: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        sentence = kgqa("view", finished, f"port={port}").sentence
    assert sentence.startswith(f"port {port} cannot be used (")
    assert sentence.endswith("name another one, as in port=0")


def test_a_cache_that_cannot_be_written_is_one_sentence(
    kgqa: Kgqa, finished: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "file").write_text("")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "file"))
    assert "set XDG_CACHE_HOME to a folder that can be written" in kgqa("view", finished).sentence
