"""Runs the notebooks: `python -m tests.notebooks` writes their outputs anew. A test says when that is due."""

from __future__ import annotations

import os
import tempfile
from pathlib import Path
from unittest import mock

import nbformat
from nbclient import NotebookClient

NOTEBOOKS = Path(__file__).resolve().parents[1] / "notebooks"
PATHS = sorted(NOTEBOOKS.glob("*.ipynb"))
MEASURED = "measured"
"""The tag of a cell whose output contains times, which no other run repeats."""


def executed(path: Path, *further: str) -> nbformat.NotebookNode:
    """Return the notebook with its outputs, after it was run with further cells at its end.

    What goes to stderr is left out: warnings of other packages, with the folders of this machine.
    """
    notebook = nbformat.read(path, as_version=4)
    notebook.cells += map(nbformat.v4.new_code_cell, further)
    where = {"metadata": {"path": str(NOTEBOOKS)}}
    # A slow machine prints the text of a cell in several outputs, which are one.
    NotebookClient(notebook, timeout=120, resources=where, record_timing=False, coalesce_streams=True).execute()
    for cell in _code(notebook):
        cell.outputs = [each for each in cell.outputs if each.get("name") != "stderr"]
    return notebook


def printed(notebook: nbformat.NotebookNode) -> dict[str, list[str]]:
    """Return the texts and tables that each code cell prints, by the id of the cell, without those with times."""
    cells = [cell for cell in _code(notebook) if MEASURED not in cell.metadata.get("tags", ())]
    return {cell.id: [each.get("text") or each.data.get("text/plain", "") for each in cell.outputs] for cell in cells}


def _code(notebook: nbformat.NotebookNode) -> list[nbformat.NotebookNode]:
    return [cell for cell in notebook.cells if cell.cell_type == "code"]


def write() -> None:
    """Write each notebook with the outputs of runs that it makes itself."""
    for path in PATHS:
        language = nbformat.read(path, as_version=4).metadata
        with tempfile.TemporaryDirectory() as runs, mock.patch.dict(os.environ, {"KGQA_RUNS": runs}):
            os.environ.pop("KGQA_RUN", None)
            notebook = executed(path)
        notebook.metadata = language  # without the Python of this machine
        nbformat.write(notebook, path)


if __name__ == "__main__":
    write()
