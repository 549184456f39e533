"""The notebooks run from the first cell to the last on a fresh run."""

from __future__ import annotations

from pathlib import Path

import nbformat
import pytest
from nbclient import NotebookClient

from jobs.cli import main

NOTEBOOKS = Path(__file__).resolve().parents[2] / "notebooks"


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run with wrong answers, unreadable replies and every kind of step."""
    folder = tmp_path_factory.mktemp("analysed") / "run"
    words = ["method=srp", "llm=oracle", "llm.error_rate=0.2", "llm.malformed_rate=0.1", "run.limit=48"]
    assert main(["evaluate", *words, f"run.dir={folder}"]) == 0
    return folder


@pytest.mark.parametrize("path", sorted(NOTEBOOKS.glob("*.ipynb")), ids=lambda path: path.stem)
def test_runs_from_the_first_cell_to_the_last(path: Path, run: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("KGQA_RUN", str(run))
    notebook = nbformat.read(path, as_version=4)
    NotebookClient(notebook, timeout=120, resources={"metadata": {"path": str(NOTEBOOKS)}}).execute()
    assert all(cell.outputs for cell in notebook.cells if cell.cell_type == "code")
