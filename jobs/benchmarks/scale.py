"""Whether a run's rate and memory stay what they are as the questions grow."""

from __future__ import annotations

import subprocess
import sys
import tempfile
from pathlib import Path

import orjson

from jobs.benchmarks.runs import run_steady

_CALLS = 4


def scale(sizes: tuple[int, ...] = (1_000, 10_000, 100_000)) -> dict[str, float]:
    """Questions per second and peak memory (MiB) at each size, with a model that takes no time.

    Each size is a process of its own, because peak memory is a process's.
    """
    figures: dict[str, float] = {}
    for size in sizes:
        rate, peak = _measure(size)
        figures |= {f"{size}_questions_per_s": rate, f"{size}_peak_mib": peak}
    for size in sizes[1:]:
        figures[f"rate_{size}_to_{sizes[0]}"] = (
            figures[f"{size}_questions_per_s"] / figures[f"{sizes[0]}_questions_per_s"]
        )
        figures[f"peak_{size}_to_{sizes[0]}"] = figures[f"{size}_peak_mib"] / figures[f"{sizes[0]}_peak_mib"]
    return figures


def _measure(size: int) -> tuple[float, float]:
    with tempfile.TemporaryDirectory() as folder:
        command = [sys.executable, "-m", "jobs.benchmarks.scale", str(Path(folder) / "run"), str(size)]
        done = subprocess.run(command, stdout=subprocess.PIPE, check=True)  # noqa: S603 - our own words
        summary = orjson.loads(done.stdout)
        return size / (summary["wall_s"] - summary["opening_s"]), summary["peak_mib"]


def _peak_mib() -> float:
    """Most memory that this process has held. What `wait4` reports begins with what its parent held at the fork."""
    status = Path("/proc/self/status").read_text()
    return int(status.partition("VmHWM:")[2].split()[0]) / 1024


if __name__ == "__main__":
    run_folder, questions = Path(sys.argv[1]), sys.argv[2]
    overrides = ["llm=oracle", "engine.concurrency=64"]
    # What a process does once, such as importing, takes a fifth of the shortest run: it is done in a run before.
    run_steady(run_folder / "warm", [*overrides, "dataset.questions=200"], calls=_CALLS)
    summary = run_steady(run_folder / "measured", [*overrides, f"dataset.questions={questions}"], calls=_CALLS)
    sys.stdout.buffer.write(orjson.dumps(summary | {"peak_mib": _peak_mib()}))
