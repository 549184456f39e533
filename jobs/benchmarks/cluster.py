"""Whether the simulated cluster takes as long as a real run: the same questions, on this machine and on paper."""

from __future__ import annotations

import json
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path

from rich.console import Console

from pipeline import config
from pipeline.analysis.simulation.demand import of_runs
from pipeline.analysis.simulation.simulate import Cluster, simulate
from pipeline.engine.run import Point, execute

_LATENCY_S = 0.1
_QUESTIONS, _SHARD_SIZE = 256, 8
_REGIMES = {"busy_server": (6, 64), "few_in_flight": (1000, 6)}
"""Slots of the server and questions in flight: once the server takes the time, once the questions' own calls do."""


def cluster() -> dict[str, float]:
    """Seconds of real runs of SRP and R3 against those simulated, which are to be within 15 % of them.

    The server is `jobs.benchmarks.sweep.BusyOracle`, which answers so many calls at a time, each in 0.1 s. The
    simulation knows nothing of what else the machine does, and so comes out too fast rather than too slow.
    """
    figures: dict[str, float] = {}
    with tempfile.TemporaryDirectory() as place:
        for method in ("srp", "r3"):
            for regime, (slots, in_flight) in _REGIMES.items():
                name = f"{method}_{regime}"
                measured, simulated = _compare(method, slots, in_flight, Path(place) / name)
                figures |= {
                    f"{name}_measured_s": measured,
                    f"{name}_simulated_s": simulated,
                    f"{name}_simulated_to_measured": simulated / measured,
                }
    return figures


def _compare(method: str, slots: int, in_flight: int, folder: Path) -> tuple[float, float]:
    began = time.process_time()
    measured = _run(_words(method, slots, in_flight, folder))
    cpu_s = time.process_time() - began
    (of_methods,) = of_runs([folder], []).values()
    (demands,) = of_methods.values()
    paper = Cluster(
        lease_s=0,
        workers=1,
        call_s=cpu_s / sum(demand.calls for demand in demands),
        ingresses=1,
        request_s=0,
        slots=slots,
        answer_s=_LATENCY_S,
        replicas=1,
        entity_s=0,
        put_s=0,
        in_flight=in_flight,
        shard_size=_SHARD_SIZE,
    )
    return measured, simulate(paper, demands).wall_s


def _words(method: str, slots: int, in_flight: int, folder: Path) -> list[str]:
    busy = ["llm=oracle", "llm._target_=jobs.benchmarks.sweep.BusyOracle", f"+llm.slots={slots}"]
    load = [f"llm.latency_s={_LATENCY_S}", "llm.error_rate=0.15", f"engine.concurrency={in_flight}"]
    size = ["dataset.triples=2000", f"run.limit={_QUESTIONS}", f"engine.shard_size={_SHARD_SIZE}"]
    return [f"method={method}", *busy, *load, *size, "evaluation.bootstrap_resamples=100", f"run.dir={folder}"]


def _run(words: Sequence[str]) -> float:
    """Seconds that the questions took."""
    point = Point(tuple(words), config.compose(words))
    execute([point], Console(quiet=True))
    summary = json.loads((Path(point.config["run"]["dir"]) / "summary.json").read_text())
    return float(summary["wall_s"] - summary["opening_s"])
