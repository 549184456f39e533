"""Questions per second and memory of a run, for growing numbers of questions."""

from __future__ import annotations

import subprocess
import sys
import tempfile
from pathlib import Path

import orjson

from pipeline.cli.benchmarks.announcing import announce
from pipeline.cli.benchmarks.runs import peak_mib, run_steady
from pipeline.text import counted

_CALLS = 4
_CONFIGURATIONS = 100


def scale(sizes: tuple[int, ...] = (1_000, 10_000, 100_000)) -> dict[str, float]:
    """Questions per second and peak memory (MiB) at each size, with a model that takes no time.

    Each size is measured in a process of its own, because peak memory is counted per process.
    """
    return _at_sizes(sizes, calls=_CALLS, configurations=1)


def sweep_scale(sizes: tuple[int, ...] = (1_000, 10_000)) -> dict[str, float]:
    """As `scale`, with a sweep of a hundred configurations of one call each: `rows` are their questions."""
    figures = _at_sizes(sizes, calls=1, configurations=_CONFIGURATIONS)
    rows = {f"{size}_rows_per_s": figures[f"{size}_questions_per_s"] * _CONFIGURATIONS for size in sizes}
    return figures | rows


def _at_sizes(sizes: tuple[int, ...], *, calls: int, configurations: int) -> dict[str, float]:
    figures: dict[str, float] = {}
    for size in sizes:
        announce(counted(size, "question"))
        rate, peak = _measure(size, calls, configurations)
        figures |= {f"{size}_questions_per_s": rate, f"{size}_peak_mib": peak}
    for size in sizes[1:]:
        figures[f"rate_{size}_to_{sizes[0]}"] = (
            figures[f"{size}_questions_per_s"] / figures[f"{sizes[0]}_questions_per_s"]
        )
        figures[f"peak_{size}_to_{sizes[0]}"] = figures[f"{size}_peak_mib"] / figures[f"{sizes[0]}_peak_mib"]
    return figures


def _measure(size: int, calls: int, configurations: int) -> tuple[float, float]:
    with tempfile.TemporaryDirectory() as folder:
        words = [str(Path(folder) / "run"), *map(str, (size, calls, configurations))]
        command = [sys.executable, "-m", "pipeline.cli.benchmarks.scale", *words]
        done = subprocess.run(command, stdout=subprocess.PIPE, check=True)  # noqa: S603 - our own words
        summary = orjson.loads(done.stdout)
        return size / (summary["wall_s"] - summary["opening_s"]), summary["peak_mib"]


if __name__ == "__main__":
    run_folder, (questions, calls, configurations) = Path(sys.argv[1]), map(int, sys.argv[2:])
    overrides = ["llm=oracle", "engine.concurrency=64"]
    # A first run does what a process does once, such as importing: it takes a fifth of the shortest run.
    run_steady(run_folder / "warm", [*overrides, "dataset.questions=200"], calls=calls)
    summary = run_steady(
        run_folder / "measured",
        [*overrides, f"dataset.questions={questions}"],
        calls=calls,
        configurations=configurations,
    )
    sys.stdout.buffer.write(orjson.dumps(summary | {"peak_mib": peak_mib("self")}))
