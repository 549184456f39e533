"""Runs of the whole engine for benchmarks, with a real method or with `SteadyCalls`."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Literal

from pipeline import config
from pipeline.console import Console
from pipeline.engine.configuration import Configuration
from pipeline.engine.run import execute

STEADY = {"_target_": "pipeline.cli.benchmarks.steady.SteadyCalls"}


def run_method(folder: Path, *configurations: Sequence[str]) -> dict[str, Any]:
    """Run configurations in this process, as `kgqa evaluate` does with these words, and return `summary.json`."""
    words = [(*each, f"run.dir={folder}") for each in configurations]
    execute([Configuration(each, config.compose(each)) for each in words], Console(quiet=True))
    return _summary(folder)


def run_steady(folder: Path, overrides: Sequence[str], *, calls: int, configurations: int = 1) -> dict[str, Any]:
    """Run `SteadyCalls` in this process, and return the contents of `summary.json`.

    Several configurations make the same calls under budgets that differ by a second, so that none is a duplicate.
    """
    words = ["dataset=synthetic", "method=cot", f"budget.max_llm_calls={calls + 1}", f"run.dir={folder}", *overrides]
    resolved = config.compose(words)
    resolved["method"] = STEADY | {"calls": calls}
    budget = resolved["budget"]
    budgets = [{**budget, "max_wall_s": budget["max_wall_s"] + number} for number in range(configurations)]
    execute([Configuration(tuple(words), {**resolved, "budget": each}) for each in budgets], Console(quiet=True))
    return _summary(folder)


def peak_mib(process: int | Literal["self"]) -> float:
    """Return the peak memory of a process. `wait4` would include what its parent held at the fork."""
    status = Path(f"/proc/{process}/status").read_text()
    return int(status.partition("VmHWM:")[2].split()[0]) / 1024


def _summary(folder: Path) -> dict[str, Any]:
    summary: dict[str, Any] = json.loads((folder / "summary.json").read_text())
    return summary
