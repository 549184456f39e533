"""Cost of a sweep as one run, compared with running its configurations one by one or by Hydra's own launchers."""

from __future__ import annotations

import asyncio
import json
import tempfile
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, Self

from omegaconf import DictConfig, OmegaConf
from pydantic import ConfigDict, PositiveInt
from pydantic.dataclasses import dataclass

from pipeline import config
from pipeline.cli.benchmarks.runs import run_method
from pipeline.cli.benchmarks.server import Slots
from pipeline.console import Console
from pipeline.engine.configuration import Configuration
from pipeline.engine.run import execute
from pipeline.kg.interface import KnowledgeGraph
from pipeline.llm.prompt import Call, Completion
from pipeline.simulation.oracle import Oracle, QuestionOracle
from pipeline.types import Example

QUESTIONS = {"srp": 64, "arg": 96, "parog": 64, "r3": 24}
"""Enough for about a thousand distinct calls: with fewer, the longest chain of calls takes most of the time."""
AXES = ("method.beam_width=1,3,5", "method.depth=1,2,3,4", "method.retries=0,1,2")
_LATENCY_S, _SLOTS = 0.1, 6
"""Time per call, and calls at a time: 60 calls per second, as vLLM serves a tiny Llama on two cores. A faster server
would wait for the work between the calls, which `cpu_ms_per_call_as_if_alone` reports."""


@dataclass(kw_only=True, config=ConfigDict(extra="forbid"))
class BusyOracle(Oracle):
    """The oracle behind a simulated server of limited capacity.

    Like a server in another process, it does not wait for this one: each call is served in order of arrival, as soon
    as a slot is free, even if this process has not read the answer before it yet.
    """

    slots: PositiveInt = _SLOTS

    async def __aenter__(self) -> Self:
        self._taken = Slots(_LATENCY_S, self.slots)
        return self

    def for_question(self, example: Example, kg: KnowledgeGraph) -> QuestionOracle:
        return _Queued(super().for_question(example, kg), self._taken)


class _Queued(QuestionOracle):
    def __init__(self, oracle: QuestionOracle, slots: Slots) -> None:
        self.identity = oracle.identity
        self._inner = oracle
        self._slots = slots

    async def complete(self, call: Call) -> Completion:
        await self._served()
        return await self._inner.complete(call)

    async def choose(self, call: Call) -> Completion:
        await self._served()
        return await self._inner.choose(call)

    async def _served(self) -> None:
        """Wait for the next free slot, and for the call's time in it."""
        now = time.perf_counter()
        await asyncio.sleep(self._slots.take(now) - now)


def sweep(alone: int = 12) -> dict[str, float]:
    """Seconds of a sweep of 36 configurations of each method against those of its unique calls, and of other ways.

    The other ways run the configurations of SRP one after the other in this process, or two at a time with half
    of the server each.
    """
    figures: dict[str, float] = {}
    with tempfile.TemporaryDirectory() as scratch:
        for method, questions in QUESTIONS.items():
            _fused(method, 1, Path(scratch) / f"{method}-warm")  # does what a process does once, such as importing
            fused = _fused(method, questions, Path(scratch) / method)
            figures |= {f"{method}_{name}": value for name, value in fused.items()}
        return figures | _other_ways(alone, Path(scratch))


def _other_ways(questions: int, folder: Path) -> dict[str, float]:
    fused = _fused("srp", questions, folder / "fused")
    figures = {"fused_s": fused["wall_s"], "fused_calls": fused["unique_calls"]}
    ways: dict[str, Callable[[Path], None]] = {
        "separate": lambda to: _separate(questions, to),
        "hydra_basic": lambda to: _by_hydra(questions, to, ["hydra/launcher=basic"], slots=_SLOTS),
        "hydra_joblib": lambda to: _by_hydra(
            questions, to, ["hydra/launcher=joblib", "hydra.launcher.n_jobs=2"], slots=_SLOTS // 2
        ),
    }
    for name, way in ways.items():
        began = time.perf_counter()
        way(folder / name)
        figures[f"{name}_s"] = time.perf_counter() - began
        figures[f"{name}_calls"] = sum(
            json.loads(file.read_text())["physical_llm_calls"] for file in (folder / name).rglob("summary.json")
        )
        figures[f"{name}_to_fused_s"] = figures[f"{name}_s"] / figures["fused_s"]
        figures[f"{name}_to_fused_calls"] = figures[f"{name}_calls"] / figures["fused_calls"]
    return figures


def _fused(method: str, questions: int, folder: Path) -> dict[str, float]:
    began, began_cpu = time.perf_counter(), time.process_time()
    summary = run_method(folder, *_grid(method, questions))
    wall_s, cpu_s = time.perf_counter() - began, time.process_time() - began_cpu
    ideal_s = summary["physical_llm_calls"] * _LATENCY_S / _SLOTS
    return {
        "wall_s": wall_s,
        "unique_calls": summary["physical_llm_calls"],
        "calls_as_if_alone": summary["logical_llm_calls"],
        "wall_to_unique_calls": (summary["wall_s"] - summary["opening_s"]) / ideal_s,
        "cpu_ms_per_call_as_if_alone": cpu_s / summary["logical_llm_calls"] * 1000,
    }


def _separate(questions: int, folder: Path) -> None:
    for number, words in enumerate(_grid("srp", questions)):
        run_method(folder / str(number), words)


def _by_hydra(questions: int, folder: Path, launcher: Sequence[str], *, slots: int) -> None:
    quiet = ["hydra/job_logging=none", "hydra/hydra_logging=none", f"hydra.sweep.dir={folder / 'hydra'}"]
    own = [*_common("srp", questions, slots), f"run.dir={folder}/${{hydra:job.num}}"]
    with config.running_hydra() as running:
        running.multirun("config", run_alone, [*launcher, *quiet, *own, *AXES], with_log_configuration=False)


def run_alone(composed: DictConfig) -> None:
    """Run one configuration, as a task of Hydra's launchers."""
    resolved: Any = OmegaConf.to_container(composed, resolve=True)
    choices = {"dataset": "synthetic", "method": "srp", "llm": "oracle"}
    execute([Configuration((), resolved | {"choices": choices})], Console(quiet=True))


def _grid(method: str, questions: int) -> list[list[str]]:
    grid: list[list[str]] = [_common(method, questions, _SLOTS)]
    for axis in AXES:
        key, _, values = axis.partition("=")
        grid = [[*words, f"{key}={value}"] for words in grid for value in values.split(",")]
    return grid


def _common(method: str, questions: int, slots: int) -> list[str]:
    busy = ["llm=oracle", "llm._target_=pipeline.cli.benchmarks.sweep.BusyOracle", f"+llm.slots={slots}"]
    erring = ["llm.error_rate=0.15", "evaluation.bootstrap_resamples=1000"]
    return [f"method={method}", *busy, *erring, "dataset.triples=2000", f"run.limit={questions}"]
