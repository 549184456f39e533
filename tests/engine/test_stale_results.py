"""No result outlives its data or its code: the same command notices what has changed since its run."""

from __future__ import annotations

import html
import re
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterator
from importlib.metadata import version
from pathlib import Path
from typing import Any

import pytest
import yaml

from pipeline.analysis.runs import open_run
from pipeline.cli.main import main
from pipeline.console import Console
from pipeline.engine import sources
from pipeline.engine.dataset_changes import DatasetChanges
from pipeline.engine.retry_advice import retry_refusals
from pipeline.errors import OUTAGE, ServiceError, UserError
from pipeline.kg.embedded import EmbeddedGraph
from pipeline.simulation.oracle import QuestionOracle
from pipeline.traces.folder import RunFolder
from pipeline.traces.origin import READ_BY_METHODS
from tests.engine.user_project import CITIES, COMMAND, Project
from tests.support import sampled

PACKAGE = Path(__file__).parents[2] / "pipeline"


def test_an_unchanged_command_prints_the_same_result(project: Project) -> None:
    project.run()
    before = project.summary()
    assert "nothing to run" in project.run()
    assert project.summary() == before


def test_a_refused_run_names_no_folder(project: Project) -> None:
    said = project.run("run.reuse=[runs/none]", code=2)
    assert "run folder" not in said
    assert not (project.folder / "runs").exists() or not list((project.folder / "runs").iterdir())
    assert project.run().count(f"run folder: {project.folder}/runs/r") == 1
    assert project.run().count("run folder: ") == 1, "also if nothing is left to run"
    project.write_facts({"Aland": "Nowhere"})
    assert "run folder" not in project.run(code=2)


@pytest.mark.parametrize(
    "change",
    sampled(
        [
            lambda project: project.write_questions(CITIES, "Name the capital of {}."),
            lambda project: project.write_questions({**CITIES, "Zedland": "Zoo"}, "Name the capital of {}."),
            lambda project: project.write_questions(dict(list(CITIES.items())[1:])),
            lambda project: project.write_questions(dict(reversed(CITIES.items()))),
        ],
        every=4,
    ),
    ids=["text", "text and more", "removed", "moved"],
)
@pytest.mark.parametrize("finished", [True, False])
def test_changed_questions_are_refused_until_the_run_is_restarted(
    project: Project, change: Callable[[Project], None], finished: bool
) -> None:
    project.run()
    if not finished:
        (project.folder / "runs/r/summary.json").unlink()
        (project.folder / "runs/r/traces/shard-00002.parquet").unlink()
    change(project)
    said = project.run(code=2)
    assert "holds answers to other questions (" in said
    assert "run.restart=true" in said
    project.run("run.restart=true")
    assert "nothing to run" in project.run(), "run.yaml does not restart it once more"
    project.run(folder="runs/new")
    columns = ["question_id", "question", "answers", "hits_at_1"]
    assert project.rows().select(columns).equals(project.rows("runs/new").select(columns))


def test_deleted_questions_are_not_called_changed(project: Project) -> None:
    project.run()
    project.write_questions(dict(list(CITIES.items())[:-1]))
    said = project.run(code=2)
    assert "holds answers to other questions (no longer in the dataset: 1 question, " in said
    assert "changed" not in said
    assert "moved" not in said
    project.write_questions(dict(list(CITIES.items())[1:]))
    first, second = list(CITIES)[:2]
    others = f"moved: {len(CITIES) - 1} questions, the first is {second}"
    assert f"(no longer in the dataset: 1 question, the first is {first}; {others})" in project.run(code=2)
    project.write_questions(CITIES, "Name the capital of {}.")
    said = project.run(code=2)
    assert f"(changed: {len(CITIES)} questions, " in said
    assert "no longer" not in said


def test_inserted_questions_are_not_called_changed(project: Project) -> None:
    project.run()
    first, *others = CITIES.items()
    project.write_questions(dict([first, ("Fenland", "Ford"), *others]))
    said = project.run(code=2)
    assert f"the dataset has new questions before {others[0][0]}, which " in said
    assert f"({len(others)} moved): put the new ones at the end, where run.extend=true answers them. Or: " in said
    project.write_questions(dict([first, ("Fenland", "Ford"), *reversed(others)]))
    assert "holds answers to other questions (moved: " in project.run(code=2)


def test_a_question_that_an_inserted_one_has_moved_past_the_limit_is_not_called_gone(project: Project) -> None:
    project.run("run.limit=4")
    first, *others = CITIES.items()
    project.write_questions(dict([first, ("Fenland", "Ford"), *others]))
    said = project.run("run.limit=4", code=2)
    assert f"the dataset has new questions before {others[0][0]}, which " in said
    assert "put the new ones at the end, where a higher run.limit with run.extend=true answers them. Or: " in said
    project.write_questions(dict([others[-1], *others[:-1], first]))
    assert "no longer among the questions that run.limit or run.sample selects: 1" in project.run("run.limit=4", code=2)


def test_a_run_over_several_limits_is_not_told_to_extend(project: Project) -> None:
    lines = project.folder / "points.txt"
    sweep = ["sweep", str(lines), *COMMAND[1:], "method=cot", "run.dir=runs/r"]
    for limits in ((1, 3), (3, 5)):
        lines.write_text("".join(f"run.limit={limit}\n" for limit in limits))
        project.said()
        code = main(sweep)
    assert code == 2
    said = project.said()
    assert "run.limit: 1 → 3. its configurations do not all ask the same questions" in said
    assert main([*sweep, "run.extend=true"]) == 2
    assert "run.extend=true answers" not in said


def test_a_line_that_can_no_longer_be_read_is_named_before_its_question_is_missed(project: Project) -> None:
    project.run()
    file = project.folder / "questions.jsonl"
    first, second, *others = file.read_text().splitlines()
    file.write_text("\n".join([first, second[:-1], *others]))
    said = project.run(code=2)
    assert "1 row could not be read; questions.jsonl, line 2: it is not valid JSON" in said
    assert "no longer in the dataset: 1" in said


def test_added_questions_are_asked_with_run_extend(project: Project) -> None:
    project.run("llm=similarity")
    project.write_questions({**CITIES, "Fenland": "Ford", "Gorland": "Gent", "Hiland": "Holm"})
    assert "run.extend=true" in project.run("llm=similarity", code=2)
    project.run("llm=similarity", "run.extend=true")
    assert project.rows()["question_id"].to_list() == [*CITIES, "Fenland", "Gorland", "Hiland"]
    assert "nothing to run" in project.run("llm=similarity")


def test_run_yaml_takes_the_keys_that_say_how_it_is_resumed(project: Project) -> None:
    project.run()
    project.write_questions({**CITIES, "Fenland": "Ford"})
    assert main(["evaluate", "runs/r/run.yaml"]) == 2
    assert main(["evaluate", "runs/r/run.yaml", "run.extend=true"]) == 0
    assert project.rows().height == 6
    assert main(["evaluate", "runs/r/run.yaml", "run.limit=3"]) == 2


def test_only_new_calls_are_made_when_a_run_is_extended(project: Project) -> None:
    project.run()
    before = {path.name: path.stat().st_mtime_ns for path in (project.folder / "runs/r/traces").iterdir()}
    project.write_questions({**CITIES, "Fenland": "Ford", "Gorland": "Gent"})
    project.run("run.extend=true")
    after = {path.name: path.stat().st_mtime_ns for path in (project.folder / "runs/r/traces").iterdir()}
    assert {name for name in before if before[name] == after[name]} == {"shard-00000.parquet", "shard-00001.parquet"}


@pytest.mark.parametrize("more", ["run.extend=true", "run.retry_failed=true"])
def test_a_run_that_is_stopped_while_it_goes_on_is_not_complete(
    project: Project, more: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    words = ("method=cot", "llm=oracle", "run.max_failed=1", "run.max_equal_failures=null")

    async def fail(*_: object) -> None:
        raise ServiceError("no server answers")

    with monkeypatch.context() as outage:
        if "retry" in more:
            outage.setattr(QuestionOracle, "complete", fail)
        project.run(*words)
    project.write_questions({**CITIES, "Fenland": "Ford"} if "extend" in more else CITIES)

    def be_stopped(path: object, rows: object, origin: object) -> None:
        raise KeyboardInterrupt

    with monkeypatch.context() as stopped:
        stopped.setattr("pipeline.engine.worker.write_shard", be_stopped)
        project.run(*words, more, code=130)
    assert not (project.folder / "runs/r/summary.json").exists()
    project.run(*words, more)
    assert project.summary()["complete"]
    assert project.rows()["hits_at_1"].to_list() == [1] * len(project.rows())


def test_a_refused_extension_changes_nothing(project: Project) -> None:
    project.run("run.limit=3")
    before = (project.folder / "runs/r/run.yaml").read_text()
    project.write_facts({**CITIES, "Borland": "Nowhere"})
    assert "began with the graph" in project.run("run.limit=5", "run.extend=true", "run.note=longer", code=2)
    assert (project.folder / "runs/r/run.yaml").read_text() == before
    project.write_facts(CITIES)
    assert "nothing to run" in project.run("run.limit=3")
    project.run("run.limit=5", "run.extend=true", "run.note=longer")
    assert "longer" in (project.folder / "runs/r/run.yaml").read_text()
    assert project.rows().height == 5


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
    assert "because of: old trace: an older version made the run, or its gold answers have changed since" in printed
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


def test_a_changed_graph_is_refused_when_nothing_is_left_to_run(project: Project) -> None:
    project.run()
    project.write_facts({**CITIES, "Borland": "Nowhere"})
    said = project.run(code=2)
    assert "began with the graph" in said
    assert "run.restart=true" in said


@pytest.mark.parametrize(("model", "keeps_calls"), [("llm=oracle", False), ("llm=similarity", True)])
@pytest.mark.parametrize("more", [(), ("run.limit=5", "run.extend=true")])
def test_the_way_on_after_a_change_of_the_graph_keeps_the_calls_that_run_reuse_takes(
    model: str, keeps_calls: bool, more: tuple[str, ...], project: Project
) -> None:
    project.run("method=cot", model, "run.limit=4")
    project.write_facts({**CITIES, "Borland": "Nowhere"})
    said = project.run("method=cot", model, *(more or ["run.limit=4"]), code=2)
    assert ("takes over the calls of its finished shards" in said) == keeps_calls
    reused = project.run("method=cot", model, "run.limit=4", "run.reuse=[runs/r]", folder="runs/new")
    assert ("no call had to be made" in reused) == keeps_calls


def test_a_changed_model_is_refused_when_nothing_is_left_to_run(project: Project) -> None:
    project.run("method=cot", "llm=oracle", folder="runs/first")
    replayed = ("method=cot", "llm=replay", "llm.run=runs/first")
    project.run(*replayed)
    project.run("method=cot", "llm=oracle", "llm.error_rate=0.5", "run.restart=true", folder="runs/first")
    said = project.run(*replayed, code=2)
    assert "began with the model oracle(error_rate=0,malformed_rate=0), but now it is oracle(error_rate=0.5" in said
    shutil.rmtree(project.folder / "runs/first")
    assert "the model could not be compared" in project.run(*replayed)


def test_a_finished_run_is_printed_when_its_graph_servers_are_gone(
    project: Project, monkeypatch: pytest.MonkeyPatch
) -> None:
    project.run()

    async def refuse(graph: EmbeddedGraph) -> None:
        raise UserError("kg.endpoints: no graph server answers")

    monkeypatch.setattr(EmbeddedGraph, "__aenter__", refuse)
    assert "the graph could not be compared: kg.endpoints: no graph server answers" in project.run()


@pytest.mark.parametrize("file", ["capital.py", "helper.py"])
def test_a_changed_source_of_the_users_is_refused(project: Project, file: str, monkeypatch: pytest.MonkeyPatch) -> None:
    code, words = project.write_method(monkeypatch)
    (code / "unrelated.py").write_text("")
    project.run(*words)
    assert project.summary()["points"][0]["hits_at_1"] == 1
    (code / "unrelated.py").write_text("x = 1\n")
    assert "nothing to run" in project.run(*words)
    with (code / file).open("a") as source:
        source.write("\n# another way\n")
    assert "the source of capital.Capital has changed" in project.run(*words, code=2)
    project.run(*words, "run.restart=true")


def test_the_files_of_a_method_are_found_without_running_what_it_never_imports(
    project: Project, monkeypatch: pytest.MonkeyPatch
) -> None:
    code, _ = project.write_method(monkeypatch)
    (code / "capital.py").write_text("def later():\n    import kernels.fast\n    import unreadable\n")
    (code / "kernels").mkdir()
    (code / "kernels" / "__init__.py").write_text("raise RuntimeError('no device')\n")
    (code / "kernels" / "fast.py").write_text("")
    (code / "unreadable.py").write_text("print 'of Python 2'\n")
    assert sources._user_files(["capital"]) == {
        "capital": code / "capital.py",
        "kernels.fast": code / "kernels" / "fast.py",
        "kernels": code / "kernels" / "__init__.py",
        "unreadable": code / "unreadable.py",
    }


@pytest.mark.parametrize("file", ["own/__init__.py", "shared/__init__.py", "shared/rules.py"])
def test_a_changed_source_in_another_package_of_the_users_is_refused(
    project: Project, file: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    code, words = project.write_method(monkeypatch)
    for module in ("own", "own.capital", "shared", "shared.rules"):
        monkeypatch.delitem(sys.modules, module, raising=False)
    for package in ("own", "shared"):
        (code / package).mkdir()
        (code / package / "__init__.py").write_text("")
    (code / "helper.py").rename(code / "shared" / "rules.py")
    (code / "own" / "capital.py").write_text((code / "capital.py").read_text().replace("helper", "shared.rules"))
    words = (*words, "method._target_=own.capital.Capital")
    project.run(*words)
    assert "nothing to run" in project.run(*words)
    with (code / file).open("a") as source:
        source.write("\n# another way\n")
    assert "the source of own.capital.Capital has changed" in project.run(*words, code=2)


def said_by(capsys: pytest.CaptureFixture[str], *command: str) -> str:
    capsys.readouterr()
    assert main([*command]) == 0
    return " ".join(capsys.readouterr().out.split())


@pytest.mark.exhaustive
@pytest.mark.parametrize("failing", ["topics[0] == 'Borland'", "True"])
def test_the_way_on_after_an_edit_of_a_failing_method_is_said_and_works(
    project: Project, failing: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    code, words = project.write_method(monkeypatch)
    file = code / "capital.py"
    right = file.read_text()
    file.write_text(right.replace("        found", f"        assert not ({failing})\n        found"))
    words = (*words, "run.max_failed=1", "run.max_equal_failures=null")
    said = project.run(*words)
    file.write_text(right)
    afterwards = [said_by(capsys, *command) for command in (["ls"], ["report", "runs/r"])]
    page = html.unescape((project.folder / "runs/r/report.html").read_text())
    if failing == "True":
        assert "after an edit of capital.Capital, the same command is enough" in said
        (project.folder / "runs/r/drafts/shard-00007.a.jsonl").write_text("{}\n")
        assert "after an edit of capital.Capital, run.restart=true" in said_by(capsys, "score", "runs/r")
        (project.folder / "runs/r/drafts/shard-00007.a.jsonl").unlink()
        assert not any("run.retry_failed=true is refused" in text for text in (*afterwards, page))
    else:
        way = f"another run.dir with 'run.reuse=[{project.folder}/runs/r]' takes over the calls of its finished shards"
        refused = project.run(*words, "run.retry_failed=true", code=2)
        assert "so run.retry_failed=true would mix the answers of both" in refused
        assert way in refused
        assert way in said
        refusal = "after an edit of capital.Capital, run.retry_failed=true is refused"
        for text in (*afterwards, page):
            assert refusal in text
            assert "takes over the calls of its finished shards" in text
        words = (*words, "run.dir=runs/new", "run.reuse=[runs/r]")
    monkeypatch.delitem(sys.modules, "capital")
    project.run(*words)


def configs(method: str, early_stopping: int | None = None) -> list[dict[str, Any]]:
    return [{"method": {"_target_": method}, "run": {"early_stopping": early_stopping}}]


@pytest.mark.parametrize("counts", [[(1, 3)], [(3, 3)]])
def test_a_sweep_with_early_stopping_is_not_told_to_retry_its_failed_questions(counts: list[tuple[int, int]]) -> None:
    (refusal,) = retry_refusals("runs/r", configs("pipeline.methods.srp.SRP", 32), {}, counts, None)
    assert refusal.startswith("run.retry_failed=true is refused for runs/r, whose run.early_stopping has decided")
    assert retry_refusals("runs/r", configs("pipeline.methods.srp.SRP", 32), {}, [(0, 3)], None) == []


def test_a_run_of_another_version_is_not_told_to_retry_its_failed_questions() -> None:
    saved = {"id": "1", "versions": {"kgqa-pipeline": "0.0.1"}}
    (refusal,) = retry_refusals("runs/r", configs("pipeline.methods.srp.SRP"), saved, [(1, 3)], None)
    assert refusal.startswith("kgqa-pipeline 0.0.1 began runs/r, so run.retry_failed=true is refused: run.restart=true")
    assert (
        retry_refusals("runs/r", configs("pipeline.methods.srp.SRP"), {"versions": saved["versions"]}, [(1, 3)], None)
        == []
    )


def test_an_unfinished_run_of_another_version_is_not_told_to_go_on(
    project: Project, capsys: pytest.CaptureFixture[str]
) -> None:
    project.run()
    file = project.folder / "runs/r/run.yaml"
    file.write_text(file.read_text().replace(f"kgqa-pipeline: {version('kgqa-pipeline')}", "kgqa-pipeline: 0.0.1"))
    (project.folder / "runs/r/traces/shard-00001.parquet").unlink()
    capsys.readouterr()
    assert main(["score", "runs/r"]) == 0
    said = " ".join(capsys.readouterr().out.split())
    assert "kgqa-pipeline 0.0.1 began it, and this version does not continue it: run.restart=true deletes" in said
    assert "run.yaml continues it" not in said


@pytest.mark.parametrize("counts", [[(0, 3), (0, 3)], [(3, 3), (3, 3)]])
def test_nothing_is_refused_if_no_question_or_every_one_failed(counts: list[tuple[int, int]]) -> None:
    assert retry_refusals("runs/r", configs("capital.Capital"), {}, counts, None) == []
    assert retry_refusals("runs/r", configs("capital.Capital"), {}, [*counts, (1, 3)], None) != []


def test_compare_and_report_say_that_the_source_of_a_method_differs(
    project: Project, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    code, words = project.write_method(monkeypatch)
    project.run(*words, folder="runs/old")
    with (code / "helper.py").open("a") as source:
        source.write("\n# another way\n")
    project.run(*words, folder="runs/new")
    capsys.readouterr()
    assert main(["compare", "runs/old", "runs/new"]) == 0
    said = " ".join(capsys.readouterr().out.split())
    assert "runs/old and runs/new ran with different sources of capital.Capital" in said
    assert main(["report", "runs/old", "runs/new", "output=report.html"]) == 0
    assert "used different sources of capital.Capital, which" in Path("report.html").read_text()


def test_another_version_of_the_project_is_refused(project: Project, monkeypatch: pytest.MonkeyPatch) -> None:
    project.run()
    monkeypatch.setattr("pipeline.engine.run._version", lambda package: "99.0")
    assert "and this is 99.0" in project.run(code=2)


def test_a_shard_of_another_run_is_named(project: Project) -> None:
    project.run()
    project.run("run.seed=5", folder="runs/other")
    traces = project.folder / "runs/r/traces"
    shutil.copy(project.folder / "runs/other/traces/shard-00001.parquet", traces)
    assert "shard-00001.parquet belongs to another run" in project.run(code=2)
    shutil.copy(traces / "shard-00000.parquet", traces / "shard-00001.parquet")
    assert "shard-00001.parquet is a copy of shard 0" in project.run(code=2)
    (traces / "shard-00001.parquet").unlink()
    project.run()
    assert project.rows()["question_id"].to_list() == list(CITIES)


def test_a_changed_simulator_of_the_users_is_refused(project: Project, monkeypatch: pytest.MonkeyPatch) -> None:
    """The replies of a simulated model decide every answer."""
    code = project.folder / "code"
    code.mkdir()
    (code / "my_simulator.py").write_text("# writes replies\n")
    monkeypatch.syspath_prepend(str(code))
    words = ("method=srp", "llm=oracle", "llm.simulators=[my_simulator]")
    project.run(*words)
    assert "every shard is finished already" in project.run(*words)
    (code / "my_simulator.py").write_text("# writes other replies\n")
    assert "the source of my_simulator has changed" in project.run(*words, code=2)


@pytest.mark.parametrize(
    ("words", "named"),
    [
        (("method=srp", "llm=similarity"), "pipeline.methods.srp.SRP, or one of its prompts,"),
        (("method=cot", "llm=oracle"), "pipeline.simulation.oracle.Oracle"),
    ],
)
@pytest.mark.parametrize("finished", sampled([True, False], every=2))
def test_an_edited_method_or_simulator_of_the_project_is_refused(
    project: Project, words: tuple[str, ...], named: str, finished: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    project.run(*words)
    if not finished:
        (project.folder / "runs/r/summary.json").unlink()
        (project.folder / "runs/r/traces/shard-00002.parquet").unlink()
    part = "simulation" if "Oracle" in named else "methods"
    before = sources._own_digest
    monkeypatch.setattr(sources, "_own_digest", lambda module: before(module) + "x" * (part in module))
    said = project.run(*words, code=2)
    assert f"the source of {named}" in said
    assert "has changed since" in said
    assert "run.restart=true" in said
    project.run(*words, "run.restart=true")


def test_a_run_of_an_older_version_without_these_digests_is_resumed(project: Project) -> None:
    project.run("method=srp", "llm=similarity")
    file = project.folder / "runs/r/run.yaml"
    saved = yaml.safe_load(file.read_text())
    saved["points"][0]["sources"] = {}
    file.write_text(yaml.safe_dump(saved))
    assert "nothing to run" in project.run("method=srp", "llm=similarity")


@pytest.mark.exhaustive
def test_the_digest_of_a_method_is_of_its_files_and_its_prompts(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """An edit of a prompt or of a module of the method changes it, and an edit of another method does not."""
    package = tmp_path / "pipeline"
    shutil.copytree(Path(sources.__file__).parents[1], package, ignore=shutil.ignore_patterns("bundled_model"))

    def digest(target: str) -> str:
        code = f"from pipeline.engine.sources import _own_digest; print(_own_digest({target!r}))"
        done = subprocess.run([sys.executable, "-c", code], cwd=tmp_path, capture_output=True, text=True, check=True)
        return done.stdout

    def edit(file: str) -> None:
        with (package / file).open("a") as source:
            source.write("\n# edited\n")

    srp, before = "pipeline.methods.srp.method", digest("pipeline.methods.srp.method")
    edit("methods/arg/prompts.yaml")
    edit("report/render_page.py")
    assert digest(srp) == before
    for file in ("methods/srp/prompts.yaml", "methods/srp/judge.py", "methods/parsing.py"):
        edit(file)
        assert digest(srp) != before, file
        before = digest(srp)


def test_a_higher_limit_is_asked_with_run_extend(project: Project) -> None:
    words = ("llm=similarity", "run.limit=3")
    project.run(*words)
    more = ("llm=similarity", "run.limit=5")
    said = project.run(*more, code=2)
    assert "asked another number of questions: run.limit: 3 → 5. run.extend=true answers them, too" in said
    assert "run.reuse=" in said
    before = project.rows()
    project.run(*more, "run.extend=true")
    assert project.rows()["question_id"].to_list() == list(CITIES)
    assert project.rows().head(3)["answers"].to_list() == before["answers"].to_list()
    assert project.summary()["questions"] == 5
    assert "nothing to run" in project.run(*more), "run.yaml holds the new limit"
    assert "nothing to run" in project.run("llm=similarity", "run.limit=null", "run.extend=true")
    fewer = project.run("llm=similarity", "run.limit=2", code=2)
    assert "run.extend" not in fewer
    assert "run.reuse=" in fewer


def test_other_changes_are_refused_also_with_a_higher_limit(project: Project) -> None:
    project.run("llm=similarity", "run.limit=3")
    said = project.run("llm=similarity", "run.limit=5", "run.seed=4", "run.extend=true", code=2)
    assert "run.seed: 0 → 4" in said


class TestAFolderWithoutAnAnswer:
    """Another run may begin in it: there is nothing to lose."""

    @pytest.fixture
    def failing(self, project: Project, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
        """A run all of whose questions fail, without a call."""

        async def fail(oracle: QuestionOracle, call: object) -> None:
            raise ServiceError("no server answers")

        with monkeypatch.context() as broken:
            broken.setattr(QuestionOracle, "complete", fail)
            yield

    @pytest.mark.parametrize("stop", [True, False], ids=["stopped", "all failed"])
    def test_is_used_again(self, project: Project, failing: None, stop: bool) -> None:
        words = ("method=cot", "llm=oracle")
        project.run(*words, f"run.max_equal_failures={3 if stop else 'null'}", code=OUTAGE if stop else 3)
        said = project.run(*words, "run.seed=5", "run.max_equal_failures=null", code=3)
        assert "answered no question: its files are deleted" in said
        assert project.rows().height == len(CITIES)

    def test_takes_another_model_if_no_shard_is_finished(self, project: Project) -> None:
        project.run("method=cot", "llm=oracle")
        for shard in (project.folder / "runs/r/traces").iterdir():
            shard.unlink()
        file = project.folder / "runs/r/run.yaml"
        file.write_text(file.read_text().replace("model: oracle(", "model: another("))
        project.run("method=cot", "llm=oracle")
        assert project.rows().height == len(CITIES)

    def test_holds_a_run_if_one_question_was_answered(self, project: Project) -> None:
        project.run("run.limit=1", "method=cot", "llm=oracle")
        assert "holds another run" in project.run("run.limit=1", "method=cot", "llm=oracle", "run.seed=5", code=2)

    def test_holds_a_run_whose_method_asks_no_model(self, project: Project, monkeypatch: pytest.MonkeyPatch) -> None:
        _, words = project.write_method(monkeypatch)
        project.run(*words)
        assert project.summary()["physical_llm_calls"] == 0
        rows = project.rows()
        assert "holds another run" in project.run(*words, "run.seed=5", code=2)
        assert "asked another number of questions" in project.run(*words, "run.limit=2", code=2)
        assert project.rows().equals(rows)

    def test_holds_a_run_if_a_failed_question_has_a_reply(
        self, project: Project, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        complete, asked = QuestionOracle.complete, set[int]()

        async def once(oracle: QuestionOracle, call: Any) -> Any:
            if id(oracle) in asked:
                raise ServiceError("no server answers")
            asked.add(id(oracle))
            return await complete(oracle, call)

        words = ("method=srp", "llm=oracle", "run.max_equal_failures=null")
        with monkeypatch.context() as broken:
            broken.setattr(QuestionOracle, "complete", once)
            project.run(*words, code=3)
        assert set(project.rows()["status"]) == {"failed"}
        assert "holds another run" in project.run(*words, "run.seed=5", code=2)

    def test_holds_a_run_if_a_call_was_made(self, project: Project) -> None:
        project.run("method=cot", "llm=oracle")
        shards = list((project.folder / "runs/r/traces").iterdir())
        for shard in shards:
            shard.unlink()
        (project.folder / "runs/r/drafts/shard-00000.0123abcd.jsonl").write_text("[]\n")
        assert "holds another run" in project.run("method=cot", "llm=oracle", "run.seed=5", code=2)


def test_new_gold_answers_are_refused_after_early_stopping_has_decided_by_the_old_ones(tmp_path: Path) -> None:
    changes = DatasetChanges(gold=3)
    changes.refuse(RunFolder(tmp_path), "what to do", extend=False, hindrance="", has_early_stopping=False)
    with pytest.raises(UserError, match=r"answers of 3 questions have changed .* has decided by the old ones .*do$"):
        changes.refuse(RunFolder(tmp_path), "what to do", extend=False, hindrance="", has_early_stopping=True)


def test_the_noise_of_a_run_is_not_measured_with_other_code_or_questions(
    project: Project, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    code, words = project.write_method(monkeypatch)
    project.run(*words)
    project.run("llm=similarity", folder="runs/other")
    helper = code / "helper.py"
    before = helper.read_text()

    def compare() -> str:
        capsys.readouterr()
        assert main(["compare", "runs/r", "runs/other", "noise.questions=3"]) == 2
        return " ".join(capsys.readouterr().err.split())

    helper.write_text("def best(nodes):\n    return 'nowhere'\n")
    sys.modules.pop("helper", None), sys.modules.pop("capital", None)
    assert "but the source of capital.Capital has changed since" in compare()
    helper.write_text(before)
    sys.modules.pop("helper", None), sys.modules.pop("capital", None)
    project.write_questions(CITIES, "Name the capital of {}.")
    assert "the text of Aland has changed since" in compare()
    project.write_questions({**CITIES, "Aland": "Aston"})
    assert "gold answers have changed since" in compare()
    project.write_questions(CITIES)
    project.write_facts({**CITIES, "Aland": "Nowhere"})
    said = compare()
    assert "noise.questions could not run the base again: " in said
    assert "run.restart" not in said, "this is no key of the command"
    project.write_facts(CITIES)
    assert main(["compare", "runs/r", "runs/other", "noise.questions=3"]) == 0, "nothing of it is left"
