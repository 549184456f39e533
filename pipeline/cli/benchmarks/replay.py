"""Replays the recorded calls of a run, as its questions made them or all at once.

Both ways send the same prompts, and get as many tokens for each as the recorded reply has. So their ratio is what it
costs that a question waits for one reply before it makes the next call.
"""

from __future__ import annotations

import asyncio
import time
from collections import deque
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TypeVar

import aiohttp
import orjson

from pipeline.cli.benchmarks.client import body_of, example_call
from pipeline.config import default
from pipeline.llm.endpoint import EndpointModel
from pipeline.llm.prompt import Call, Sampling
from pipeline.traces.reader import RecordedCalls

_T = TypeVar("_T")

_EXACTLY = {"ignore_eos": True}
"""Makes vLLM write as many tokens as a call allows."""


def recorded(run: Path, *, as_long: bool) -> list[list[Call]]:
    """Return the calls of a run by question, each question's in their order.

    If `as_long`, a call allows as many tokens as its recorded reply has; if not, as many as it allowed.
    """
    calls = RecordedCalls(run)
    questions = []
    for question in calls.question_ids:
        made = []
        for call in calls.calls(question).values():
            sampling = orjson.loads(call.sampling)["sampling"]
            tokens = max(1, call.completion.completion_tokens) if as_long else sampling["max_tokens"]
            made.append(
                replace(
                    example_call(0),
                    messages=calls.messages(call),
                    sampling=Sampling(sampling["temperature"], tokens, sampling["top_p"]),
                    key=call.key,
                    seed=int(call.key[:8], 16) >> 1,
                    question=question,
                )
            )
        questions.append(made)
    return questions


async def replay_questions(url: str, questions: Sequence[Sequence[Call]], in_flight: int) -> tuple[float, int]:
    """Make the calls of each question one after the other, with the project's client; return seconds and tokens.

    So many questions are `in_flight`.
    """
    async with default(EndpointModel, base_urls=(url,), extra_body=_EXACTLY) as model:

        async def ask(call: Call) -> int:
            return (await model.complete(call)).completion_tokens

        return await _ask_all(questions, ask, in_flight)


async def replay_at_once(url: str, model: str, calls: Sequence[Call]) -> tuple[float, int]:
    """Make all calls at the same time, with a bare HTTP client; return seconds and tokens."""
    return await post_all(url, [[orjson.dumps(body_of(call, model) | _EXACTLY)] for call in calls], len(calls))


async def post_all(url: str, questions: Sequence[Sequence[bytes]], in_flight: int) -> tuple[float, int]:
    """Post the bodies of each question one after the other, with a bare HTTP client; return seconds and tokens."""
    headers = {"Content-Type": "application/json"}
    timeout = aiohttp.ClientTimeout(None)
    async with aiohttp.ClientSession(
        connector=aiohttp.TCPConnector(limit=0), headers=headers, timeout=timeout
    ) as session:

        async def ask(body: bytes) -> int:
            async with session.post(f"{url}/chat/completions", data=body) as response:
                return int(orjson.loads(await response.read())["usage"]["completion_tokens"])

        return await _ask_all(questions, ask, in_flight)


async def _ask_all(
    questions: Sequence[Sequence[_T]], ask: Callable[[_T], Awaitable[int]], in_flight: int
) -> tuple[float, int]:
    waiting = deque(questions)

    async def take_turns() -> int:
        tokens = 0
        while waiting:
            for call in waiting.popleft():
                tokens += await ask(call)
        return tokens

    began = time.perf_counter()
    tokens = await asyncio.gather(*(take_turns() for _ in range(in_flight)))
    return time.perf_counter() - began, sum(tokens)
