"""The single-flight cache of one question."""

from __future__ import annotations

import asyncio

import pytest

from pipeline.engine.call_cache import CallCache
from pipeline.errors import ServiceError
from pipeline.llm.prompt import Completion


class Source:
    """Counts the calls that are made."""

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


def new_cache(made=None, reused=None, log=None) -> CallCache:
    async def note(key: str, _: Completion) -> None:
        if log is not None:
            log.append(key)

    return CallCache(made_in_this_run=made or {}, from_earlier_runs=reused or {}, on_call=note)


async def test_identical_calls_in_flight_happen_once() -> None:
    log: list[str] = []
    source, cache = Source(), new_cache(log=log)
    answers = await asyncio.gather(*(cache.get("k", source) for _ in range(5)))
    assert source.calls == 1
    assert log == ["k"]
    assert [is_shared for _, is_shared in answers] == [False, True, True, True, True]
    assert {completion.text for completion, _ in answers} == {"reply 1"}


async def test_a_finished_call_is_cached_and_shared() -> None:
    source, cache = Source(), new_cache()
    await cache.get("k", source)
    assert await cache.get("k", source) == (Completion("reply 1"), True)
    assert source.calls == 1


async def test_a_question_is_replayed_as_long_as_the_journal_has_all_of_its_calls() -> None:
    cache = new_cache(made={"k": Completion("in the journal")})
    await cache.get("k", Source())
    assert cache.is_replayed
    await cache.get("l", Source())
    assert not cache.is_replayed
    assert not new_cache(reused={"k": Completion("of another run")}).is_replayed


async def test_a_call_from_the_journal_counts_once_as_this_runs_own() -> None:
    source, cache = Source(), new_cache(made={"k": Completion("in the journal")})
    assert await cache.get("k", source) == (Completion("in the journal"), False)
    assert await cache.get("k", source) == (Completion("in the journal"), True)
    assert source.calls == 0


async def test_a_call_from_an_earlier_run_is_shared() -> None:
    source, cache = Source(), new_cache(reused={"k": Completion("earlier")})
    assert await cache.get("k", source) == (Completion("earlier"), True)
    assert source.calls == 0


async def test_an_error_reaches_every_waiter_and_is_not_cached() -> None:
    failing, cache = Source(error=ServiceError("down")), new_cache()
    results = await asyncio.gather(*(cache.get("k", failing) for _ in range(3)), return_exceptions=True)
    assert [type(result) for result in results] == [ServiceError] * 3
    assert failing.calls == 1
    assert (await cache.get("k", Source()))[0].text == "reply 1"


async def test_when_the_caller_is_cancelled_a_waiter_makes_the_call_itself() -> None:
    slow, cache = Source(delay=10), new_cache()
    first = asyncio.create_task(cache.get("k", slow))
    await asyncio.sleep(0.01)
    source = Source()
    second = asyncio.create_task(cache.get("k", source))
    await asyncio.sleep(0.01)
    first.cancel()
    with pytest.raises(asyncio.CancelledError):
        await first
    assert await second == (Completion("reply 1"), False)
    assert source.calls == 1


async def test_a_cancelled_waiter_does_not_cancel_the_call() -> None:
    source, cache = Source(delay=0.05), new_cache()
    first = asyncio.create_task(cache.get("k", source))
    await asyncio.sleep(0.01)
    second = asyncio.create_task(cache.get("k", source))
    await asyncio.sleep(0.01)
    second.cancel()
    assert (await first)[0].text == "reply 1"


async def test_a_completion_says_how_long_the_model_took() -> None:
    cache = new_cache()
    made, _ = await cache.get("k", Source())
    shared, _ = await cache.get("k", Source())
    assert made.seconds is not None
    assert made.seconds > 0
    assert shared.seconds == made.seconds


async def test_the_time_that_a_model_states_is_kept() -> None:
    async def call() -> Completion:
        await asyncio.sleep(0.01)
        return Completion("", seconds=7.0)

    completion, _ = await new_cache().get("k", call)
    assert completion.seconds == 7
