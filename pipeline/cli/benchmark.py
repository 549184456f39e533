"""`kgqa benchmark NAME`: measure this installation."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from rich.table import Table

from pipeline.cli.arguments import Arguments
from pipeline.cli.benchmarks.announcing import announce
from pipeline.cli.benchmarks.cluster import cluster
from pipeline.cli.benchmarks.fanout import fanout
from pipeline.cli.benchmarks.gpu import gpu
from pipeline.cli.benchmarks.graph import graph
from pipeline.cli.benchmarks.overhead import overhead, saturation
from pipeline.cli.benchmarks.scale import scale, sweep_scale
from pipeline.cli.benchmarks.scheduling import scheduling
from pipeline.cli.benchmarks.search import search, search_large
from pipeline.cli.benchmarks.servers import servers
from pipeline.cli.benchmarks.sweep import sweep
from pipeline.cli.benchmarks.traces import traces
from pipeline.cli.benchmarks.training import training
from pipeline.cli.benchmarks.viewer import viewer
from pipeline.cli.benchmarks.vllm import vllm
from pipeline.cli.output import Output
from pipeline.errors import UserError
from pipeline.extras import require
from pipeline.suggestions import did_you_mean

BENCHMARKS: dict[str, Callable[[], dict[str, float]]] = {
    "overhead": overhead,
    "saturation": saturation,
    "servers": servers,
    "graph": graph,
    "fanout": fanout,
    "search": search,
    "search-large": search_large,
    "scale": scale,
    "traces": traces,
    "sweep": sweep,
    "sweep-scale": sweep_scale,
    "scheduling": scheduling,
    "cluster": cluster,
    "vllm": vllm,
    "training": training,
    "viewer": viewer,
    "gpu": gpu,
}

_EXTRAS = {
    "overhead": ("benchmark",),
    "servers": ("benchmark",),
    "vllm": ("gpu", "train"),
    "training": ("train",),
    "gpu": ("gpu", "train"),
}
"""The optional dependencies of each benchmark."""


def run(arguments: Arguments) -> Output:
    """Run the named benchmarks, or `all`."""
    if arguments.overrides:
        raise UserError(f"unknown key '{arguments.overrides[0].partition('=')[0]}': kgqa benchmark NAME … | all")
    names = [name for name in BENCHMARKS if name != "gpu"] if arguments.words == ["all"] else arguments.words
    for name in names:
        if name not in BENCHMARKS:
            raise UserError(
                f"there is no benchmark '{name}'.{did_you_mean(name, BENCHMARKS)} Known: {', '.join(BENCHMARKS)}"
            )
        for extra in _EXTRAS.get(name, ()):
            require(extra, f"kgqa benchmark {name}")
    results = {name: _measure(name) for name in names}
    return Output(results, [_table(results)])


def details() -> str:
    """Say what each benchmark measures."""
    return "\n".join(f"  {name:<13}{_what(name)}" for name in BENCHMARKS)


def _measure(name: str) -> dict[str, float]:
    announce(f"{name}: {_what(name)}")
    return BENCHMARKS[name]()


def _what(name: str) -> str:
    return (BENCHMARKS[name].__doc__ or "").partition("\n")[0]


def _table(results: Mapping[str, Mapping[str, float]]) -> Table:
    table = Table("benchmark", "figure", "value")
    for name, figures in results.items():
        for figure, value in figures.items():
            table.add_row(name, figure, f"{value:,.4g}" if isinstance(value, float) else f"{value:,}")
        table.add_section()
    return table
