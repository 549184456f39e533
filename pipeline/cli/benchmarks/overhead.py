"""Overhead of the pipeline per model call: total CPU time, and waiting time with many questions in flight."""

from __future__ import annotations

import asyncio
import tempfile
import time
from pathlib import Path

from pipeline.cli.benchmarks.announcing import announce
from pipeline.cli.benchmarks.client import measure_client
from pipeline.cli.benchmarks.runs import run_steady
from pipeline.cli.benchmarks.server import MODEL, serving
from pipeline.text import counted

_CALLS = 16_000
"""Model calls per measurement: so many that opening the components is a small part."""


def overhead() -> dict[str, float]:
    """Milliseconds of CPU per model call: the whole pipeline at 8 and at 80 calls per question, and three bare clients.

    The total includes reading questions, rendering prompts, HTTP, parsing replies, and writing journal and traces. The
    first run of a process, which stands apart, also loads libraries and parses each new shape of gold query.
    """
    announce("three bare clients")
    figures = asyncio.run(measure_client())
    figures["pipeline_8_calls_first_ms"] = _cpu_ms_per_call(8)
    for calls in (8, 80):
        figures[f"pipeline_{calls}_calls_ms"] = _cpu_ms_per_call(calls)
    figures["pipeline_to_openai"] = figures["pipeline_8_calls_ms"] / figures["openai_ms"]
    figures["pipeline_to_bare_http"] = figures["pipeline_8_calls_ms"] / figures["bare_http_ms"]
    figures["80_to_8_calls"] = figures["pipeline_80_calls_ms"] / figures["pipeline_8_calls_ms"]
    return figures


def saturation(*, calls_per_s: int = 512, questions: int = 4096) -> dict[str, float]:
    """Wall time against Σ latency / concurrency, and the longest stall of the loop, at 256 and 2,048 in flight.

    The calls take so long that both make equally many per second.
    """
    return {
        f"{in_flight}_in_flight_{name}": value
        for in_flight in (256, 2048)
        for name, value in _saturation(in_flight, in_flight / calls_per_s, questions).items()
    }


def _saturation(in_flight: int, latency_s: float, questions: int) -> dict[str, float]:
    calls = 8
    announce(f"{counted(in_flight, 'question')} in flight, {questions * calls * latency_s / in_flight:,.0f} s at least")
    with serving(latency_s=latency_s) as url, tempfile.TemporaryDirectory() as folder:
        overrides = [*_endpoint(url), f"dataset.questions={questions}", "dataset.triples=1000"]
        overrides += [f"engine.concurrency={in_flight}"]
        summary = run_steady(Path(folder) / "run", overrides, calls=calls)
    ideal_s = questions * calls * latency_s / in_flight
    running_s = summary["wall_s"] - summary["opening_s"]
    return {
        "ideal_s": ideal_s,
        "wall_s": summary["wall_s"],
        "wall_without_opening_s": running_s,
        "wall_to_ideal": summary["wall_s"] / ideal_s,
        "wall_without_opening_to_ideal": running_s / ideal_s,
        "loop_lag_s": summary["loop_lag_s"],
    }


def _cpu_ms_per_call(calls: int) -> float:
    questions = _CALLS // calls
    announce(f"the whole pipeline at {counted(calls, 'call')} per question")
    with serving() as url, tempfile.TemporaryDirectory() as folder:
        overrides = [*_endpoint(url), f"dataset.questions={questions}", "dataset.triples=1000", "engine.concurrency=64"]
        began = time.process_time()
        run_steady(Path(folder) / "run", overrides, calls=calls)
        return (time.process_time() - began) / _CALLS * 1000


def _endpoint(url: str) -> list[str]:
    return ["llm=endpoint", f"llm.base_urls=[{url}]", f"llm.model={MODEL}"]
