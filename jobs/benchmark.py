"""`kgqa benchmark NAME`: measure this installation; the last line printed is one JSON object of the figures."""

from __future__ import annotations

import sys
from collections.abc import Callable

import orjson
from rich.console import Console
from rich.table import Table

from jobs.benchmarks.cluster import cluster
from jobs.benchmarks.fanout import fanout
from jobs.benchmarks.graph import graph
from jobs.benchmarks.overhead import overhead, saturation
from jobs.benchmarks.scale import scale, sweep_scale
from jobs.benchmarks.scheduling import scheduling
from jobs.benchmarks.sweep import sweep
from jobs.benchmarks.traces import traces
from jobs.benchmarks.training import training
from jobs.benchmarks.vllm import vllm
from jobs.cli import guard
from jobs.common import wants_help
from pipeline.errors import UserError, nearest

BENCHMARKS: dict[str, Callable[[], dict[str, float]]] = {
    "overhead": overhead,
    "saturation": saturation,
    "graph": graph,
    "fanout": fanout,
    "scale": scale,
    "traces": traces,
    "sweep": sweep,
    "sweep-scale": sweep_scale,
    "scheduling": scheduling,
    "cluster": cluster,
    "vllm": vllm,
    "training": training,
}


def main(argv: list[str]) -> int:
    """Run the named benchmarks, or `all`."""
    if wants_help(argv) or not argv:
        purposes = "\n".join(f"  {name:<13}{(run.__doc__ or '').splitlines()[0]}" for name, run in BENCHMARKS.items())
        print(f"usage: kgqa benchmark NAME … | all\n\n{purposes}")
        return 0
    names = list(BENCHMARKS) if argv == ["all"] else argv
    for name in names:
        if name not in BENCHMARKS:
            raise UserError(
                f"there is no benchmark '{name}'.{nearest(name, BENCHMARKS)} Known: {', '.join(BENCHMARKS)}"
            )
    results = {name: BENCHMARKS[name]() for name in names}
    _print(results, Console())
    print(orjson.dumps(results).decode())
    return 0


def _print(results: dict[str, dict[str, float]], console: Console) -> None:
    table = Table("benchmark", "figure", "value")
    for name, figures in results.items():
        for figure, value in figures.items():
            table.add_row(name, figure, f"{value:,.4g}" if isinstance(value, float) else f"{value:,}")
        table.add_section()
    console.print(table)


if __name__ == "__main__":
    sys.exit(guard(main, sys.argv[1:]))
