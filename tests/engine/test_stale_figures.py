"""Figures of other commands that could go stale: of a run without a shard, of a report, of labels and of noise."""

from __future__ import annotations

import json
import sys

import pytest

from pipeline.cli.main import main
from tests.engine.user_project import CITIES, Project


def test_a_run_without_one_of_its_shards_is_not_complete(project: Project, capsys: pytest.CaptureFixture[str]) -> None:
    """A damaged shard is removed, as its error advises; until the run goes on, no figure speaks for all questions."""
    project.run("method=tog", "llm=oracle")
    before = project.summary()
    (project.folder / "runs/r/traces/shard-00001.parquet").unlink()
    capsys.readouterr()
    assert main(["ls", "json=true"]) == 0
    assert '"complete":false' in capsys.readouterr().out.replace(" ", "")
    assert main(["score", "runs/r"]) == 0
    assert "not complete" in " ".join("".join(capsys.readouterr()).split())
    assert main(["report", "runs/r", "json=true"]) == 0
    assert '"complete":true' not in capsys.readouterr().out.replace(" ", "")
    project.run("method=tog", "llm=oracle")
    assert main(["ls", "json=true"]) == 0
    assert '"complete":true' in capsys.readouterr().out.replace(" ", "")
    assert project.summary()["points"][0]["hits_at_1"] == before["points"][0]["hits_at_1"]


def test_a_report_of_older_results_is_named(project: Project, capsys: pytest.CaptureFixture[str]) -> None:
    project.run("method=tog", "llm=oracle")
    assert main(["report", "runs/r"]) == 0
    assert "shows older results" not in project.run("method=tog", "llm=oracle")
    project.write_questions({**CITIES, "Borland": "Nowhere"})
    assert "report.html shows older results: kgqa report" in project.run("method=tog", "llm=oracle")
    assert main(["report", "runs/r"]) == 0
    for path in (project.folder / "runs/r/traces").iterdir():
        path.touch()  # as a copy of the folder does
    assert "shows older results" not in project.run("method=tog", "llm=oracle")


def test_labels_in_which_two_runs_differ_are_counted(project: Project, capsys: pytest.CaptureFixture[str]) -> None:
    for name, kind in (("a", "city"), ("b", "town")):
        project.write_questions(CITIES, type=kind)
        project.run("method=tog", "llm=oracle", folder=f"runs/{name}")
    capsys.readouterr()
    assert main(["compare", "runs/a", "runs/b", "by=type"]) == 0
    said = " ".join(capsys.readouterr().out.split())
    assert "5 questions of b:0 have another type there: they stand in the groups of a:0" in said


@pytest.mark.exhaustive
@pytest.mark.parametrize("change", ["gold", "graph", "source"])
def test_noise_is_measured_anew_for_a_base_that_has_changed(
    project: Project, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], change: str
) -> None:
    """The second run of the base, in its folder `noise`, must not keep answers, scores or code of an earlier base."""
    code, words = project.write_method(monkeypatch)

    def noise() -> float:
        for name in ("a", "b"):
            project.run(*words, *restart, folder=f"runs/{name}")
        capsys.readouterr()
        assert main(["compare", "runs/a", "runs/b", "noise.questions=4", "json=true"]) == 0
        difference: float = json.loads(capsys.readouterr().out)["noise"]["absolute"]
        return difference

    restart: tuple[str, ...] = ()
    assert noise() == 0
    if change == "gold":
        project.write_questions({**CITIES, "Borland": "Nowhere"})
    else:
        restart = ("run.restart=true",)
    if change == "graph":
        project.write_facts({**CITIES, "Borland": "Nowhere"})
    if change == "source":
        (code / "helper.py").write_text("def best(nodes):\n    return 'Nowhere'\n")
        for name in ("capital", "helper"):
            monkeypatch.delitem(sys.modules, name)
    assert noise() == 0
    (again,) = (project.folder / "runs/a/noise").iterdir()
    kept = project.rows(f"runs/a/noise/{again.name}")["question_id", "answers", "gold", "hits_at_1"]
    assert kept.equals(project.rows("runs/a")["question_id", "answers", "gold", "hits_at_1"][: kept.height])
