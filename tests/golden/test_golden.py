"""Every golden run has its recorded call keys and answers: no refactor changes what a method asks or answers."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.golden.__main__ import GoldenRun, golden_runs, run


@pytest.mark.exhaustive
@pytest.mark.parametrize("golden", golden_runs(), ids=lambda golden: golden.name)
def test_a_golden_run_is_equal_to_the_recorded_one(golden: GoldenRun, shared_data: Path, tmp_path: Path) -> None:
    assert run(golden, tmp_path) == golden.file.read_text("utf-8"), "python -m tests.golden compare shows how"
