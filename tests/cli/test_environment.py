"""What the environment can do to a command: other encodings, a full standard output, no memory, odd paths."""

from __future__ import annotations

import errno
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import polars as pl
import pytest

from pipeline.cli.main import guard
from tests.cli.support import Kgqa
from tests.support import KGQA, sampled


def kgqa_with(environment: dict[str, str], *words: str | Path, stdout: Any = subprocess.PIPE) -> Any:
    command = [*KGQA, *map(str, words)]
    return subprocess.run(
        command, env={**os.environ, **environment}, stdout=stdout, stderr=subprocess.PIPE, check=False
    )


@pytest.mark.parametrize("encoding", sampled(["latin-1", "ascii"], every=2))
def test_a_terminal_with_another_encoding_shows_question_marks(finished: Path, encoding: str) -> None:
    for words in (("evaluate", "--help"), ("score", finished)):
        done = kgqa_with({"PYTHONIOENCODING": encoding}, *words)
        assert (done.returncode, done.stderr) == (0, b"")
        assert b"?" in done.stdout


@pytest.mark.parametrize("words", sampled(["evaluate --help", "ls {run}", "score {run} json=true"], every=3))
def test_a_full_standard_output_is_one_sentence(finished: Path, words: str) -> None:
    with Path("/dev/full").open("wb") as full:
        done = kgqa_with({}, *words.format(run=finished).split(), stdout=full)
    full_disk = b"the disk of standard output, or of a file that this command writes, is full"
    assert (done.returncode, done.stderr) == (2, b"kgqa: No space left on device: " + full_disk + b"\n")


@pytest.mark.parametrize(
    ("error", "sentence"),
    [
        (
            OSError(errno.EMFILE, "Too many open files"),
            "Too many open files: raise the limit of open files (ulimit -n)",
        ),
        (MemoryError(), "out of memory: run fewer questions at once"),
        (ImportError("a.so: failed to map segment from shared object"), "out of memory: a library cannot be loaded"),
    ],
)
def test_a_lack_of_resources_is_one_sentence(
    error: Exception, sentence: str, capsys: pytest.CaptureFixture[str]
) -> None:
    def fail(words: list[str]) -> int:
        raise error

    assert guard(fail, ["evaluate"]) == 2
    assert capsys.readouterr().err.startswith(f"kgqa: {sentence}")


LIMITED = """
import resource, sys
from pathlib import Path
from pipeline.cli.main import main
assert main([*sys.argv[1:], "run.dir=warm", "method.bytes=1"]) == 0  # loads every library and starts every thread
used = int(Path("/proc/self/statm").read_text().split()[0]) * resource.getpagesize()
resource.setrlimit(resource.RLIMIT_AS, (used + (512 << 20),) * 2)
sys.exit(main([*sys.argv[1:], "run.dir=limited"]))
"""


@pytest.mark.exhaustive
def test_a_run_without_enough_memory_is_one_sentence_and_goes_on_with_more(kgqa: Kgqa, tmp_path: Path) -> None:
    (tmp_path / "conf/method").mkdir(parents=True)
    (tmp_path / "conf/method/hungry.yaml").write_text(
        f"_target_: tests.engine.methods.NeedsMemory\nbytes: {1 << 30}\nbeam_width: 1\ndepth: 1\nretries: 0\n"
    )
    words = ("evaluate", "method=hungry", "dataset.triples=2000", "run.limit=40", "engine.shard_size=4")
    words = (*words, "engine.concurrency=2", "evaluation.bootstrap_resamples=100", "llm=oracle")
    paths = os.pathsep.join(filter(None, (str(Path(__file__).parents[2]), os.environ.get("PYTHONPATH"))))
    environment = {**os.environ, "PYTHONPATH": paths}
    done = subprocess.run(
        [sys.executable, "-c", LIMITED, *words], env=environment, capture_output=True, text=True, check=False
    )
    assert done.returncode == 2, done.stderr
    assert done.stderr.splitlines()[-1].startswith("kgqa: out of memory: run fewer questions at once")
    assert "Traceback" not in done.stderr
    assert kgqa(*words, "run.dir=limited").code == 0
    assert kgqa(*words, "run.dir=whole").code == 0
    limited, whole = (pl.read_parquet(f"{name}/traces/*.parquet").sort("question_id") for name in ("limited", "whole"))
    assert limited["status"].unique().to_list() == ["ok"]
    assert limited.select("question_id", "answers").equals(whole.select("question_id", "answers"))


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
