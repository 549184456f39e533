"""CPU time per model call of three clients: this project's, a bare HTTP client, and the openai package."""

from __future__ import annotations

import asyncio
import gc
import time
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Any

import aiohttp
import orjson

from pipeline.cli.benchmarks.server import MODEL, serving
from pipeline.config import default
from pipeline.llm.endpoint import EndpointModel
from pipeline.llm.prompt import Call, Prompt, Sampling, Template

_TEMPLATE = Template(system="Answer the question in braces. " * 25, user="Question: {{question}}\nFacts: {{facts}}")
_SAMPLING = Sampling(temperature=0.3, max_tokens=256)


async def measure_client(*, calls: int = 4096, in_flight: int = 64) -> dict[str, float]:
    """Measure the CPU milliseconds per call of each client, and the ratios of this project's client to the others.

    Every client sends the same prompts of about 350 tokens to the same server, `in_flight` at a time.
    """
    with serving() as url:
        figures = {
            "bare_http_ms": await _measure_bare(url, calls, in_flight),
            "endpoint_ms": await _measure_endpoint(url, calls, in_flight),
            "openai_ms": await _measure_openai(url, calls, in_flight),
        }
    ratios = {
        "endpoint_to_bare_http": figures["endpoint_ms"] / figures["bare_http_ms"],
        "endpoint_to_openai": figures["endpoint_ms"] / figures["openai_ms"],
    }
    return {name: round(value, 4) for name, value in (figures | ratios).items()}


async def _measure_bare(url: str, calls: int, in_flight: int) -> float:
    async with aiohttp.ClientSession(connector=aiohttp.TCPConnector(limit=0)) as session:

        async def ask(call: Call) -> None:
            body = orjson.dumps(body_of(call))
            headers = {"Content-Type": "application/json"}
            async with session.post(f"{url}/chat/completions", data=body, headers=headers) as response:
                assert orjson.loads(await response.read())["choices"][0]["message"]["content"]

        return await _cpu_ms_per_call(ask, calls, in_flight)


async def _measure_endpoint(url: str, calls: int, in_flight: int) -> float:
    async with default(EndpointModel, base_urls=(url,)) as model:

        async def ask(call: Call) -> None:
            assert (await model.complete(call)).text

        return await _cpu_ms_per_call(ask, calls, in_flight)


async def _measure_openai(url: str, calls: int, in_flight: int) -> float:
    from openai import AsyncOpenAI  # in the extra `benchmark`; nothing else uses it

    async with AsyncOpenAI(base_url=url, api_key="none") as client:

        async def ask(call: Call) -> None:
            completion = await client.chat.completions.create(**body_of(call))
            assert completion.choices[0].message.content

        return await _cpu_ms_per_call(ask, calls // 8, in_flight)


def body_of(call: Call, model: str = MODEL) -> dict[str, Any]:
    """Return what a bare client sends for a call."""
    return {
        "model": model,
        "messages": [{"role": message.role, "content": message.content} for message in call.messages],
        "temperature": call.sampling.temperature,
        "top_p": call.sampling.top_p,
        "max_tokens": call.sampling.max_tokens,
        "seed": call.seed,
    }


async def _cpu_ms_per_call(ask: Callable[[Call], Awaitable[None]], calls: int, in_flight: int) -> float:
    async def take_turns(worker: int, prepared: list[Call]) -> None:
        for call in prepared[worker::in_flight]:
            await ask(call)

    async def ask_all(prepared: list[Call]) -> None:
        await asyncio.gather(*(take_turns(worker, prepared) for worker in range(in_flight)))

    # Connect, and import what is imported late.
    await ask_all([example_call(number) for number in range(2 * in_flight)])
    prepared = [example_call(number) for number in range(calls)]
    gc.collect()
    start = time.process_time()
    await ask_all(prepared)
    return (time.process_time() - start) / calls * 1000


def example_call(number: int) -> Call:
    """Return a call of ordinary length."""
    prompt = _Question(f"Who wrote program number {number}?")
    return Call(prompt, prompt.messages(), _SAMPLING, key=str(number), seed=number)


@dataclass(frozen=True)
class _Question(Prompt[object]):
    """A prompt of ordinary length."""

    role = "benchmark.question"
    template = _TEMPLATE
    question: str

    def inputs(self) -> dict[str, str]:
        return {"question": self.question, "facts": "(Ada Lovelace, wrote, a program); " * 20}

    def parse(self, text: str) -> str:
        return text

    def fallback(self, text: str) -> str:
        return ""
