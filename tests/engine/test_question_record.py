"""The budget of a question (specification §2.5)."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Callable
from math import inf
from typing import Any

import pytest

from pipeline.branches import tasks_as_parts
from pipeline.config import default
from pipeline.engine.budget import Budget
from pipeline.engine.question_record import QuestionRecord
from pipeline.errors import BudgetExhausted
from pipeline.methods.concurrency import concurrently


def test_the_call_after_the_cap_is_refused_except_the_answering_one() -> None:
    record = QuestionRecord(default(Budget), 2)
    record.spend_call(last=False)
    record.spend_call(last=False)
    with pytest.raises(BudgetExhausted, match="max_llm_calls of 2"):
        record.spend_call(last=False)
    record.spend_call(last=True)
    assert record.counters.llm_calls == 3
    assert record.exhausted == "max_llm_calls"


def test_a_cap_is_recorded_once() -> None:
    record = QuestionRecord(default(Budget, max_kg_queries=1), inf)
    record.spend_lookup()
    for _ in range(3):
        with pytest.raises(BudgetExhausted, match="max_kg_queries"):
            record.spend_lookup()
    assert [step.role for step in record.steps] == ["cap_hit"]


def test_time_is_capped() -> None:
    record = QuestionRecord(default(Budget, max_wall_s=0.01), inf)
    time.sleep(0.02)
    with pytest.raises(BudgetExhausted, match="max_wall_s"):
        record.spend_call(last=False)
    with pytest.raises(BudgetExhausted, match="max_wall_s"):
        record.spend_lookup()


def test_steps_are_numbered_in_the_order_in_which_they_start() -> None:
    record = QuestionRecord(default(Budget), inf)
    call = record.open("llm", "a")
    record.add_decision("judged", verdict=True, paths=("x", "y"))
    record.close(call)
    assert [step.index for step in record.steps] == [0, 1]
    assert record.steps[1].payload == '{"verdict":true,"paths":["x","y"]}'
    assert call.duration_s >= 0


@pytest.mark.parametrize(
    ("value", "said"),
    [
        ({"a", "b"}, "set has no form in JSON, sort it into a list"),
        (object(), "object has no form in JSON"),
        ({1: "a"}, "Dict key must be str"),
    ],
)
def test_a_payload_that_does_not_fit_into_json_is_refused(value: object, said: str) -> None:
    with pytest.raises(TypeError, match=f"^a trace holds only what JSON can hold: {said}$"):
        QuestionRecord(default(Budget), inf).add_decision("judged", found=value)


class TestCriticalSteps:
    """Which steps follow one another is said by tasks and not by the clock: a stored reply takes no time."""

    @pytest.fixture(autouse=True)
    async def tasks(self) -> AsyncIterator[None]:
        with tasks_as_parts():
            yield

    @staticmethod
    async def step(record: QuestionRecord, own_s: float | None, *, rounds: int = 0) -> None:
        """Make a call, which the model took `own_s` for, and which ends after `rounds` of the event loop."""
        step = record.open("llm", "a")
        for _ in range(rounds):
            await asyncio.sleep(0)
        record.close(step)
        step.own_s = own_s

    async def chain(self, record: QuestionRecord, *seconds: float | None, rounds: int = 0) -> None:
        for own_s in seconds:
            await self.step(record, own_s, rounds=rounds)

    @pytest.mark.parametrize("rounds", [0, 2])
    @pytest.mark.parametrize("together", [concurrently, lambda parts: asyncio.gather(*parts)])
    async def test_concurrent_parts_do_not_follow_one_another(self, together: Callable[..., Any], rounds: int) -> None:
        record = QuestionRecord(default(Budget), inf)
        await self.step(record, 1)
        await together([self.chain(record, 3, 1, rounds=rounds), self.chain(record, 1, 5, rounds=rounds)])
        record.add_decision("judged")
        await self.step(record, 2)
        assert record.finish().critical_s == 1 + 1 + 5 + 2
        assert [record.steps[index].own_s for index in record.critical_steps] == [1, 1, 5, 2]

    async def test_a_part_follows_all_parts_that_were_awaited_before_it(self) -> None:
        record = QuestionRecord(default(Budget), inf)
        for _ in range(2):
            await concurrently([self.chain(record, 1), self.chain(record, 2)])
        assert record.finish().critical_s == 4

    async def test_parts_of_a_part_without_steps_of_its_own(self) -> None:
        record = QuestionRecord(default(Budget), inf)

        async def part(*seconds: float) -> None:
            await concurrently([self.chain(record, each) for each in seconds])
            await self.step(record, 1)

        await concurrently([part(1, 2), part(5, 3)])
        assert record.finish().critical_s == 6

    @pytest.mark.parametrize("rounds", [0, 2])
    async def test_a_task_that_is_awaited_later_runs_beside_the_steps_before(self, rounds: int) -> None:
        record = QuestionRecord(default(Budget), inf)
        task = asyncio.create_task(self.chain(record, 3, rounds=rounds))
        await self.step(record, 2, rounds=rounds)
        await task
        await self.step(record, 1)
        assert record.finish().critical_s == 4

    async def test_a_task_that_an_ended_part_has_started(self) -> None:
        record = QuestionRecord(default(Budget), inf)
        started: list[asyncio.Task[None]] = []

        async def part() -> None:
            await self.step(record, 1)
            started.append(asyncio.create_task(self.chain(record, 10, rounds=9)))

        await concurrently([part()])
        await self.step(record, 1)
        await started[0]
        await self.step(record, 1)
        assert record.finish().critical_s == 12

    async def test_steps_of_a_task_of_another_question_are_of_the_first_part(self) -> None:
        """As of one task that makes the calls of all questions."""
        asked: asyncio.Queue[QuestionRecord] = asyncio.Queue()

        async def work() -> None:
            while True:
                await self.step(await asked.get(), 1)
                asked.task_done()

        async def question() -> float | None:
            record = QuestionRecord(default(Budget), inf)
            workers.append(asyncio.create_task(work()))
            for _ in range(2):
                await asked.put(record)
                await asked.join()
            return record.finish().critical_s

        workers: list[asyncio.Task[None]] = []
        first = await asyncio.create_task(question())
        assert (first, await asyncio.create_task(question())) == (2, 2)
        for worker in workers:
            worker.cancel()

    @pytest.mark.parametrize("error", [ValueError("a part failed"), asyncio.CancelledError()])
    async def test_a_part_that_fails_is_followed_too(self, error: BaseException) -> None:
        record = QuestionRecord(default(Budget), inf)

        async def fail() -> None:
            await self.step(record, 3)
            raise error

        with pytest.raises(type(error)):
            await concurrently([fail(), self.chain(record, 1)])
        await self.step(record, 2)
        assert record.finish().critical_s == 5

    async def test_many_parts_take_little_time(self) -> None:
        record = QuestionRecord(default(Budget), inf)
        for _ in range(3000):
            await asyncio.create_task(self.chain(record, 1))
        await concurrently([self.chain(record, 1) for _ in range(3000)])
        assert record.finish().critical_s == 3001
        assert sum(map(len, record.follows.values())) < 10_000

    async def test_a_step_whose_time_is_not_known(self) -> None:
        record = QuestionRecord(default(Budget), inf)
        await self.chain(record, 1, None)
        assert record.finish().critical_s is None

    async def test_a_question_without_steps(self) -> None:
        record = QuestionRecord(default(Budget), inf)
        record.add_decision("answered")
        assert (record.finish().critical_s, record.critical_steps) == (0, [])

    async def test_a_selection_comes_after_the_last_step_of_its_own_part(self) -> None:
        record, went_on = QuestionRecord(default(Budget), inf), asyncio.Event()

        async def select() -> None:
            await self.step(record, 1)
            await went_on.wait()
            record.add_decision("kept", nodes=())

        async def go_on() -> None:
            await self.chain(record, 1, 1, 1)
            went_on.set()

        await asyncio.gather(select(), go_on())
        record.add_decision("kept", nodes=())
        record.add_decision("judged")
        record.add_decision("kept", nodes=())
        assert [step.role for step in record.steps] == ["a", "a", "a", "a", "judged"]
        assert [event.step for event in record.trail.events] == [0, 3, 4]
