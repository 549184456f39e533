"""Which of its words a command takes as run folders."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from tests.cli.support import Kgqa


@pytest.fixture
def runs(finished: Path, tmp_path: Path) -> list[str]:
    """What a shell writes for `runs/*`: two runs among other files and folders."""
    for name in ("runs/a", "runs/b"):
        shutil.copytree(finished, tmp_path / name)
    (tmp_path / "runs/figures").mkdir()
    (tmp_path / "runs/notes.txt").write_text("half an idea")
    return ["runs/a", "runs/b", "runs/figures", "runs/notes.txt"]


@pytest.mark.parametrize(
    "words", ["compare", "report output=r.html", "collect calls output=c.jsonl material.allow_test_split=true"]
)
def test_what_is_no_run_is_skipped(words: str, runs: list[str], kgqa: Kgqa) -> None:
    done = kgqa(*words.split(), *runs)
    assert done.code == 0
    assert [line for line in done.err.splitlines() if "skipped" in line] == [
        "runs/figures is skipped: it is not a run folder",
        "runs/notes.txt is skipped: it is not a run folder",
    ]


def test_a_run_that_has_lost_its_first_file_is_not_skipped(runs: list[str], kgqa: Kgqa) -> None:
    Path("runs/b/run.yaml").unlink()
    assert kgqa("report", *runs).sentence.endswith("runs/b is not a run folder: it has no run.yaml")


def test_a_misspelled_run_is_not_skipped(runs: list[str], kgqa: Kgqa) -> None:
    assert kgqa("report", "runs/a", "runs/c").sentence == "runs/c is not a run folder: it does not exist (see kgqa ls)"


def test_words_without_a_run_are_an_error(runs: list[str], kgqa: Kgqa) -> None:
    file = "runs/a/run.yaml is not a run folder: it is a file; name its folder, runs/a"
    assert kgqa("report", "runs/a/run.yaml").sentence == file
    assert kgqa("report", *runs[2:]).sentence == "runs/figures is not a run folder: it has no run.yaml"


def test_a_run_that_is_named_twice_counts_once(runs: list[str], kgqa: Kgqa) -> None:
    done = kgqa("compare", "runs/a", "runs/../runs/a/")
    assert done.code == 2
    assert done.err.splitlines() == [
        "runs/a is given more than once: it counts once",
        "kgqa: runs/a has a single configuration: name another run to compare it with",
    ]
