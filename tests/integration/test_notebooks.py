"""The notebooks run from the first cell to the last, on runs of their own and on a named one."""

from __future__ import annotations

import json
import re
from pathlib import Path

import nbformat
import pytest

from pipeline.cli.main import main
from tests.notebooks import NOTEBOOKS, PATHS, executed, printed


@pytest.mark.parametrize("path", PATHS, ids=lambda path: path.stem)
def test_is_committed_with_small_outputs_without_errors_and_folders(path: Path) -> None:
    cells = [cell for cell in nbformat.read(path, as_version=4).cells if cell.cell_type == "code"]
    assert all(cell.outputs for cell in cells)
    assert not [each for cell in cells for each in cell.outputs if each.output_type == "error"]
    text = path.read_text("utf-8")
    assert len(text) < 120_000
    assert not re.search(r"(?:/home|/root|/tmp|/work)/", text), "of the machine that wrote them"


@pytest.mark.exhaustive
@pytest.mark.parametrize("path", PATHS, ids=lambda path: path.stem)
def test_makes_its_own_run_and_prints_what_is_committed(
    path: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("KGQA_RUN", raising=False)
    monkeypatch.setenv("KGQA_RUNS", str(tmp_path))
    committed = printed(nbformat.read(path, as_version=4))
    assert printed(executed(path)) == committed, "python -m tests.notebooks writes them anew"
    assert list(tmp_path.glob("*/summary.json"))


@pytest.mark.exhaustive
def test_a_named_run_is_read_from_the_first_cell_to_the_last(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """It has wrong answers, unreadable replies and every kind of step."""
    folder = tmp_path / "run"
    words = ["method=srp", "llm=oracle", "llm.error_rate=0.2", "llm.malformed_rate=0.1", "run.limit=48"]
    assert main(["evaluate", *words, f"run.dir={folder}"]) == 0
    monkeypatch.setenv("KGQA_RUN", str(folder))
    notebook = executed(NOTEBOOKS / "trace_analytics.ipynb")
    assert all(cell.outputs for cell in notebook.cells if cell.cell_type == "code")


@pytest.mark.exhaustive
def test_a_sweep_is_read_one_configuration_at_a_time(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = tmp_path / "run"
    words = ["method=srp", "method.depth=1,2", "llm=oracle", "run.limit=12"]
    assert main(["sweep", *words, f"run.dir={folder}"]) == 0
    monkeypatch.setenv("KGQA_RUN", str(folder))
    for number in (0, 1):
        monkeypatch.setenv("KGQA_CONFIGURATION", str(number))
        counted = "print([each.collect()['configuration'].unique().to_list() for each in (questions, steps, calls)])"
        notebook = executed(NOTEBOOKS / "trace_analytics.ipynb", counted)
        said = "".join(output.get("text", "") for output in notebook.cells[1].outputs)
        assert f"These cells read configuration {number} of 2, with 12 answered questions:" in said
        assert notebook.cells[-1].outputs[0].text.strip() == str([[number]] * 3)


@pytest.mark.exhaustive
def test_recovery_is_told_by_how_the_first_attempt_failed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = tmp_path / "run"
    words = ["method=r3", "method.step_limit=4", "llm=oracle", "llm.error_rate=0.1", "run.limit=48"]
    assert main(["evaluate", *words, f"run.dir={folder}"]) == 0
    monkeypatch.setenv("KGQA_RUN", str(folder))
    notebook = executed(NOTEBOOKS / "trace_analytics.ipynb", "print(reflection.write_json())")
    finished, halted = json.loads(notebook.cells[-1].outputs[0].text)
    (point,) = json.loads((folder / "summary.json").read_text())["points"]
    assert (finished["halted"], halted["halted"]) == (False, True)
    assert halted["right first"] == 0 < halted["corrected"]
    assert finished["wrong first"] + halted["wrong first"] == point["scored"]["corrected"]
    assert finished["right first"] == point["scored"]["damaged"]
