"""docs/extending.md: its example, run as written there, from an empty folder."""

from __future__ import annotations

import json
import re
import shlex
import sys
from collections.abc import Iterator
from pathlib import Path

import polars as pl
import pytest
from pydantic.dataclasses import dataclass as checked_dataclass

from pipeline import Answer, Question, Tools, open_run
from pipeline.cli.main import main
from tests.cli.conftest import FixedReply, serving

DOCS = Path(__file__).resolve().parents[1] / "docs"
TEXT = (DOCS / "extending.md").read_text(encoding="utf-8")
CODE = DOCS / "examples" / "code"
QUICK = ["evaluation.bootstrap_resamples=100", "run.dir=run"]
MODULES = ("neighbour", "neighbour_simulator", "csv_questions")


def written_commands() -> list[list[str]]:
    """Return the words after `kgqa` of each command of the page."""
    scripts = re.findall(r"```sh\n(.*?)```", TEXT, re.DOTALL)
    lines = [script.replace("\\\n", " ").strip().split("\n")[-1] for script in scripts]
    return [[word.replace("=docs/", f"={DOCS.parent}/docs/") for word in shlex.split(line)[1:]] for line in lines]


@pytest.fixture(autouse=True)
def example(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Make the example importable in an empty folder. Each test imports it anew, with no simulator registered."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(str(CODE))  # what PYTHONPATH does
    monkeypatch.setenv("KGQA_CONF", str(DOCS / "examples" / "conf"))
    for module in MODULES:
        monkeypatch.delitem(sys.modules, module, raising=False)


class FirstFact(FixedReply):
    """A model server that always picks the first fact."""

    def text(self, asked: bytes) -> str:
        return "Facts: 1"


@pytest.fixture
def model() -> FirstFact:
    return FirstFact()


@pytest.fixture
def command(model: FirstFact) -> Iterator[list[str]]:
    """The first command of the page, with the URL of a model server that runs."""
    words = written_commands()[0]
    assert words[-1].startswith("llm.base_urls=")
    with serving(model) as url:
        yield [*words[:-1], url, *QUICK]


@pytest.fixture
def oracle_command() -> list[str]:
    """The second command of the page."""
    return [*written_commands()[1], *QUICK]


def rows(folder: str = "run") -> pl.DataFrame:
    return pl.read_parquet(f"{folder}/traces/*.parquet").sort("question_id")


class TestAMethodWithoutASimulator:
    def test_it_runs_is_scored_and_traced(self, command: list[str], model: FirstFact) -> None:
        assert main(command) == 0
        found = rows()
        assert found["status"].unique().to_list() == ["ok"]
        assert found["hits_at_1"].to_list() == [1.0, 0.0, 1.0, 0.0, 0.0], "the first fact answers two questions"
        assert found["llm_calls"].to_list() == [1] * 5
        assert found["kg_lookups"].to_list() == [3] * 5
        calls = [step for steps in found["steps"] for step in steps if step["kind"] == "llm"]
        assert [call["role"] for call in calls] == ["neighbour.pick"] * 5
        assert json.loads(Path("run/summary.json").read_text())["points"][0]["hits_at_1"] == pytest.approx(0.4)

    def test_it_resumes_without_a_call(self, command: list[str], model: FirstFact) -> None:
        main(command)
        assert main(command) == 0
        assert main(["evaluate", "run/run.yaml"]) == 0, "run.yaml needs no search path"
        assert model.requests == 5

    def test_it_is_replayed_from_its_traces(self, command: list[str], model: FirstFact) -> None:
        main(command)
        words = [word for word in command if not word.startswith(("llm", "run.dir"))]
        assert main([*words, "llm=replay", "llm.run=run", "run.dir=again"]) == 0
        assert rows("again")["hits_at_1"].to_list() == rows()["hits_at_1"].to_list()
        assert model.requests == 5

    def test_it_is_swept(self, command: list[str], model: FirstFact) -> None:
        assert main(["sweep", *command[1:], "method.max_nodes=1,50"]) == 0
        assert rows()["point"].value_counts().sort("point").rows() == [(0, 5), (1, 5)]
        assert model.requests < 10, "configurations share equal calls"

    def test_a_reply_that_cannot_be_parsed_is_asked_again(
        self, command: list[str], model: FirstFact, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr(model, "text", lambda asked: "I do not know.")
        assert main(command) == 0
        assert rows()["parse_failures"].to_list() == [3] * 5
        assert rows()["hits_at_1"].sum() == 0

    @pytest.mark.parametrize(("model_name", "function"), [("oracle", "write_as_oracle"), ("similarity", "write_by")])
    def test_the_simulated_models_refuse_it_with_a_sentence(
        self, oracle_command: list[str], model_name: str, function: str, capsys: pytest.CaptureFixture[str]
    ) -> None:
        words = [word for word in oracle_command if not word.startswith("llm")]
        assert main([*words, f"llm={model_name}"]) == 2
        complaint = capsys.readouterr().err
        assert f"llm={model_name} cannot answer neighbour.pick: no simulator of PickFacts has `{function}" in complaint
        assert "llm.simulators (docs/extending.md)" in complaint

    def test_the_bundled_model_says_that_it_does_not_know_it(
        self, command: list[str], capsys: pytest.CaptureFixture[str]
    ) -> None:
        words = [word for word in command if not word.startswith("llm")]
        assert main([*words, "llm=embedded", "run.limit=1"]) == 0
        said = capsys.readouterr().err.splitlines()[0]
        assert said.startswith("the bundled model was trained for ")
        assert "not for neighbour on csv: expect poor answers, from replies of at most 64 tokens" in said

    def test_losses_say_that_it_records_no_selections(
        self, command: list[str], capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
    ) -> None:
        main(command)
        capsys.readouterr()
        assert main(["losses", "run"]) == 0
        note = "neighbour.Neighbour records no selections, so what its code drops counts as lost by the model"
        assert note in capsys.readouterr().out
        code = (CODE / "neighbour.py").read_text()
        Path("neighbour.py").write_text(code.replace("        ends = [", "        raise ValueError\n        ends = ["))
        monkeypatch.syspath_prepend(str(Path.cwd()))
        monkeypatch.delitem(sys.modules, "neighbour")
        main([*command, "run.dir=failing"])
        capsys.readouterr()
        assert main(["losses", "failing"]) == 0
        assert "records no selections" not in capsys.readouterr().out, "the error lost the answers, not the model"
        recording = code.replace("        ends = [", "        tools.record('kept', nodes=[])\n        ends = [")
        assert recording != code
        Path("neighbour.py").write_text(recording)
        monkeypatch.delitem(sys.modules, "neighbour")
        main([*command, "run.dir=recording"])
        capsys.readouterr()
        assert main(["losses", "recording"]) == 0
        assert "records no selections" not in capsys.readouterr().out


class TestItsSimulator:
    def test_the_command_of_the_page_scores_as_it_says(self, oracle_command: list[str]) -> None:
        assert main(oracle_command) == 0
        found = rows()
        assert found["hits_at_1"].to_list() == [1.0, 1.0, 1.0, 1.0, 0.0]
        assert found["f1"].to_list() == [1.0, 1.0, 1.0, 1.0, 0.0], "the third question has two answers"

    @pytest.mark.parametrize("words", [["llm=similarity"], ["llm.error_rate=0.5", "llm.malformed_rate=0.5"]])
    def test_the_other_simulated_models_run_with_it(self, oracle_command: list[str], words: list[str]) -> None:
        assert main([*oracle_command, *words]) == 0
        assert rows()["status"].unique().to_list() == ["ok"]

    def test_a_module_that_is_missing_is_a_sentence(
        self, oracle_command: list[str], capsys: pytest.CaptureFixture[str]
    ) -> None:
        assert main([*oracle_command, "llm.simulators=[nowhere]"]) == 2
        assert "llm.simulators: nowhere cannot be imported" in capsys.readouterr().err


def test_a_cap_ends_in_an_answer(oracle_command: list[str]) -> None:
    assert main([*oracle_command, "budget.max_kg_queries=1"]) == 0
    assert rows()["status"].unique().to_list() == ["budget_exhausted"]


def test_a_bad_row_is_rejected_and_a_missing_folder_is_a_sentence(
    oracle_command: list[str], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "data").mkdir()
    (tmp_path / "data" / "facts.csv").write_text("head,relation,tail\nAnn,son,Bob\n")
    (tmp_path / "data" / "questions.csv").write_text("id,question,topic,answers\nq1,Who?,Ann,Bob\nq2,Who?,Ann\n")
    assert main([*oracle_command, "dataset.folder=data"]) == 0
    assert "1 row could not be read" in capsys.readouterr().out
    assert main([*oracle_command, "dataset.folder=nowhere", "run.dir=other"]) == 2
    assert "nowhere/questions.csv cannot be read" in capsys.readouterr().err


def test_a_wrong_value_names_its_key(oracle_command: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    assert main([*oracle_command, "method.max_nodes=0"]) == 2
    assert "method.max_nodes" in capsys.readouterr().err


def test_the_page_lists_the_files_of_the_example() -> None:
    listed = re.findall(r"^  ((?:code|conf)/\S+) ", TEXT, re.MULTILINE)
    files = (
        file.relative_to(DOCS / "examples") for file in (DOCS / "examples").rglob("*.*") if file.parent.name != "data"
    )
    assert sorted(listed) == sorted(str(file) for file in files if file.suffix in (".py", ".yaml"))


def test_the_tutorial_shows_the_prompt_as_it_is() -> None:
    tutorial = (DOCS / "tutorials" / "your-method.md").read_text(encoding="utf-8")
    shown = re.search(r"```\n(@dataclass.*?)```", tutorial, re.DOTALL)
    assert shown is not None
    lines = [line.partition("#")[0].rstrip() for line in shown[1].splitlines()]
    code = [line.partition("#")[0].rstrip() for line in (CODE / "neighbour.py").read_text("utf-8").splitlines()]
    assert set(lines) - set(code) == {"        …"}


def test_the_walk_of_the_tutorial_records_what_it_drops(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    tutorial = (DOCS / "tutorials" / "your-method.md").read_text(encoding="utf-8")
    for name, text in re.findall(r"cat > my-method/(\S+) << 'END'\n(.*?)^END$", tutorial, re.DOTALL | re.MULTILINE):
        file = tmp_path / name
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(text)
    monkeypatch.syspath_prepend(str(tmp_path))
    monkeypatch.setenv("KGQA_CONF", str(tmp_path / "conf"))
    monkeypatch.delitem(sys.modules, "walk", raising=False)
    assert main(["evaluate", "method=walk", "llm=oracle", "run.limit=16", *QUICK]) == 0
    lost = open_run("run").losses().filter(~pl.col("right")).collect()
    assert set(lost["reason"]) == {"cap"}, "no model lost an answer"
    assert set(lost["role"]) == {"layer", "relations"}, "the depth ended the walk, or similarity left the relation out"


def test_the_page_shows_the_yaml_file_without_its_comments() -> None:
    shown = re.search(r"```yaml\n# conf/method/neighbour.yaml\n(.*?)```", TEXT, re.DOTALL)
    assert shown is not None
    keys = [line for line in shown[1].splitlines() if line]
    file = (DOCS / "examples" / "conf" / "method" / "neighbour.yaml").read_text()
    assert keys == [line for line in file.splitlines() if line and not line.startswith("#")]


def test_the_method_fits_on_a_page_and_knows_no_simulation() -> None:
    code = (CODE / "neighbour.py").read_text()
    assert len([line for line in code.splitlines() if line]) <= 60
    assert "simulation" not in code


@checked_dataclass
class Lenient:
    """A method whose class ignores other keys, as a validated dataclass does unless it forbids them."""

    name: str
    width: int

    async def answer(self, question: Question, tools: Tools) -> Answer:
        return Answer()


@pytest.mark.parametrize(
    ("line", "meant"),
    [("widht: 3", "method.width"), ("wdith: 3\nwidth: 2", "method.width"), ("dpeth: 2", "method.depth")],
)
def test_a_misspelt_key_of_a_users_class_is_refused(
    line: str, meant: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "own" / "method").mkdir(parents=True)
    target = f"_target_: {__name__}.Lenient\nname: lenient\n"
    (tmp_path / "own" / "method" / "lenient.yaml").write_text(f"{target}{line}\n")
    words = ["evaluate", f"hydra.searchpath=[file://{tmp_path}/own]", "method=lenient", *QUICK]
    assert main(words) == 2
    word = line.partition(":")[0]
    said = capsys.readouterr().err
    assert f"unknown key 'method.{word}': " in said
    assert f" has no parameter '{word}'. Did you mean '{meant}'?" in said


def test_a_dataset_of_ones_own_needs_no_key_strict(oracle_command: list[str], tmp_path: Path) -> None:
    own = tmp_path / "own"
    (own / "dataset").mkdir(parents=True)
    keys = (DOCS / "examples" / "conf" / "dataset" / "csv.yaml").read_text()
    (own / "dataset" / "plain.yaml").write_text(re.sub(r"(?m)^strict:.*\n", "", keys))
    words = [word for word in oracle_command if word != "dataset=csv"]
    assert main([*words, "dataset=plain", f"hydra.searchpath=[file://{own}]"]) == 0
