"""Runs of the whole engine, for benchmarks: composed like any run, of a real method or of the steady one."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from rich.console import Console

from pipeline import config
from pipeline.engine.run import Point, execute

STEADY = {"_target_": "jobs.benchmarks.steady.SteadyCalls"}


def run_method(folder: Path, overrides: Sequence[str]) -> None:
    """Run a method in this process, as `kgqa evaluate` does with these words."""
    words = [*overrides, f"run.dir={folder}"]
    execute([Point(tuple(words), config.compose(words))], Console(quiet=True))


def run_steady(folder: Path, overrides: Sequence[str], *, calls: int, points: int = 1) -> dict[str, Any]:
    """Run the steady method in this process; returns the contents of `summary.json`.

    Several points make the same calls under budgets that differ by a second, so that none stands for another.
    """
    words = ["dataset=sample", "method=cot", f"budget.max_llm_calls={calls + 1}", f"run.dir={folder}", *overrides]
    resolved = config.compose(words)
    resolved["method"] = STEADY | {"calls": calls}
    budget = resolved["budget"]
    budgets = [{**budget, "max_wall_s": budget["max_wall_s"] + point} for point in range(points)]
    execute([Point(tuple(words), {**resolved, "budget": each}) for each in budgets], Console(quiet=True))
    summary: dict[str, Any] = json.loads((folder / "summary.json").read_text())
    return summary
