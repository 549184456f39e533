"""Compares the simulated cluster with real runs: the same questions, on this machine and in the simulation."""

from __future__ import annotations

import tempfile
import time
from pathlib import Path

from pipeline.cli.benchmarks.runs import run_method
from pipeline.simulation.cluster.capacity import Cluster, simulate
from pipeline.simulation.cluster.workload import measure_workloads

_LATENCY_S = 0.1
_QUESTIONS, _SHARD_SIZE = 256, 8
_REGIMES = {"busy_server": (6, 64), "few_in_flight": (1000, 6)}
"""Slots of the server and questions in flight: one regime is limited by the server, one by the questions' own calls."""


def cluster() -> dict[str, float]:
    """Seconds of real runs of SRP and R3 against the simulated seconds, which should be within 15 %.

    The server is `pipeline.cli.benchmarks.sweep.BusyOracle`, which answers a fixed number of calls at a time, each in
    0.1 s. The simulation ignores other load on the machine, so it is too fast rather than too slow.
    """
    figures: dict[str, float] = {}
    with tempfile.TemporaryDirectory() as scratch:
        for method in ("srp", "r3"):
            for regime, (slots, in_flight) in _REGIMES.items():
                name = f"{method}_{regime}"
                measured, simulated = _compare(method, slots, in_flight, Path(scratch) / name)
                figures |= {
                    f"{name}_measured_s": measured,
                    f"{name}_simulated_s": simulated,
                    f"{name}_simulated_to_measured": simulated / measured,
                }
    return figures


def _compare(method: str, slots: int, in_flight: int, folder: Path) -> tuple[float, float]:
    began = time.process_time()
    summary = run_method(folder, _words(method, slots, in_flight))
    cpu_s = time.process_time() - began
    (of_methods,) = measure_workloads([folder]).values()
    (questions,) = of_methods.values()
    paper = Cluster(
        lease_s=0,
        workers=1,
        call_s=cpu_s / sum(question.calls for question in questions),
        slots=slots,
        answer_s=_LATENCY_S,
        replicas=1,
        entity_s=0,
        put_s=0,
        in_flight=in_flight,
        shard_size=_SHARD_SIZE,
    )
    return summary["wall_s"] - summary["opening_s"], simulate(paper, questions).wall_s


def _words(method: str, slots: int, in_flight: int) -> list[str]:
    busy = ["llm=oracle", "llm._target_=pipeline.cli.benchmarks.sweep.BusyOracle", f"+llm.slots={slots}"]
    load = [f"llm.latency_s={_LATENCY_S}", "llm.error_rate=0.15", f"engine.concurrency={in_flight}"]
    size = ["dataset.triples=2000", f"run.limit={_QUESTIONS}", f"engine.shard_size={_SHARD_SIZE}"]
    return [f"method={method}", *busy, *load, *size, "evaluation.bootstrap_resamples=100"]
