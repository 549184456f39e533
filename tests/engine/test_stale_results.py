"""No result outlives its graph, its model or its folder: the same command notices what has changed since its run."""

from __future__ import annotations

import shutil
import sys
from collections.abc import Iterator
from typing import Any

import pytest

from pipeline.cli.main import main
from pipeline.errors import OUTAGE, ServiceError, UserError
from pipeline.kg.embedded import EmbeddedGraph
from pipeline.simulation.oracle import QuestionOracle
from tests.engine.user_project import CITIES, Project


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
