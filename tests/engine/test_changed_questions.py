"""No result outlives its questions: a run notices which of them are new, gone or changed."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from pipeline.cli.main import main
from pipeline.errors import ServiceError
from pipeline.simulation.oracle import QuestionOracle
from tests.engine.user_project import CITIES, COMMAND, Project
from tests.support import sampled


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
