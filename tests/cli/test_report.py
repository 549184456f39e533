"""`kgqa report`: writes one file, and prints its path."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

Kgqa = Callable[..., Any]


@pytest.fixture
def run(finished: Path, tmp_path: Path) -> Path:
    """A finished run that may be written to, in the folder `run`."""
    shutil.copytree(finished, tmp_path / "run")
    return tmp_path / "run"


def test_the_report_of_one_run_is_written_into_it(run: Path, kgqa: Kgqa) -> None:
    before = {file: file.read_bytes() for file in run.rglob("*") if file.is_file()}
    shown = kgqa("report", "run")
    assert (shown.code, shown.err) == (0, "")
    assert shown.out.splitlines()[-1] == "run/report.html"
    text = (run / "report.html").read_text()
    assert text.startswith("<!doctype html>")
    assert "srp on synthetic" in text
    after = {file: file.read_bytes() for file in run.rglob("*") if file.is_file()}
    assert after.keys() - before.keys() == {run / "report.html"}
    assert all(after[file] == content for file, content in before.items())


def test_the_report_of_several_runs_is_written_here(run: Path, kgqa: Kgqa, tmp_path: Path) -> None:
    shutil.copytree(run, tmp_path / "again=run")
    assert kgqa("report", "run", "again=run").out.splitlines()[-1] == "report.html"
    assert "again=run" in (tmp_path / "report.html").read_text()


def test_output_names_the_file(run: Path, kgqa: Kgqa, tmp_path: Path) -> None:
    assert kgqa("report", "run", "run", "output=page.html").out == "page.html\n"
    assert (tmp_path / "page.html").is_file()
    assert not (run / "report.html").exists()


def test_a_second_report_replaces_the_first(run: Path, kgqa: Kgqa) -> None:
    kgqa("report", "run")
    first = (run / "report.html").read_text()
    kgqa("report", "run")
    assert (run / "report.html").read_text() == first
    assert not list(run.glob("*.tmp"))


@pytest.mark.parametrize("words", ["--help", "", "run --help"])
def test_help(words: str, kgqa: Kgqa) -> None:
    shown = kgqa("report", *words.split())
    assert (shown.code, shown.err) == (0, "")
    assert shown.out.startswith("usage: kgqa report RUN")


@pytest.mark.parametrize(
    ("words", "sentence"),
    [
        ("nowhere", "nowhere is not a run folder: it has no run.yaml"),
        ("run nowhere", "nowhere is not a run folder: it has no run.yaml"),
        ("output=x.html", "name what to read: kgqa report RUN"),
        ("run outptu=x.html", "unknown key 'outptu'. Did you mean 'output'?"),
        ("run output=no/such/folder.html", "output=no/such/folder.html cannot be written: No such file or directory"),
        ("run output=run", "output=run cannot be written: Is a directory"),
    ],
)
def test_mistakes(words: str, sentence: str, run: Path, kgqa: Kgqa) -> None:
    assert kgqa("report", *words.split()).sentence.startswith(sentence)
