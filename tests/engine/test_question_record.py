"""The budget of a question (specification §2.5)."""

from __future__ import annotations

import time
from math import inf

import pytest

from pipeline.config import default
from pipeline.engine.budget import Budget
from pipeline.engine.question_record import QuestionRecord, critical_s
from pipeline.errors import BudgetExhausted
from pipeline.traces.schema import Step


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


def steps(*times: tuple[float, float, float | None]) -> list[Step]:
    """Model calls with these starts, durations and own seconds."""
    return [Step(index, "llm", "a", start, duration, own_s=own) for index, (start, duration, own) in enumerate(times)]


@pytest.mark.parametrize(
    ("times", "seconds"),
    [
        ([], 0.0),
        ([(0, 5, 5), (5, 2, 2)], 7),
        ([(0, 5, 5), (1, 2, 2)], 5),  # at the same time
        ([(0, 1, 1), (0, 4, 4), (1, 2, 2), (4, 1, 1)], 5),
        ([(0, 9, 1), (30, 9, 2)], 3),  # the rest is time in a queue
        ([(0, 0, 2), (0.1, 0, 3)], 5),  # both replies are shared, and the model took 2 and 3 s for them
        ([(0, 1, 1), (1, 1, None)], None),
    ],
)
def test_the_critical_path_is_the_longest_sequence_of_calls(
    times: list[tuple[float, float, float | None]], seconds: float | None
) -> None:
    assert critical_s(steps(*times)) == seconds


def test_decisions_take_no_time() -> None:
    assert critical_s([Step(0, "decision", "answered", 0.0, own_s=None)]) == 0
