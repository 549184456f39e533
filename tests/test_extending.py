"""docs/extending.md: its example, run as it is written there, from a folder of its own."""

from __future__ import annotations

import re
import shlex
from pathlib import Path

import polars as pl
import pytest

from jobs.cli import main

DOCS = Path(__file__).resolve().parents[1] / "docs"
TEXT = (DOCS / "extending.md").read_text(encoding="utf-8")
QUICK = ["evaluation.bootstrap_resamples=100", "run.dir=run"]


def written_command() -> list[str]:
    """The words of the page's command, without its line break."""
    script = re.search(r"```sh\n(.*?)```", TEXT, re.DOTALL)
    assert script is not None
    _, command = script[1].replace("\\\n", " ").replace("$PWD", str(DOCS.parent)).strip().split("\n")
    return [word.replace("=docs/", f"={DOCS.parent}/docs/") for word in shlex.split(command)[1:]]


@pytest.fixture
def command(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """What follows `kgqa`, in an empty folder, with the example's code importable."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(str(DOCS / "examples" / "code"))  # what PYTHONPATH does
    return [*written_command(), *QUICK]


def rows() -> pl.DataFrame:
    return pl.read_parquet("run/traces/*.parquet").sort("question_id")


def test_the_command_of_the_page_runs_and_scores_what_it_says(command: list[str]) -> None:
    assert command[0] == "evaluate"
    assert main(command) == 0
    scored = rows()
    assert scored["hits_at_1"].to_list() == [1.0, 1.0, 1.0, 1.0, 0.0]
    assert scored["f1"].to_list() == [1.0, 1.0, 1.0, 1.0, 0.0], "both bridges of the third question"
    assert scored["status"].unique().to_list() == ["ok"]
    assert scored["llm_calls"].to_list() == [1] * 5
    assert scored["kg_lookups"].to_list() == [3] * 5


def test_run_yaml_needs_no_search_path(command: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    main(command)
    first = capsys.readouterr().out
    assert main(["evaluate", "run/run.yaml"]) == 0
    assert capsys.readouterr().out == first


@pytest.mark.parametrize("words", [["llm=similarity"], ["llm.error_rate=0.5", "llm.malformed_rate=0.5"]])
def test_it_runs_with_the_other_simulated_models(command: list[str], words: list[str]) -> None:
    assert main([*command, *words]) == 0
    assert rows()["status"].unique().to_list() == ["ok"]


def test_a_cap_is_an_answer_too(command: list[str]) -> None:
    assert main([*command, "budget.max_kg_queries=1"]) == 0
    assert rows()["status"].unique().to_list() == ["budget_exhausted"]


def test_a_bad_row_is_rejected_and_a_missing_folder_is_a_sentence(
    command: list[str], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "data").mkdir()
    (tmp_path / "data" / "facts.csv").write_text("head,relation,tail\nAnn,son,Bob\n")
    (tmp_path / "data" / "questions.csv").write_text("id,question,topic,answers\nq1,Who?,Ann,Bob\nq2,Who?,Ann\n")
    assert main([*command, "dataset.folder=data"]) == 0
    assert "1 row could not be read" in capsys.readouterr().out
    assert main([*command, "dataset.folder=nowhere", "run.dir=other"]) == 2
    assert "nowhere/questions.csv cannot be read" in capsys.readouterr().err


def test_a_wrong_value_names_its_key(command: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    assert main([*command, "method.max_facts=0"]) == 2
    assert "method.max_facts" in capsys.readouterr().err


def test_the_files_that_the_page_shows_are_those_of_the_example() -> None:
    listed = re.findall(r"^  ((?:code|conf)/\S+) ", TEXT, re.MULTILINE)
    assert len(listed) == 4
    assert all((DOCS / "examples" / file).is_file() for file in listed)
    shown = re.search(r"```yaml\n# conf/method/neighbour.yaml\n(.*?)```", TEXT, re.DOTALL)
    assert shown is not None
    keys = [line for line in shown[1].splitlines() if line]
    file = (DOCS / "examples" / "conf" / "method" / "neighbour.yaml").read_text()
    assert keys == [line for line in file.splitlines() if line and not line.startswith("#")]
