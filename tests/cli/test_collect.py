"""`kgqa collect`: what it prints, and its error messages."""

from __future__ import annotations

from pathlib import Path

import polars as pl
import pytest

from tests.cli.support import Kgqa

ARG = ("collect", "arg", "dataset.triples=2000", "run.limit=16", "output=texts.jsonl")


def test_the_report_is_printed_with_the_path_of_the_texts(kgqa: Kgqa) -> None:
    shown = kgqa(*ARG, "dataset.split=train")
    assert shown.code == 0
    assert "training texts from 16 questions" in shown.out
    assert "rejected: no path to an answer within 4 hops" in shown.out
    assert "relevance [Fully Relevant]" in shown.out
    assert shown.out.splitlines()[-1] == "texts: texts.jsonl"
    assert Path("texts.report.json").is_file()
    assert max(map(len, shown.out.splitlines())) <= 80


@pytest.mark.parametrize(
    ("words", "sentence"),
    [
        ((*ARG,), "dataset.split=test is for evaluation, not for training: give another dataset.split"),
        ((*ARG[:-1], "dataset.split=train"), "output must be given, as in output=…"),
        ((*ARG, "dataset.split=train", "material.held_out=[gone.txt]"), "material.held_out.0='gone.txt' is wrong"),
        ((*ARG, "dataset.split=train", "collect.paths=long"), "collect.paths='long' is wrong"),
        ((*ARG, "dataset.split=train", "collect.max_hop=2"), "unknown key 'collect.max_hop'. Did you mean"),
        (
            (*ARG, "dataset.split=train", "dataset.types=[count]"),
            "none of 16 questions gave a training text (16 no path",
        ),
        (("collect", "agr"), "kgqa collect has no 'agr'. Did you mean 'arg'? It has arg, parog, rog, calls, "),
    ],
)
def test_mistakes(words: tuple[str, ...], sentence: str, kgqa: Kgqa) -> None:
    assert kgqa(*words).sentence.startswith(sentence)


RUN = ("evaluate", "method=cot", "llm=oracle", "dataset.triples=2000", "run.limit=8", "run.dir=run")
CALLS = ("collect", "calls", "run", "output=calls.jsonl")


def test_the_calls_of_a_run(kgqa: Kgqa) -> None:
    assert kgqa(*RUN, "dataset.split=dev").code == 0
    shown = kgqa(*CALLS)
    assert shown.code == 0
    assert "8 of 8 calls of 8 questions" in shown.out
    assert max(map(len, shown.out.splitlines()[:-2])) <= 80
    assert shown.out.splitlines()[-2:] == [
        "run was answered by oracle, not by a language model",
        "rows: calls.jsonl",
    ]
    Path("run/summary.json").unlink()
    assert "run is not finished: only its committed questions were read" in kgqa(*CALLS).out


def test_a_run_of_which_nothing_may_be_learned_is_an_error(kgqa: Kgqa) -> None:
    assert kgqa(*RUN, "dataset.split=dev").code == 0
    ids = pl.read_parquet("run/traces/*.parquet")["question_id"]
    Path("ids.txt").write_text("".join(f"{id}\n" for id in ids))
    said = kgqa(*CALLS, "material.held_out=[ids.txt]").sentence
    assert said.startswith("none of 8 calls may be learned from (8: ")


def test_a_run_of_a_test_split_is_refused_unless_allowed(kgqa: Kgqa) -> None:
    assert kgqa(*RUN).code == 0
    assert kgqa(*CALLS).sentence.startswith("the test split of run is for evaluation, not for training")
    assert not Path("calls.jsonl").exists()
    assert kgqa(*CALLS, "material.allow_test_split=true").code == 0
    assert len(Path("calls.jsonl").read_text().splitlines()) == 8


@pytest.mark.parametrize(
    ("words", "sentence"),
    [
        (("collect", "calls", "output=x.jsonl"), "name what to read: kgqa collect calls RUN"),
        (
            ("collect", "calls", "nowhere", "output=x.jsonl"),
            "nowhere is not a run folder: it does not exist (see kgqa ls)",
        ),
        (("collect", "calls", "nowhere"), "output must be given"),
        ((*CALLS, "collect.right=false"), "unknown key 'collect.right'"),
        ((*CALLS, "collect.correct_only=perhaps"), "collect.correct_only='perhaps' is wrong"),
        ((*CALLS, "material.held_out=[gone.txt]"), "material.held_out.0='gone.txt' is wrong"),
    ],
)
def test_mistakes_with_calls(words: tuple[str, ...], sentence: str, kgqa: Kgqa) -> None:
    assert kgqa(*words).sentence.startswith(sentence)


def test_a_test_split_can_be_allowed(kgqa: Kgqa) -> None:
    assert kgqa(*ARG, "material.allow_test_split=true").code == 0
