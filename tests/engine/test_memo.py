"""The single-flight memo of one question."""

from __future__ import annotations

import asyncio

import pytest

from pipeline.engine.memo import Memo
from pipeline.errors import ServiceError
from pipeline.llm.prompt import Completion


class Source:
    """Counts the calls that are really made."""

    def __init__(self, *, delay: float = 0.001, error: Exception | None = None) -> None:
        self.calls = 0
        self._delay = delay
        self._error = error

    async def __call__(self) -> Completion:
        self.calls += 1
        await asyncio.sleep(self._delay)
        if self._error:
            raise self._error
        return Completion(f"reply {self.calls}")


def memo(made=None, reused=None, log=None) -> Memo:
    return Memo(
        made=made or {}, reused=reused or {}, on_call=lambda key, _: log.append(key) if log is not None else None
    )


async def test_identical_calls_in_flight_happen_once() -> None:
    log: list[str] = []
    source, shared = Source(), memo(log=log)
    answers = await asyncio.gather(*(shared.get("k", source) for _ in range(5)))
    assert source.calls == 1
    assert log == ["k"]
    assert [is_shared for _, is_shared in answers] == [False, True, True, True, True]
    assert {completion.text for completion, _ in answers} == {"reply 1"}


async def test_a_finished_call_is_remembered_and_shared() -> None:
    source, shared = Source(), memo()
    await shared.get("k", source)
    assert await shared.get("k", source) == (Completion("reply 1"), True)
    assert source.calls == 1


async def test_a_call_from_the_draft_counts_once_as_this_runs_own() -> None:
    source, shared = Source(), memo(made={"k": Completion("drafted")})
    assert await shared.get("k", source) == (Completion("drafted"), False)
    assert await shared.get("k", source) == (Completion("drafted"), True)
    assert source.calls == 0


async def test_a_call_from_an_earlier_run_is_shared() -> None:
    source, shared = Source(), memo(reused={"k": Completion("earlier")})
    assert await shared.get("k", source) == (Completion("earlier"), True)
    assert source.calls == 0


async def test_an_error_reaches_every_waiter_and_is_not_remembered() -> None:
    failing, shared = Source(error=ServiceError("down")), memo()
    results = await asyncio.gather(*(shared.get("k", failing) for _ in range(3)), return_exceptions=True)
    assert [type(result) for result in results] == [ServiceError] * 3
    assert failing.calls == 1
    assert (await shared.get("k", Source()))[0].text == "reply 1"


async def test_when_the_caller_is_cancelled_a_waiter_makes_the_call_itself() -> None:
    slow, shared = Source(delay=10), memo()
    first = asyncio.create_task(shared.get("k", slow))
    await asyncio.sleep(0.01)
    source = Source()
    second = asyncio.create_task(shared.get("k", source))
    await asyncio.sleep(0.01)
    first.cancel()
    with pytest.raises(asyncio.CancelledError):
        await first
    assert await second == (Completion("reply 1"), False)
    assert source.calls == 1


async def test_a_cancelled_waiter_leaves_the_call_alone() -> None:
    source, shared = Source(delay=0.05), memo()
    first = asyncio.create_task(shared.get("k", source))
    await asyncio.sleep(0.01)
    second = asyncio.create_task(shared.get("k", source))
    await asyncio.sleep(0.01)
    second.cancel()
    assert (await first)[0].text == "reply 1"
