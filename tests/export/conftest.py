"""A small run with wrong answers, unreadable replies and hostile names, and its configurations."""

from __future__ import annotations

from pathlib import Path

import pytest

from pipeline import evaluate
from pipeline.analysis.runs import Run
from pipeline.export.exported_run import ExportedConfiguration, exported_configurations


@pytest.fixture(scope="session")
def run(tmp_path_factory: pytest.TempPathFactory) -> Run:
    """A run of SRP over eight questions."""
    folder = tmp_path_factory.mktemp("exported") / "small"
    words = ("method=srp", "llm=oracle", "llm.error_rate=0.4", "llm.malformed_rate=0.2", "dataset.triples=2000")
    keys = ("run.limit=8", "evaluation.bootstrap_resamples=100", "run.tags=[exported]", f"run.dir={folder}")
    return evaluate([*words, *keys])


@pytest.fixture(scope="session")
def exported(run: Run) -> ExportedConfiguration:
    """The only configuration of the run."""
    return exported_configurations(run, None)[0]


@pytest.fixture
def output(tmp_path: Path) -> Path:
    """A folder that does not exist yet."""
    return tmp_path / "out"
