"""The budget of a question (specification §2.5)."""

from __future__ import annotations

import asyncio
import time
from math import inf

import pytest

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
    async def test_concurrent_parts_do_not_follow_one_another(self, rounds: int) -> None:
        record = QuestionRecord(default(Budget), inf)
        await self.step(record, 1)
        await concurrently([self.chain(record, 3, 1, rounds=rounds), self.chain(record, 1, 5, rounds=rounds)])
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

    async def test_tasks_of_a_method_of_ones_own(self) -> None:
        record = QuestionRecord(default(Budget), inf)
        await self.step(record, 1)
        await asyncio.gather(self.chain(record, 3, 1, rounds=1), self.chain(record, 1, 5, rounds=1))
        await self.step(record, 2)
        assert record.finish().critical_s == 9

    async def test_a_step_whose_time_is_not_known(self) -> None:
        record = QuestionRecord(default(Budget), inf)
        await self.chain(record, 1, None)
        assert record.finish().critical_s is None

    async def test_a_question_without_steps(self) -> None:
        record = QuestionRecord(default(Budget), inf)
        record.add_decision("answered")
        assert (record.finish().critical_s, record.critical_steps) == (0, [])
