"""Fixtures of the tests of the engine."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.engine.user_project import Project


@pytest.fixture
def project(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Project:
    """A user's folder, which is the current one."""
    monkeypatch.chdir(tmp_path)
    return Project(tmp_path, capsys.readouterr)
