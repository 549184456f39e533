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
