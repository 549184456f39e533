"""No result outlives its gold answers and labels: rows are scored again without a call, and old replies are named."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from pipeline.analysis.runs import open_run
from pipeline.cli.main import main
from pipeline.console import Console
from pipeline.engine.dataset_changes import DatasetChanges
from pipeline.errors import UserError
from pipeline.traces.folder import RunFolder
from pipeline.traces.origin import READ_BY_METHODS
from tests.engine.user_project import CITIES, Project
from tests.support import sampled

PACKAGE = Path(__file__).parents[2] / "pipeline"


def test_changed_gold_answers_are_scored_again_without_a_call(project: Project) -> None:
    project.run("llm=oracle")
    assert project.summary()["points"][0]["hits_at_1"] == 1
    project.write_questions({**CITIES, "Borland": "Nowhere"})
    said = project.run("llm=oracle")
    assert "the gold answers or gold paths of 1 question have changed: their rows were scored again" in said
    stale = "new gold answers score 1 question that a simulated model answered from older ones"
    assert stale in said
    assert said.count("run.restart=true") == 1, "it is said once"
    assert stale in project.run("llm=oracle"), "it is said for as long as it is so"
    assert project.summary()["points"][0]["hits_at_1"] == pytest.approx(0.8)
    assert project.rows()["gold"].to_list()[:3] == [["Arta"], ["Nowhere"], ["Corvo"]]
    assert "have changed" not in project.run("llm=oracle")


@pytest.mark.parametrize("new_gold", [False, True])
def test_changed_labels_are_read_again_without_a_call(project: Project, new_gold: bool) -> None:
    project.write_questions(CITIES, type="easy")
    project.run("method=tog", "llm=oracle")
    before = project.rows()
    cities = {**CITIES, "Borland": "Nowhere"} if new_gold else CITIES
    project.write_questions(cities, type="hard", hops=1, source="s")
    file = project.folder / "questions.jsonl"
    file.write_text(file.read_text().replace('"hard"', '"other"', 1))
    said = project.run("method=tog", "llm=oracle")
    assert "the labels of 5 questions have changed: they were read again" in said
    assert "nothing to run" in said
    assert ("the gold answers or gold paths of 1 question have changed" in said) is new_gold
    assert ("answered from older ones" in said) is new_gold
    rows = project.rows()
    assert rows["type"].to_list() == ["other", *["hard"] * 4]
    assert set(rows["hops"]) == {1}
    groups = project.summary()["points"][0]["breakdown"]["type"]
    assert {group["value"]: group["questions"] for group in groups} == {"hard": 4, "other": 1}
    trails = open_run("runs/r").questions.select("trail").collect()["trail"]
    assert trails.null_count() == new_gold, "it is of the gold answers"
    same = [name for name in rows.columns if name not in {"type", "hops", "meta"}]
    assert rows.select(same).equals(before.select(same)) is not new_gold
    assert "have changed" not in project.run("method=tog", "llm=oracle")


def test_a_field_of_a_question_that_a_method_reads_is_no_label(project: Project) -> None:
    fields = "dataset.meta=[type,domain]"
    project.write_questions(CITIES, type="easy", domain="a")
    project.run(fields)
    project.write_questions(CITIES, type="hard", domain="b")
    assert "holds answers to other questions (changed: 5 questions, " in project.run(fields, code=2)


def test_the_fields_of_a_question_that_methods_read_are_known() -> None:
    """Every other field is a label, whose change needs no call."""
    parts = ("methods", "simulation", "llm", "kg", "retrieval")
    sources = [file.read_text("utf-8") for part in parts for file in (PACKAGE / part).rglob("*.py")]
    read = [field for text in sources for field in re.findall(r"question\.meta(?:\.get\(\"(\w+)\")?", text)]
    assert set(read) == set(READ_BY_METHODS)


def test_changed_labels_are_refused_for_a_method_of_the_users(
    project: Project, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It may have read them."""
    _, words = project.write_method(monkeypatch)
    project.write_questions(CITIES, type="easy")
    project.run(*words)
    project.write_questions(CITIES, type="hard")
    assert "holds answers to other questions (changed: 5 questions, " in project.run(*words, code=2)


def test_gold_answers_that_change_back_are_those_of_the_replies(
    project: Project, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", "200")
    words = ("method=tog", "llm=oracle", "llm.error_rate=1")
    project.run(*words)
    before, losses = project.rows(), open_run("runs/r").losses().collect()
    assert losses["right"].sum() < len(CITIES)
    project.write_questions(dict.fromkeys(CITIES, "Nowhere"))
    assert "older ones" in project.run(*words)
    assert set(open_run("runs/r").losses().collect()["reason"]) == {"old trace"}
    assert main(["losses", "runs/r"]) == 0
    printed = " ".join(capsys.readouterr().out.split())
    why = "an older version made the run, or its gold answers or gold paths have changed since"
    assert f"because of: old trace: {why}" in printed
    assert "the same run with another run.dir and 'run.reuse=[runs/r]' takes over the calls of these traces" in printed
    project.write_questions(CITIES)
    assert "older ones" not in project.run(*words)
    assert open_run("runs/r").losses().collect().equals(losses)
    assert project.rows().equals(before)


def test_compare_names_each_run_with_replies_from_older_gold_answers(
    project: Project, capsys: pytest.CaptureFixture[str]
) -> None:
    for name, method in (("old", "cot"), ("older", "srp"), ("new", "tog")):
        if name == "new":
            project.write_questions({**CITIES, "Borland": "Nowhere"})
        project.run(f"method={method}", "llm=oracle", folder=f"runs/{name}")
    for name, method in (("old", "cot"), ("older", "srp")):
        project.run(f"method={method}", "llm=oracle", folder=f"runs/{name}")
    capsys.readouterr()
    assert main(["compare", "runs/old", "runs/older", "runs/new"]) == 0
    said = " ".join(capsys.readouterr().out.split())
    note = "new gold answers score 1 question that a simulated model answered from older ones: run.restart=true"
    assert [f"in runs/{name}, {note}" in said for name in ("old", "older", "new")] == [True, True, False]


@pytest.mark.parametrize(
    "words", sampled(["ls {}", "losses {}", "show {} Aland", "report {}", "export {} format=otel", "score {}"], every=3)
)
def test_all_that_prints_scores_names_replies_from_older_gold_answers(
    project: Project, capsys: pytest.CaptureFixture[str], words: str
) -> None:
    project.run("llm=oracle")
    project.write_questions({**CITIES, "Borland": "Nowhere"})
    project.run("llm=oracle")
    capsys.readouterr()
    assert main(words.format("runs/r").split()) == 0
    note = "in runs/r, new gold answers score 1 question that a simulated model answered from older ones"
    assert note in capsys.readouterr().out
    if "report" in words:
        assert note in Path("runs/r/report.html").read_text()


@pytest.mark.parametrize("signal", ["gold", "rules"])
def test_answers_of_a_method_that_is_told_the_older_gold_answers_are_reported(project: Project, signal: str) -> None:
    words = ("method=r3", "llm=similarity", f"method.failure_signal={signal}")
    project.run(*words)
    project.write_questions({**CITIES, "Borland": "Nowhere"})
    assert ("the answers came from the older gold answers" in project.run(*words)) is (signal == "gold")


def test_a_pipe_that_closes_while_rows_are_scored_again_leaves_no_old_score(
    project: Project, monkeypatch: pytest.MonkeyPatch
) -> None:
    project.run("llm=oracle")
    project.write_questions({**CITIES, "Borland": "Nowhere"})

    def print_or_break(console: Console, *words: object, **options: object) -> None:
        if "scored again" in str(words):
            raise BrokenPipeError

    with monkeypatch.context() as piped:
        piped.setattr(Console, "print", print_or_break)
        piped.setattr("pipeline.cli.main._discard_output", lambda: None)  # pytest captures the output
        project.run("llm=oracle", code=141)
    assert project.rows()["gold"].to_list()[1] == ["Nowhere"]
    assert project.summary()["points"][0]["hits_at_1"] == pytest.approx(0.8)


def test_a_run_that_is_killed_while_rows_are_scored_again_is_not_complete(
    project: Project, monkeypatch: pytest.MonkeyPatch
) -> None:
    project.run("llm=oracle")
    project.write_questions({**CITIES, "Borland": "Nowhere"})

    def be_killed(*_: object) -> None:
        raise KeyboardInterrupt

    with monkeypatch.context() as killed:
        killed.setattr("pipeline.engine.run_summary._average_again", be_killed)
        project.run("llm=oracle", code=130)
    assert project.rows()["gold"].to_list()[1] == ["Nowhere"]
    assert not (project.folder / "runs/r/summary.json").exists()
    project.run("llm=oracle")
    assert project.summary()["complete"]
    assert project.summary()["points"][0]["hits_at_1"] == pytest.approx(0.8)


def test_flips_between_runs_with_other_gold_answers_are_refused(project: Project) -> None:
    project.run("llm=oracle")
    project.write_questions({**CITIES, "Borland": "Nowhere"})
    project.run("llm=oracle", folder="runs/new")
    before, now = open_run("runs/r"), open_run("runs/new")
    with pytest.raises(UserError, match="question Borland has other gold answers"):
        now.flips(before)
    project.run("llm=oracle")
    assert now.flips(open_run("runs/r")).collect().is_empty(), "both are scored by the same gold answers"


def test_nothing_is_scored_again_if_the_graph_has_changed_too(project: Project) -> None:
    project.run()
    before = project.rows()
    project.write_questions({**CITIES, "Borland": "Nowhere"})
    project.write_facts({**CITIES, "Borland": "Nowhere"})
    assert "began with the graph" in project.run(code=2)
    assert project.rows().equals(before)


def test_new_gold_answers_are_refused_after_early_stopping_has_decided_by_the_old_ones(tmp_path: Path) -> None:
    changes = DatasetChanges(gold=3)
    changes.refuse(RunFolder(tmp_path), "what to do", extend=False, hindrance="", has_early_stopping=False)
    with pytest.raises(UserError, match=r"answers of 3 questions have changed .* has decided by the old ones .*do$"):
        changes.refuse(RunFolder(tmp_path), "what to do", extend=False, hindrance="", has_early_stopping=True)
