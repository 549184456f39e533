"""One question: gold affects its scores, and nothing that the method does."""

from __future__ import annotations

import asyncio
import re
from collections.abc import Mapping
from contextlib import closing, suppress
from dataclasses import dataclass, replace
from typing import Any, Self

import pytest

from pipeline.config import default
from pipeline.engine.budget import Budget
from pipeline.engine.call_cache import CallCache
from pipeline.engine.question import ConfigurationRuntime, run_question
from pipeline.evaluation.config import ScoringConfig
from pipeline.kg.embedded import EmbeddedGraph
from pipeline.llm.interface import OneModel
from pipeline.llm.prompt import Call, Completion
from pipeline.methods.parog import PARoG
from pipeline.methods.r3 import R3
from pipeline.retrieval.lexical import LexicalEncoder
from pipeline.retrieval.search import Search
from pipeline.simulation.world import SyntheticWorld
from pipeline.traces.schema import TraceRow
from pipeline.types import Answer, Example, Gold, GoldAnswer, Prediction

REPLIES = {
    "parog.plan": "Hm.",
    "parog.tentative": '{"answers": ["Ann"]}',
    "parog.relations": "{}",
    "parog.aggregate": '{"answers": ["Ann"]}',
    "r3.thought": "I am done.",
    "r3.action": "Finish[Ann]",
    "r3.verify": '{"verdict": "reject"}',
    "r3.reflect": '{"root_cause": "It was a guess.", "retry": true}',
}


@dataclass
class FixedReplies(OneModel):
    """A model with one reply per role."""

    replies: Mapping[str, str]
    identity: str = "fixed"
    label: str | None = None

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *exc: object) -> None:
        pass

    def for_question(self, example: Example, kg: object) -> Self:
        return self

    async def complete(self, call: Call) -> Completion:
        return Completion(self.replies[call.prompt.role])

    async def choose(self, call: Call) -> Completion:
        raise NotImplementedError


async def run(method: Any, gold: str, **budget: float) -> TraceRow:
    world = default(SyntheticWorld, triples=2000, questions=8)
    example = replace(next(iter(world.examples(pytest.fail))), gold=Gold((GoldAnswer(gold),)))
    async with default(EmbeddedGraph, dataset=world) as graph:
        runtime = ConfigurationRuntime(
            configurations=[(0, method.name)],
            method=method,
            model=FixedReplies(REPLIES),
            graph=graph,
            retrieval=default(Search, encoder=LexicalEncoder()),
            evaluation=default(ScoringConfig),
            budget=default(Budget, **budget),
            seed=0,
        )
        return await run_question(
            example,
            runtime,
            CallCache(made_in_this_run={}, from_earlier_runs={}),
            lambda *_: None,
        )


@pytest.mark.parametrize("method", [default(PARoG, initial_answer=True), default(R3)], ids=lambda method: method.name)
async def test_gold_affects_the_scores_of_initial_and_final_answers_and_nothing_else(method: Any) -> None:
    right, wrong = await run(method, "Ann"), await run(method, "Zoe")
    assert right.answer == wrong.answer
    assert right.answer.initial == (Prediction("Ann"),)
    assert [(step.role, step.inputs, step.payload) for step in right.steps] == [
        (step.role, step.inputs, step.payload) for step in wrong.steps
    ]
    assert (right.scores.initial_hits_at_1, wrong.scores.initial_hits_at_1) == (1, 0)
    assert right.scores.damaged == 0
    assert wrong.scores.corrected == 0


@dataclass
class ReturnsNothing:
    """A method with a bug."""

    name: str = "bug"

    async def answer(self, question: object, tools: object) -> None:
        pass


@dataclass
class WaitsAfterAFailure:
    """A method that never answers, after a task group of it has failed."""

    name: str = "waits"

    async def answer(self, question: object, tools: object) -> Answer:
        async def fail() -> None:
            await asyncio.sleep(0)
            raise ValueError("a part failed")

        with suppress(ExceptionGroup):
            async with asyncio.TaskGroup() as group:
                group.create_task(fail())
                group.create_task(asyncio.sleep(60))
        await asyncio.Event().wait()
        raise AssertionError("nobody sets this event")


@dataclass
class NotAsync:
    """Another one."""

    name: str = "bug"

    def answer(self, question: object, tools: object) -> Answer:
        return Answer()


@dataclass
class ForgetsToAwait:
    """A third one."""

    name: str = "bug"

    async def answer(self, question: object, tools: Any) -> Answer:
        paths = asyncio.sleep(0)
        with closing(paths):
            return Answer(paths.text)  # type: ignore[attr-defined]


@pytest.mark.parametrize(
    ("method", "error"),
    [
        (
            ForgetsToAwait(),
            "AttributeError: 'coroutine' object has no attribute 'text' (is an await missing before a call of the "
            "tools?) (test_question.py:LINE)",
        ),
        (ReturnsNothing(), "TypeError: answer() must return a pipeline.Answer, not NoneType"),
        (NotAsync(), "TypeError: the method must write `async def answer`"),
    ],
)
async def test_a_method_that_returns_no_answer_fails_one_question(method: Any, error: str) -> None:
    row = await run(method, "Ann")
    assert (row.answer, re.sub(r":\d+\)$", ":LINE)", row.error or "")) == (Answer(status="failed"), error)


async def test_a_deadline_fails_a_question_after_a_task_group_of_its_method_has_failed() -> None:
    row = await run(WaitsAfterAFailure(), "Ann", max_wall_s=0.02, grace_s=0.01)
    assert (row.answer.status, row.error) == (
        "failed",
        "TimeoutError: no answer within 0.03 s (raise budget.max_wall_s, here 0.02 s and budget.grace_s, 0.01 s)",
    )
