"""Requests per second that the client gets through several model servers, against the sum of their rates."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Sequence
from contextlib import ExitStack
from dataclasses import replace

from pipeline.cli.benchmarks.client import example_call
from pipeline.cli.benchmarks.server import serving
from pipeline.config import default
from pipeline.llm.endpoint import EndpointModel

_TOKENS_PER_S, _TOKENS, _SLOTS = 20, 8, 16
"""Of each simulated server: tokens per second of a call, tokens of a reply, and calls at a time. So few that two cores
are enough for eight servers and the client."""
_RATE = _SLOTS * _TOKENS_PER_S / _TOKENS
_IN_FLIGHT = 3 * _SLOTS
"""Questions in flight per server: more than its slots, so that a server never waits for the client."""
_CALLS = 8
"""Of a question, one after the other."""


def servers(*, counts: Sequence[int] = (1, 2, 4, 8), warm_s: float = 2.0, measured_s: float = 10.0) -> dict[str, float]:
    """Requests/s through 1, 2, 4 and 8 simulated model servers against the sum of their rates, and CPU per request.

    Each server is a process that answers over HTTP with a set token rate. The client sends the calls of a question to
    one server unless others are less busy.
    """
    figures: dict[str, float] = {}
    for count in counts:
        with ExitStack() as running:
            urls = tuple(
                running.enter_context(serving(latency_s=_TOKENS / _TOKENS_PER_S, slots=_SLOTS)) for _ in range(count)
            )
            rate, cpu_ms = asyncio.run(_measure(urls, warm_s, measured_s))
        figures |= {
            f"{count}_servers_requests_per_s": rate,
            f"{count}_servers_to_sum_of_rates": rate / (count * _RATE),
            f"{count}_servers_cpu_ms_per_request": cpu_ms,
        }
    return figures


async def _measure(urls: tuple[str, ...], warm_s: float, measured_s: float) -> tuple[float, float]:
    """Return the requests per second and the CPU milliseconds of this process per request, in the steady state."""
    answered = 0

    async def ask(lane: int) -> None:
        nonlocal answered
        number = 0
        while True:
            question = f"{lane}-{number // _CALLS}"
            assert (await model.complete(replace(example_call(number), question=question))).text
            answered += 1
            number += 1

    async with default(EndpointModel, base_urls=urls) as model:
        lanes = [asyncio.create_task(ask(lane)) for lane in range(_IN_FLIGHT * len(urls))]
        await asyncio.sleep(warm_s)
        before, began, cpu = answered, time.monotonic(), time.process_time()
        failed, _ = await asyncio.wait(lanes, timeout=measured_s, return_when=asyncio.FIRST_EXCEPTION)
        cpu_s, wall_s, count = time.process_time() - cpu, time.monotonic() - began, answered - before
        for lane in lanes:
            lane.cancel()
        await asyncio.gather(*lanes, return_exceptions=True)
        for lane in failed:
            lane.result()  # raises
    return count / wall_s, cpu_s / count * 1000
