"""Requests per second that the client gets through several model servers, directly and through one ingress."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, suppress
from dataclasses import replace

from pipeline.cli.benchmarks.announcing import announce
from pipeline.cli.benchmarks.client import example_call
from pipeline.cli.benchmarks.ingress import ingress
from pipeline.cli.benchmarks.server import TOKENS, serving
from pipeline.config import default
from pipeline.llm.endpoint import EndpointModel

_TOKENS_PER_S, _SLOTS = 20, 16
"""Of each simulated server: tokens per second of a call, and calls at a time. So few that two cores are enough for
eight servers and the client."""
_RATE = _SLOTS * _TOKENS_PER_S / TOKENS
_IN_FLIGHT = 3 * _SLOTS
"""Questions in flight per server: more than its slots, so that a server never waits for the client."""
_CALLS = 8
"""Of a question, one after the other."""


def servers(*, counts: Sequence[int] = (1, 2, 4, 8), warm_s: float = 2.0, measured_s: float = 10.0) -> dict[str, float]:
    """Requests/s through 1, 2, 4 and 8 simulated model servers, directly and through one ingress, and CPU per request.

    Each server is a process that answers over HTTP with a set token rate. The client sends the calls of a question to
    one server unless others are less busy, or else all calls to one ingress of Ray Serve. The CPU time per request is
    that of the client and of all that is between it and the servers.
    """
    figures: dict[str, float] = {}
    for count in counts:
        announce(f"{count} model servers, {2 * (warm_s + measured_s):.0f} s at least")
        with ExitStack() as running:
            urls = [
                running.enter_context(serving(latency_s=TOKENS / _TOKENS_PER_S, slots=_SLOTS)) for _ in range(count)
            ]
            for way, reached, between in _ways(urls):
                measuring = measure_servers(reached, _IN_FLIGHT * count, between, warm_s, measured_s)
                rate, cpu_ms = asyncio.run(measuring)
                figures |= {
                    f"{count}_servers{way}_requests_per_s": rate,
                    f"{count}_servers{way}_to_sum_of_rates": rate / (count * _RATE),
                    f"{count}_servers{way}_cpu_ms_per_request": cpu_ms,
                }
    return figures


def _ways(urls: Sequence[str]) -> Iterator[tuple[str, Sequence[str], int | None]]:
    """Yield the ways to the servers: a name, the URLs that the client calls, and the process that is in between."""
    yield "", urls, None
    with ingress(urls) as (url, process):
        yield "_one_ingress", [url], process


def _cpu_s(between: int | None) -> float:
    """Return the CPU seconds so far of this process, and of another one with its children."""
    import psutil  # in the extra `benchmark`; nothing else uses it

    parent = [] if between is None else [psutil.Process(between)]
    found = [*parent, *(child for each in parent for child in each.children(recursive=True))]
    total = time.process_time()
    for process in found:
        with suppress(psutil.NoSuchProcess):  # it has just ended
            total += sum(process.cpu_times()[:2])
    return total


async def measure_servers(
    urls: Sequence[str], in_flight: int, between: int | None, warm_s: float, measured_s: float
) -> tuple[float, float]:
    """Return the requests per second and the CPU milliseconds per request, in the steady state.

    So many questions are `in_flight`. The CPU time is that of this process, and of the process `between` with its
    children.
    """
    answered = 0

    async def ask(lane: int) -> None:
        nonlocal answered
        number = 0
        while True:
            question = f"{lane}-{number // _CALLS}"
            assert (await model.complete(replace(example_call(number), question=question))).text
            answered += 1
            number += 1

    async with default(EndpointModel, base_urls=tuple(urls)) as model:
        lanes = [asyncio.create_task(ask(lane)) for lane in range(in_flight)]
        await asyncio.sleep(warm_s)
        before, began, cpu = answered, time.monotonic(), _cpu_s(between)
        failed, _ = await asyncio.wait(lanes, timeout=measured_s, return_when=asyncio.FIRST_EXCEPTION)
        cpu_s, wall_s, count = _cpu_s(between) - cpu, time.monotonic() - began, answered - before
        for lane in lanes:
            lane.cancel()
        await asyncio.gather(*lanes, return_exceptions=True)
        for lane in failed:
            lane.result()  # raises
    return count / wall_s, cpu_s / count * 1000
