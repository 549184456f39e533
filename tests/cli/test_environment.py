"""What the environment can do to a command: other encodings, a full standard output, no memory, odd paths."""

from __future__ import annotations

import errno
import os
import subprocess
from pathlib import Path
from typing import Any

import pytest

from pipeline.cli.main import guard
from tests.cli.support import Kgqa
from tests.support import KGQA


def kgqa_with(environment: dict[str, str], *words: str | Path, stdout: Any = subprocess.PIPE) -> Any:
    command = [*KGQA, *map(str, words)]
    return subprocess.run(
        command, env={**os.environ, **environment}, stdout=stdout, stderr=subprocess.PIPE, check=False
    )


@pytest.mark.parametrize("encoding", ["latin-1", "ascii"])
def test_a_terminal_with_another_encoding_shows_question_marks(finished: Path, encoding: str) -> None:
    for words in (("evaluate", "--help"), ("score", finished)):
        done = kgqa_with({"PYTHONIOENCODING": encoding}, *words)
        assert (done.returncode, done.stderr) == (0, b"")
        assert b"?" in done.stdout


@pytest.mark.parametrize("words", [("evaluate", "--help"), ("ls", "{run}"), ("score", "{run}", "json=true")])
def test_a_full_standard_output_is_one_sentence(finished: Path, words: tuple[str, ...]) -> None:
    with Path("/dev/full").open("wb") as full:
        done = kgqa_with({}, *(word.format(run=finished) for word in words), stdout=full)
    assert (done.returncode, done.stderr) == (2, b"kgqa: No space left on device: standard output is on a full disk\n")


@pytest.mark.parametrize(
    ("error", "sentence"),
    [
        (
            OSError(errno.EMFILE, "Too many open files"),
            "Too many open files: raise the limit of open files (ulimit -n)",
        ),
        (MemoryError(), "out of memory: run fewer questions at once"),
    ],
)
def test_a_lack_of_resources_is_one_sentence(
    error: Exception, sentence: str, capsys: pytest.CaptureFixture[str]
) -> None:
    def fail(words: list[str]) -> int:
        raise error

    assert guard(fail, ["evaluate"]) == 2
    assert capsys.readouterr().err.startswith(f"kgqa: {sentence}")


@pytest.mark.parametrize(
    ("word", "folder"), [('run.dir="x=y"', "x=y"), (r"run.dir=x\${y}", "x${y}"), ("run.dir='a b'", "a b")]
)
def test_paths_with_special_characters(kgqa: Kgqa, tmp_path: Path, word: str, folder: str) -> None:
    asked = ("dataset.triples=2000", "run.limit=4", "evaluation.bootstrap_resamples=100", word)
    assert kgqa("evaluate", *asked).code == 0
    assert (tmp_path / folder / "summary.json").is_file()
    for command in ("score", "report", "show", "ls"):
        done = kgqa(command, folder, *(["sample-test-000000"] if command == "show" else []))
        assert done.code == 0, done.err
    assert "already" in kgqa("evaluate", f"{folder}/run.yaml").err


def test_an_unescaped_interpolation_in_a_path_says_how_it_is_written(kgqa: Kgqa) -> None:
    assert r"\${y}" in kgqa("evaluate", "run.dir=x${y}").err
