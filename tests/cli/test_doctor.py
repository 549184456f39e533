"""`kgqa doctor`: a table, a verdict, and an exit code."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import pytest

from tests.cli.support import Kgqa

WORDS = ("doctor", "dataset.triples=2000", "llm=oracle", "run.dir=run")


def test_a_configuration_without_problems(kgqa: Kgqa, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "80")
    shown = kgqa(*WORDS)
    assert shown.code == 0, shown.out
    assert shown.out.splitlines()[-1] == "no problem found"
    assert max(map(len, shown.out.splitlines())) <= 80
    assert list(tmp_path.iterdir()) == []


def test_a_problem_is_exit_code_1_and_a_warning_is_not(kgqa: Kgqa) -> None:
    one = kgqa(*WORDS, "run.dir=/sys/kgqa")
    assert (one.code, one.out.splitlines()[-1]) == (1, "1 problem, which stopped 1 other check")  # the dry run
    assert "→ Name another run.dir" in one.out
    some = kgqa(*WORDS, "engine.concurrency=50000")
    assert (some.code, some.out.splitlines()[-1]) == (0, "1 warning")


def test_a_model_that_was_not_trained_for_it_is_a_warning(kgqa: Kgqa) -> None:
    checked = kgqa("doctor", "llm=embedded", "method=srp", "dataset.triples=2000")
    assert checked.code == 0, checked.err
    said = " ".join(checked.out.split())
    assert "the bundled model was trained for srp with method.num_references=0" in said
    assert "Set these keys, or use the model for what it was trained for" in said


def test_one_cause_is_printed_once(kgqa: Kgqa) -> None:
    words = ["llm=endpoint" if word.startswith("llm=") else word for word in WORDS]
    shown = kgqa(*words, "llm.base_urls=[http://127.0.0.1:9/v1]", "llm.model=x", "llm.max_retries=0")
    text = " ".join(shown.out.split())
    assert text.count("no model server can be used") == 1
    assert "stopped dry run not tried → Fix the problems above, and run kgqa doctor again." in text
    assert text.endswith("1 problem, which stopped 1 other check")


def test_two_dead_servers_are_two_problems(kgqa: Kgqa) -> None:
    words = ["llm=endpoint" if word.startswith("llm=") else word for word in WORDS]
    urls = "llm.base_urls=[http://127.0.0.1:9/v1,http://127.0.0.1:11/v1]"
    shown = kgqa(*words, urls, "llm.model=x", "llm.max_retries=0")
    assert shown.out.splitlines()[-1] == "2 problems, which stopped 1 other check"


def test_a_wrong_argument_is_exit_code_2(kgqa: Kgqa) -> None:
    assert kgqa(*WORDS, "metod=srp").sentence == "unknown key 'metod'. Did you mean 'method'?"
    assert kgqa(*WORDS, "method.depth=0").sentence.startswith("method.depth=0 is wrong")


def test_a_folder_with_another_run_is_a_problem(kgqa: Kgqa, finished: Path) -> None:
    shutil.copytree(finished, "run")
    shown = kgqa(*WORDS)
    assert shown.code == 1
    assert "holds another run. What differs: " in " ".join(shown.out.split())
    assert kgqa(*WORDS, "run.restart=true").code == 0


def test_a_saved_run_can_be_checked(kgqa: Kgqa, finished: Path) -> None:
    assert kgqa("doctor", finished / "run.yaml").code == 0
    kgqa("sweep", "method=cot", "method.depth=1,2", "dataset.triples=2000", "run.limit=2", "run.dir=many")
    assert kgqa("doctor", "many/run.yaml").sentence.startswith(
        "many/run.yaml holds 2 configurations: give the overrides"
    )


def test_a_first_line_that_looks_like_a_header_is_a_warning(kgqa: Kgqa, tmp_path: Path) -> None:
    (tmp_path / "facts.tsv").write_text("subject\tpredicate\tobject\nAnn\tknows\tBo\n")
    question = {"id": "q", "question": "Who?", "topic_entities": ["Ann"], "answers": ["Bo"]}
    (tmp_path / "questions.jsonl").write_text(json.dumps(question))
    files = ("dataset.triples=facts.tsv", "dataset.questions=questions.jsonl")
    shown = kgqa("doctor", "method=srp", "llm=oracle", "dataset=custom", *files, "run.dir=run", "json=true")
    assert shown.code == 0
    assert "the first line (subject, predicate, object) is read as a fact, but looks like a header" in shown.out
