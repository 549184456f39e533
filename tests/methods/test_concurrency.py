"""Concurrent parts of one question: what becomes of the others when one fails."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from pipeline import evaluate, open_run
from pipeline.errors import BudgetExhausted, OutOfTime
from pipeline.methods.concurrency import concurrently


async def fail(error: Exception) -> None:
    await asyncio.sleep(0)
    raise error


@pytest.mark.parametrize(
    ("error", "ends"),
    [(BudgetExhausted("max_llm_calls"), True), (OutOfTime("max_wall_s"), False), (ValueError(), False)],
)
async def test_only_a_limit_on_calls_or_lookups_lets_the_others_end(error: Exception, ends: bool) -> None:
    ended: list[str] = []

    async def call() -> None:
        await asyncio.sleep(0.05)
        ended.append("call")

    with pytest.raises(type(error)):
        await concurrently([call(), fail(error)])
    assert ended == ["call"] * ends


async def test_a_deadline_cancels_what_a_met_limit_waits_for() -> None:
    cancelled = asyncio.Event()

    async def hang() -> None:
        try:
            await asyncio.sleep(60)
        except asyncio.CancelledError:
            cancelled.set()
            raise

    with pytest.raises(TimeoutError):
        async with asyncio.timeout(0.1):
            await concurrently([hang(), fail(BudgetExhausted("max_llm_calls"))])
    assert cancelled.is_set()


def test_a_run_that_meets_its_limit_on_calls_can_be_replayed(tmp_path: Path) -> None:
    """The calls in flight when the limit is met have replies, which are counted and stored."""
    common = ["method=tog", "method.beam_width=5", "budget.max_llm_calls=5", "run.limit=20"]
    evaluate([*common, "llm=oracle", "llm.latency_s=0.01", f"run.dir={tmp_path}/first"])
    evaluate([*common, "llm=replay", f"llm.run={tmp_path}/first", f"run.dir={tmp_path}/again"])
    first, again = open_run(f"{tmp_path}/first"), open_run(f"{tmp_path}/again")
    assert first.calls.collect()["completion"].null_count() == 0
    assert set(again.questions.collect()["status"]) == {"ok", "budget_exhausted"}
    assert first.questions.collect()["answers"].to_list() == again.questions.collect()["answers"].to_list()
