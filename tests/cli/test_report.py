"""`kgqa report`: writes one file, and prints its path."""

from __future__ import annotations

import re
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import polars as pl
import pytest

from pipeline.traces.shard_file import ShardFile

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
    assert shown.out.splitlines()[0] == "run/report.html"
    text = (run / "report.html").read_text()
    assert text.startswith("<!doctype html>")
    assert "srp on synthetic" in text
    after = {file: file.read_bytes() for file in run.rglob("*") if file.is_file()}
    assert after.keys() - before.keys() == {run / "report.html"}
    assert all(after[file] == content for file, content in before.items())


def test_the_rows_of_several_runs_in_a_file_name_their_run(run: Path, kgqa: Kgqa, tmp_path: Path) -> None:
    shutil.copytree(run, tmp_path / "other")
    assert kgqa("report", "run", "other", "table=t.csv").code == 0
    firsts = [line.partition(",")[0] for line in (tmp_path / "t.csv").read_text("utf-8").splitlines()]
    assert firsts == ["run:#", "run:0", "other:0"]


def test_what_a_run_shows_is_said_in_two_sentences(run: Path, kgqa: Kgqa) -> None:
    _, correct, hops, show, known, opening = kgqa("report", "run").out.splitlines()
    rows = pl.read_parquet(run / "traces" / "*.parquet")
    hits = rows["hits_at_1"].sum()
    score = f"{100 * hits / rows.height:.1f}"
    assert correct == (
        f"run: srp answered {hits:.0f} of {rows.height} questions of synthetic correctly (strict Hits@1 {score} %)."
    )
    assert re.fullmatch(r"By hops, it did best at \d \([\d.]+ %\) and worst at \d \([\d.]+ %\)\.", hops)
    command, _, purpose = show.partition(" prints ")
    assert purpose == "every step of a wrong answer."
    assert known.startswith("the oracle replies from the gold answers (")
    assert kgqa(*command.split()[1:]).code == 0
    assert opening == f"Open it in a browser: {(run / 'report.html').as_uri()}"


def test_what_a_sweep_shows_is_said_in_two_sentences(kgqa: Kgqa) -> None:
    world = ["dataset.triples=2000", "run.limit=10", "evaluation.bootstrap_resamples=100"]
    assert kgqa("sweep", *world, "llm=oracle", "llm.error_rate=0,0.9,0", "run.dir=two").code == 0
    _, configurations, best, *_ = kgqa("report", "two").out.splitlines()
    assert configurations.startswith("two: 3 configurations, with strict Hits@1 0.0 to 100 %.")
    assert best == "In configuration 0, one of the best, srp answered 10 of 10 questions of synthetic correctly."
    assert kgqa("sweep", *world, "llm=oracle", "llm.error_rate=0,0.9", "run.dir=single").code == 0
    assert "In configuration 0, the best, srp answered 10 of 10" in kgqa("report", "single").out


def test_the_best_of_several_seeds_is_called_luck(kgqa: Kgqa) -> None:
    axes = ("run.seed=1,2,3", "method=cot", "method.samples=3", "method.temperature=0.7")
    words = ("llm=oracle", "llm.error_rate=0.4", "dataset.triples=2000", "run.limit=10", "run.dir=seeds")
    assert kgqa("sweep", *axes, *words).code == 0
    said = kgqa("report", "seeds").out
    (mean,) = re.findall(r"cot ([\d.]+ ± [\d.]+) \(3 seeds\)", kgqa("score", "seeds").out)
    assert f"It is one of 3 seeds, and the best draw is luck: their mean is {mean} % (1.96·s/√n)." in said


@pytest.mark.parametrize(("methods", "whose"), [("tog,srp", "No configuration"), ("cot,srp", "None of those")])
def test_no_configuration_is_the_best_if_all_are_wrong(methods: str, whose: str, kgqa: Kgqa) -> None:
    words = ("llm=oracle", "llm.error_rate=1", "dataset.triples=2000", "run.limit=3", "run.dir=wrong")
    assert kgqa("sweep", f"method={methods}", *words).code == 0
    said = kgqa("report", "wrong").out
    assert f"{whose} answered one of 3 questions of synthetic correctly." in said
    assert "the best" not in said


def test_the_report_of_several_runs_is_written_beside_the_first(
    run: Path, kgqa: Kgqa, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    shutil.copytree(run, tmp_path / "again=run")
    assert kgqa("report", "run", "again=run").out.splitlines()[0] == "report.html"
    assert "again=run" in (tmp_path / "report.html").read_text()
    (tmp_path / "report.html").unlink()
    (tmp_path / "elsewhere").mkdir()
    monkeypatch.chdir(tmp_path / "elsewhere")
    assert kgqa("report", tmp_path / "run", tmp_path / "again=run").code == 0
    assert (tmp_path / "report.html").is_file()
    assert not list((tmp_path / "elsewhere").iterdir())


def test_output_names_the_file(run: Path, kgqa: Kgqa, tmp_path: Path) -> None:
    assert kgqa("report", "run", "run", "output=page.html").out.splitlines()[0] == "page.html"
    assert (tmp_path / "page.html").is_file()
    assert not (run / "report.html").exists()


def test_a_second_report_replaces_the_first(run: Path, kgqa: Kgqa) -> None:
    kgqa("report", "run")
    first = (run / "report.html").read_text()
    kgqa("report", "run")
    assert (run / "report.html").read_text() == first
    assert not list(run.glob("*.tmp"))


@pytest.mark.parametrize("words", ["--help", "run --help"])
def test_help(words: str, kgqa: Kgqa) -> None:
    shown = kgqa("report", *words.split())
    assert (shown.code, shown.err) == (0, "")
    assert shown.out.startswith("usage: kgqa report RUN")


@pytest.mark.parametrize(
    ("words", "sentence"),
    [
        ("nowhere", "nowhere is not a run folder: it does not exist (see kgqa ls)"),
        ("run nowhere", "nowhere is not a run folder: it does not exist (see kgqa ls)"),
        ("output=x.html", "name what to read: kgqa report RUN"),
        ("run outptu=x.html", "unknown key 'outptu'. Did you mean 'output'?"),
        ("run output=no/such/folder.html", "output=no/such/folder.html cannot be written: No such file or directory"),
        ("run output=x.pdf", "output=x.pdf: the report is an HTML page, so its name must end in .html"),
        ("run output=run", "output=run cannot be written: Is a directory"),
    ],
)
def test_mistakes(words: str, sentence: str, run: Path, kgqa: Kgqa) -> None:
    assert kgqa("report", *words.split()).sentence.startswith(sentence)


def test_each_shard_is_read_once_however_many_configurations_there_are(
    kgqa: Kgqa, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Without examples: every answer is right. An example reads the keys of the shards up to its own, and one row."""
    world = ["dataset.triples=2000", "run.limit=6", "engine.shard_size=2", "evaluation.bootstrap_resamples=100"]
    sweep = ["method=cot", "llm=oracle", "method.max_tokens=100,200,300"]
    assert kgqa("sweep", *world, *sweep, "run.dir=run").code == 0
    read: list[Path] = []
    frame = ShardFile.frame

    def counted(shard: ShardFile, columns: list[str]) -> pl.DataFrame:
        read.append(Path("read"))
        return frame(shard, columns)

    monkeypatch.setattr(ShardFile, "frame", counted)
    assert kgqa("report", "run").code == 0
    assert len(list(Path("run/traces").glob("*.parquet"))) == 3
    assert len(read) == 3
