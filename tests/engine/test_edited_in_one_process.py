"""A process that makes several runs, such as a notebook, keeps the code that it has imported when its file changes."""

from __future__ import annotations

import importlib
import sys

import pytest

import pipeline
from pipeline.errors import UserError
from tests.engine.user_project import Project

DATA = ["dataset=custom", "dataset.triples=facts.tsv", "dataset.questions=questions.jsonl", "llm=oracle"]


@pytest.mark.parametrize("edited", ["capital", "helper"])
def test_the_old_code_does_not_run_under_the_name_of_the_new_one(
    edited: str, project: Project, monkeypatch: pytest.MonkeyPatch
) -> None:
    code, choice = project.write_method(monkeypatch)
    words = [*DATA, *choice]
    first = pipeline.evaluate([*words, "run.dir=runs/first"])
    assert first.questions.collect()["answers"].list.get(0).to_list()[0] == "Arta"
    file = code / f"{edited}.py"
    file.write_text(file.read_text().replace("nodes[0]", "'Nowhere'").replace("best(each.nodes)", "'Nowhere'"))
    for other in ("run.dir=runs/second", "run.dir=runs/first", "run.restart=true"):
        with pytest.raises(UserError, match=rf"{edited}\.py has changed since Python imported it, and the old code"):
            pipeline.evaluate([*words, other])
    for name in ("helper", "capital"):
        importlib.invalidate_caches()
        importlib.reload(sys.modules[name])
    second = pipeline.evaluate([*words, "run.dir=runs/second"])
    assert second.questions.collect()["answers"].list.get(0).to_list()[0] == "Nowhere"


@pytest.mark.parametrize("keeps_compiled", [True, False])
def test_an_edit_before_the_first_run_is_noticed_where_python_keeps_compiled_files(
    keeps_compiled: bool, project: Project, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sys, "dont_write_bytecode", not keeps_compiled)
    code, choice = project.write_method(monkeypatch)
    words = [*DATA, *choice, "run.dir=runs/first"]
    importlib.import_module("capital")
    file = code / "helper.py"
    file.write_text(file.read_text().replace("nodes[0]", "'Nowhere'"))
    if not keeps_compiled:
        pipeline.evaluate(words)
        return
    with pytest.raises(UserError, match=r"helper\.py has changed since Python imported it"):
        pipeline.evaluate(words)
    importlib.invalidate_caches()
    importlib.reload(sys.modules["helper"])
    importlib.reload(sys.modules["capital"])
    second = pipeline.evaluate(words)
    assert second.questions.collect()["answers"].list.get(0).to_list()[0] == "Nowhere"


def test_a_comment_is_no_edit(project: Project, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "dont_write_bytecode", False)
    code, choice = project.write_method(monkeypatch)
    importlib.import_module("capital")
    file = code / "helper.py"
    file.write_text(file.read_text() + "# a remark\n")
    assert pipeline.evaluate([*DATA, *choice, "run.dir=runs/first"]).questions.collect().height
