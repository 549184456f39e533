"""Caps per question (methods.md §2.5)."""

from __future__ import annotations

import time

import pytest

from pipeline.engine.ledger import Budget, Ledger
from pipeline.errors import BudgetExhausted


def test_the_call_after_the_cap_is_refused_but_the_answering_one_is_not() -> None:
    ledger = Ledger(Budget(max_llm_calls=2))
    ledger.spend_call(last=False)
    ledger.spend_call(last=False)
    with pytest.raises(BudgetExhausted, match="max_llm_calls of 2"):
        ledger.spend_call(last=False)
    ledger.spend_call(last=True)
    assert ledger.counters.llm_calls == 3
    assert ledger.exhausted == "max_llm_calls"


def test_a_cap_is_recorded_once() -> None:
    ledger = Ledger(Budget(max_kg_queries=1))
    ledger.spend_lookup()
    for _ in range(3):
        with pytest.raises(BudgetExhausted, match="max_kg_queries"):
            ledger.spend_lookup()
    assert [step.role for step in ledger.steps] == ["cap_hit"]


def test_the_clock_is_a_cap() -> None:
    ledger = Ledger(Budget(max_wall_s=0.01))
    time.sleep(0.02)
    with pytest.raises(BudgetExhausted, match="max_wall_s"):
        ledger.spend_call(last=False)
    with pytest.raises(BudgetExhausted, match="max_wall_s"):
        ledger.spend_lookup()


def test_steps_are_numbered_in_the_order_they_began() -> None:
    ledger = Ledger(Budget())
    call = ledger.open("llm", "a")
    ledger.record("judged", verdict=True, paths=("x", "y"))
    ledger.close(call)
    assert [step.index for step in ledger.steps] == [0, 1]
    assert ledger.steps[1].payload == '{"verdict":true,"paths":["x","y"]}'
    assert call.duration_s >= 0
