"""`run.reuse` and journals give back only replies that the same model would give today."""

from __future__ import annotations

import shutil
import sys
from pathlib import Path

import polars as pl
import pytest

from pipeline.errors import UserError
from tests.engine.user_project import CITIES, Project
from tests.support import sampled


@pytest.mark.parametrize("changed", [True, False])
def test_calls_of_a_changed_simulator_are_not_reused(
    project: Project, changed: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    file, words = project.write_simulator(monkeypatch, "other_simulator")
    project.run(*words)
    if changed:
        file.write_text("# writes other replies\n")
    said = project.run(*words, "run.reuse=[runs/r]", folder="runs/again", code=2 if changed else 0)
    assert ("run.reuse=runs/r: the source of other_simulator has changed since" in said) is changed


def test_nothing_is_opened_before_the_runs_to_reuse_are_read(project: Project, monkeypatch: pytest.MonkeyPatch) -> None:
    def open_runtime(*_: object) -> None:
        raise AssertionError("a model and a graph were opened")

    monkeypatch.setattr("pipeline.engine.components.Components.open_runtime", open_runtime)
    assert "runs/none has no run.yaml" in project.run("run.reuse=[runs/none]", code=2)


def test_reused_calls_of_a_shard_that_is_run_again_stay_reused(project: Project) -> None:
    """The last shard was not full, so that the added questions join it."""
    words = ("method=cot", "llm=oracle", "engine.shard_size=4")
    project.run(*words, "run.limit=2", folder="runs/first")
    project.run(*words, "run.limit=3", "run.reuse=[runs/first]")
    assert (project.summary()["reused_llm_calls"], project.summary()["physical_llm_calls"]) == (2, 1)
    project.run(*words, "run.limit=5", "run.reuse=[runs/first]", "run.extend=true")
    assert (project.summary()["reused_llm_calls"], project.summary()["physical_llm_calls"]) == (2, 3)


def test_a_finished_run_is_whole_without_the_run_that_it_took_calls_from(project: Project) -> None:
    words = ("method=cot", "llm=oracle")
    project.run(*words, "run.limit=2", folder="runs/first")
    project.run(*words, "run.reuse=[runs/first]")
    shutil.rmtree(project.folder / "runs/first")
    said = project.run(*words, "run.reuse=[runs/first]")
    assert "every shard is finished already" in said
    assert "it is not known why, as runs/first has no run.yaml" in said


class TestRepliesOfAnOracleForOtherData:
    """The oracle replies from gold answers and the graph, which are not in the key of a call."""

    def start(self, project: Project, *words: str) -> None:
        project.run("method=cot", "llm=oracle", *words)

    def test_are_not_reused_for_other_gold_answers(self, project: Project) -> None:
        self.start(project)
        project.write_questions({**CITIES, "Borland": "Nowhere"})
        said = project.run("method=cot", "llm=oracle", "run.reuse=[runs/r]", folder="runs/new")
        assert project.rows("runs/new")["answers"].to_list()[1] == ["Nowhere"]
        assert project.summary("runs/new")["reused_llm_calls"] == len(CITIES) - 1
        assert "run.reuse: 1 reply not taken over: the simulated model made them there from other gold answers" in said
        assert "had to be made" not in said

    def test_are_not_reused_after_the_earlier_run_was_scored_again(self, project: Project) -> None:
        self.start(project)
        for gold in ("Nowhere", "Elsewhere"):
            project.write_questions({**CITIES, "Borland": gold})
            assert "were scored again" in project.run("method=cot", "llm=oracle")
        project.run("method=cot", "llm=oracle", "run.reuse=[runs/r]", folder="runs/new")
        assert project.rows("runs/new")["answers"].to_list()[1] == ["Elsewhere"]

    def test_are_not_replayed_for_other_gold_answers(self, project: Project) -> None:
        self.start(project)
        project.write_questions({**CITIES, "Borland": "Nowhere"})
        project.run("method=cot", "llm=replay", "llm.run=runs/r", "run.max_failed=1", folder="runs/new")
        failed = project.rows("runs/new").filter(pl.col("status") == "failed")
        assert failed["question_id"].to_list() == ["Borland"]
        assert "the recorded call has a reply that was made from other gold answers" in failed["error"][0]

    def test_are_not_reused_for_another_graph(self, project: Project) -> None:
        self.start(project)
        project.write_facts({**CITIES, "Borland": "Nowhere"})
        said = project.run("method=cot", "llm=oracle", "run.reuse=[runs/r]", folder="runs/new")
        assert f"run.reuse: {len(CITIES)} replies not taken over" in said

    def test_are_not_read_from_a_journal(self, project: Project, monkeypatch: pytest.MonkeyPatch) -> None:
        def fail(path: object, rows: object, origin: object) -> None:
            raise UserError("no room")

        with monkeypatch.context() as broken:
            broken.setattr("pipeline.engine.worker.write_shard", fail)
            project.run("method=cot", "llm=oracle", code=2)
        assert list((project.folder / "runs/r/drafts").iterdir()), "the calls are stored"
        project.write_questions({**CITIES, "Borland": "Nowhere"})
        project.run("method=cot", "llm=oracle")
        assert project.rows()["answers"].to_list()[:3] == [["Arta"], ["Nowhere"], ["Corvo"]]

    def test_are_not_taken_from_a_shard_that_grows(self, project: Project) -> None:
        self.start(project)
        last = list(CITIES)[-1]
        project.write_questions({**CITIES, last: "Nowhere", "Fenland": "Ford"})
        project.run("method=cot", "llm=oracle", "run.extend=true")
        assert project.rows()["answers"].to_list()[-2:] == [["Nowhere"], ["Ford"]]


def test_replies_of_a_model_without_gold_are_reused_for_other_gold_answers(project: Project) -> None:
    project.run("method=cot", "llm=similarity")
    project.write_questions({**CITIES, "Borland": "Nowhere"})
    said = project.run("method=cot", "llm=similarity", "run.reuse=[runs/r]", folder="runs/new")
    assert "run.reuse: no call had to be made" in said


SIMULATED = """
from dataclasses import dataclass
from typing import Any, ClassVar

from pydantic.dataclasses import dataclass as checked
from pipeline.methods.answering import AnswerWithoutFacts
from pipeline.llm.prompt import Prompt, Sampling
from pipeline.types import Answer, Prediction


@dataclass(frozen=True)
class Ask(AnswerWithoutFacts):
    role = "asking.ask"


@checked
class Asking:
    name: str
    prompts: ClassVar[tuple[type[Prompt[Any]], ...]] = (Ask,)

    async def answer(self, question, tools):
        await tools.llm.ask(Ask(question), Sampling(max_tokens=9))
        return Answer(predictions=(Prediction("nobody"),))
"""
SIMULATOR = """
from asking import Ask
from phrases import WORDS
from pipeline.simulation.registry import Simulator, simulates


@simulates(Ask)
class AskSimulator(Simulator[Ask]):
    def write_as_oracle(self, prompt, gold_context, error_rng):
        return WORDS
"""


def write_own_method(project: Project, monkeypatch: pytest.MonkeyPatch) -> tuple[Path, tuple[str, ...]]:
    """Write a method that asks a model, with its simulator, and return their folder and the words that choose them."""
    code = project.folder / "code"
    code.mkdir()
    files = {"asking.py": SIMULATED, "asking_simulator.py": SIMULATOR, "phrases.py": "WORDS = 'unknown'\n"}
    for name, text in files.items():
        (code / name).write_text(text)
        monkeypatch.delitem(sys.modules, name.removesuffix(".py"), raising=False)
    monkeypatch.syspath_prepend(str(code))
    (project.folder / "conf" / "method").mkdir(parents=True)
    (project.folder / "conf" / "method" / "asking.yaml").write_text("_target_: asking.Asking\nname: asking\n")
    return code, ("method=asking", "llm=oracle", "llm.simulators=[asking_simulator]")


@pytest.mark.parametrize(
    ("edited", "named"),
    sampled([("asking.py", None), ("asking_simulator.py", "asking_simulator"), ("phrases.py", "phrases")], every=3),
)
def test_calls_are_reused_after_the_method_was_edited_that_the_simulator_imports(
    project: Project, edited: str, named: str | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    code, words = write_own_method(project, monkeypatch)
    project.run(*words)
    assert "has changed" not in project.run(*words, "run.reuse=[runs/r]", folder="runs/same")
    with (code / edited).open("a") as source:
        source.write("\n# another way\n")
    said = project.run(*words, "run.reuse=[runs/r]", folder="runs/new", code=2 if named else 0)
    if named:
        assert f"run.reuse=runs/r: the source of {named} has changed since, so its replies" in said
    else:
        assert "run.reuse=runs/r: the source of asking.Asking has changed since: only calls" in said
        assert project.summary("runs/new")["physical_llm_calls"] == 0
        replayed = project.run(words[0], "llm=replay", "llm.run=runs/r", folder="runs/replayed")
        assert "llm.run=runs/r: the source of asking.Asking has changed since: only calls" in replayed


def be_stopped(*_: object) -> None:
    raise KeyboardInterrupt


def test_the_advice_for_a_run_with_calls_and_no_finished_shard_can_be_followed(
    project: Project, monkeypatch: pytest.MonkeyPatch
) -> None:
    code, words = write_own_method(project, monkeypatch)
    with monkeypatch.context() as stopped:
        stopped.setattr("pipeline.engine.worker.write_shard", be_stopped)
        project.run(*words, code=130)
    with (code / "asking.py").open("a") as source:
        source.write("\n# another way\n")
    said = project.run(*words, code=2)
    assert "the source of asking.Asking has changed since" in said
    assert "run.reuse" not in said, "the calls of a journal are not taken over"
    refused = project.run(*words, "run.reuse=[runs/r]", folder="runs/new", code=2)
    assert "runs/r holds no finished shard, and only the calls of finished ones can be used again" in refused
    (code / "asking.py").write_text(SIMULATED)
    project.run(*words)  # without the change, the run goes on


@pytest.mark.parametrize("finished", [True, False])
def test_the_advice_after_an_edit_of_the_simulator_does_not_name_run_reuse(
    project: Project, finished: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    code, words = write_own_method(project, monkeypatch)
    with monkeypatch.context() as stopped:
        if not finished:
            stopped.setattr("pipeline.engine.worker.write_shard", be_stopped)
        project.run(*words, code=0 if finished else 130)
    (code / "phrases.py").write_text("WORDS = 'nobody'\n")
    said = project.run(*words, code=2)
    assert "the source of asking_simulator has changed since" in said
    assert "run.reuse" not in said, "it refuses the replies of an edited simulator"
    assert ("another run.dir keeps them" in said) is finished
    project.run(*words, folder="runs/new")
    project.run(*words, "run.restart=true")
