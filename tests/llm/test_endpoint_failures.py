"""Failures of model servers: what is asked again, what is final, and which replies are no answers."""

from __future__ import annotations

import asyncio
import re
import time
from datetime import UTC, datetime, timedelta
from email.utils import format_datetime
from typing import Any

import orjson
import pytest

from pipeline.errors import RequestRefused, ServiceError
from tests.llm.support import call, model


class TestFailures:
    @pytest.mark.parametrize("status", [408, 429, 500, 502, 503])
    async def test_transient_errors_are_retried(self, server: Any, status: int) -> None:
        server.behaviours = [server.fail(status), server.fail(status)]
        async with model(server) as llm:
            assert (await llm.complete(call())).text == "hello"
        assert len(server.bodies) == 3

    async def test_an_overload_is_said_once_and_an_account_without_credit_is_not_asked_again(
        self, server: Any, caplog: Any
    ) -> None:
        server.behaviours = [server.fail(429, "slow down")] * 3
        async with model(server) as llm:
            assert (await llm.complete(call())).text == "hello"
            said = f"model server {server.url} asks for its requests later: it answered 429: slow down"
            assert caplog.text.count(said) == 1
            server.default = server.fail(429, "insufficient_quota: you exceeded your quota")
            with pytest.raises(ServiceError, match="answered 429: insufficient_quota"):
                await llm.complete(call("again"))
        assert len(server.bodies) == 5

    @pytest.mark.parametrize(("status", "message"), [(401, "wrong key"), (402, "pay"), (429, "insufficient_quota")])
    async def test_calls_wait_for_a_server_that_has_begun_to_refuse_all(
        self, server: Any, status: int, message: str
    ) -> None:
        async with model(server, max_retries=8, backoff_s=0.1, breaker_failures=2, breaker_reset_s=0.2) as llm:
            await llm.complete(call("first"))
            server.default = server.fail(status, message)
            for number in range(2):
                with pytest.raises(RequestRefused, match=message):
                    await llm.complete(call(str(number)))
            asked = len(server.bodies)
            later = asyncio.create_task(llm.complete(call("later")))
            await asyncio.sleep(0.05)
            assert (later.done(), len(server.bodies)) == (False, asked), "the server is set aside"
            server.default = server.say("hello")
            assert (await later).text == "hello"

    async def test_lost_connections_and_timeouts_are_retried(self, server: Any) -> None:
        server.behaviours = [server.hang_up, server.hang]
        async with model(server, timeout_s=1.0) as llm:
            assert (await llm.complete(call())).text == "hello"
        assert len(server.bodies) == 3

    async def test_retries_are_limited_and_the_error_has_the_last_failure(self, server: Any) -> None:
        server.default = server.fail(500, "out of memory")
        async with model(server, max_retries=2) as llm:
            with pytest.raises(ServiceError, match=r"tried 3 times\); last failure: .* answered 500: out of memory"):
                await llm.complete(call())
        assert len(server.bodies) == 3

    @pytest.mark.parametrize(
        ("body", "cause"),
        [
            (b'{"choices": []}', "the server wrote no text, perhaps because a filter removed it"),
            (
                b"<!DOCTYPE html><title>Sign in</title>",
                "it is a web page, so a proxy or a page for signing in may stand",
            ),
        ],
    )
    async def test_a_server_with_the_same_unusable_reply_is_asked_three_times(
        self, server: Any, body: bytes, cause: str
    ) -> None:
        server.default = server.answer_with(body)
        async with model(server, max_retries=8) as llm:
            with pytest.raises(ServiceError, match=rf"tried 3 times\); .*{cause}"):
                await llm.complete(call())
        assert len(server.bodies) == 3

    async def test_a_choice_with_an_error_is_asked_for_again(self, server: Any) -> None:
        server.behaviours = [server.say("half of it", error={"message": "the model was lost"})] * 5
        async with model(server, max_retries=8, breaker_failures=99) as llm:
            assert (await llm.complete(call())).text == "hello"

    async def test_a_limit_of_tokens_that_is_ignored_is_said_once(self, server: Any, caplog: Any) -> None:
        server.default = server.say("hello", usage={"completion_tokens": 2000})
        async with model(server) as llm:
            await llm.complete(call())
            await llm.complete(call())
        assert caplog.text.count("has 2,000 tokens, and") == 1

    async def test_a_cut_reply_of_a_model_whose_prompts_begin_its_reasoning_has_no_text(self, server: Any) -> None:
        cut = server.say("Perhaps it is {Bob}, but", finish_reason="length")
        server.behaviours = [server.say("Who was it? Ada.</think>{Ada}"), cut, server.say("{Ada}")]
        async with model(server) as llm:
            assert [(await llm.complete(call())).text for _ in range(3)] == ["{Ada}", "", "{Ada}"]

    @pytest.mark.parametrize(
        ("reason", "tokens", "stored"),
        [
            (None, 16, "length"),
            (None, 15, "stop"),
            ("stop", 16, "stop"),
            (None, 0, "stop"),
        ],
    )
    async def test_a_full_reply_without_a_reason_was_cut(
        self, server: Any, reason: str | None, tokens: int, stored: str
    ) -> None:
        server.default = server.say("hel", finish_reason=reason, usage={"completion_tokens": tokens})
        async with model(server, max_new_tokens=16) as llm:
            assert (await llm.complete(call())).finish_reason == stored

    async def test_a_reply_that_only_mentions_the_end_of_reasoning_changes_no_later_one(self, server: Any) -> None:
        cut = server.say("{Bob}, {Car", finish_reason="length")
        said = [server.say("Let me see.\n<think>hm</think>{Ada}"), server.say("The tag </think> ends it"), cut]
        server.behaviours = [said[0], cut, said[1], server.say("{Ada}"), cut]
        async with model(server) as llm:
            texts = [(await llm.complete(call())).text for _ in range(5)]
        assert (texts[1], texts[4]) == ("{Bob}, {Car", "{Bob}, {Car")

    async def test_a_full_reply_without_a_reason_is_cut_in_its_reasoning(self, server: Any) -> None:
        full = server.say("Perhaps {Bob}", finish_reason=None, usage={"completion_tokens": 16})
        server.behaviours = [server.say("Who was it? Ada.</think>{Ada}"), full, full]
        async with model(server, max_new_tokens=16) as llm:
            assert [(await llm.complete(call())).text for _ in range(3)] == ["{Ada}", "", ""]

    async def test_a_reply_that_a_filter_cut_in_its_reasoning_has_no_text(self, server: Any) -> None:
        filtered = server.say("Perhaps it is {Bob}", finish_reason="content_filter")
        server.behaviours = [server.say("Who was it? Ada.</think>{Ada}"), filtered]
        async with model(server) as llm:
            assert [(await llm.complete(call())).text for _ in range(2)] == ["{Ada}", ""]

    @pytest.mark.parametrize(
        ("body", "tokens", "stored"),
        [
            ({"max_tokens": None}, 3000, "stop"),
            ({"max_completion_tokens": 4096}, 3000, "stop"),
            ({"max_completion_tokens": 8}, 8, "length"),
        ],
    )
    async def test_the_limit_is_that_of_the_request(
        self, server: Any, caplog: Any, body: dict[str, Any], tokens: int, stored: str
    ) -> None:
        server.default = server.say("hel", finish_reason=None, usage={"completion_tokens": tokens})
        async with model(server, extra_body=body) as llm:
            assert (await llm.complete(call())).finish_reason == stored
        assert "ignore the limit" not in caplog.text

    async def test_a_reply_that_a_filter_has_cut_is_said(self, server: Any, caplog: Any) -> None:
        server.default = server.say("hel", finish_reason="content_filter")
        async with model(server) as llm:
            assert (await llm.complete(call())).text == "hel"
        assert "a filter of the server has cut a reply of llama" in caplog.text

    @pytest.mark.parametrize("passing", [b'{"error": {"message": "overloaded"}}', b'{"choices": null}', b"{"])
    async def test_another_unusable_reply_may_be_the_last_one(self, server: Any, passing: bytes) -> None:
        other = [server.answer_with(b'{"choices": []}')] * 2
        overloaded = [server.answer_with(b'{"error": {"message": "overloaded"}}')] * 3
        server.behaviours = [*other, *overloaded, server.answer_with(passing)]
        async with model(server, max_retries=8, breaker_failures=99) as llm:
            assert (await llm.complete(call())).text == "hello"
        assert len(server.bodies) == 7

    async def test_the_only_server_gets_the_pause_that_it_asks_for(self, server: Any, pauses: list[float]) -> None:
        server.behaviours = [server.fail(429, "slow down", Retry_After="0.3")]
        async with model(server) as llm:
            began = time.perf_counter()
            completion = await llm.complete(call())
        assert completion.text == "hello"
        assert max(pauses) == pytest.approx(0.3, abs=0.1)
        assert 0 < completion.seconds < time.perf_counter() - began - 0.9 * max(pauses), (
            "its own time has no pause in it"
        )

    @pytest.mark.parametrize("as_date", [False, True])
    async def test_a_longer_pause_than_the_longest_one_is_cut(
        self, server: Any, pauses: list[float], as_date: bool, caplog: Any
    ) -> None:
        when = format_datetime(datetime.now(UTC) + timedelta(days=1), usegmt=True) if as_date else "86400"
        server.behaviours = [server.fail(503, "slow down", Retry_After=when)]
        async with model(server, max_backoff_s=0.2) as llm:
            assert (await llm.complete(call())).text == "hello"
        assert max(pauses) <= 0.2
        said = rf"{server.url} asks for no requests for (86,400|86,399) s \(Retry-After\): it gets none for 0.2 s"
        assert re.search(said, caplog.text)

    async def test_a_pause_of_one_server_does_not_stop_the_others(
        self, servers: list[Any], pauses: list[float], caplog: Any
    ) -> None:
        resting, other, _ = servers
        resting.default = resting.fail(429, "come back tomorrow", Retry_After="86400")
        async with model(resting, other, max_retries=0) as llm:
            first = await asyncio.gather(*(llm.complete(call(str(number))) for number in range(40)))
            asked = len(resting.bodies)
            then = [await llm.complete(call(f"then {number}")) for number in range(40)]
        assert {completion.text for completion in (*first, *then)} == {"hello"}
        assert len(resting.bodies) == asked
        assert not pauses
        assert caplog.text.count("asks for no requests") == 1

    async def test_failover_is_immediate_and_loses_no_call(self, servers: list[Any]) -> None:
        broken, *_ = servers
        broken.default = broken.hang_up
        async with model(*servers, backoff_s=60.0) as llm:
            completions = await asyncio.gather(*(llm.complete(call(str(number))) for number in range(60)))
        assert [completion.text for completion in completions] == ["hello"] * 60

    async def test_an_unhealthy_server_gets_no_requests(self, servers: list[Any]) -> None:
        broken, *_ = servers
        broken.default = broken.fail(500)
        async with model(*servers, breaker_failures=3) as llm:
            for number in range(60):
                await llm.complete(call(str(number)))
        assert len(broken.bodies) == 3

    async def test_an_unhealthy_server_gets_one_trial_request_and_is_then_used_again(self, servers: list[Any]) -> None:
        broken, other, _ = servers
        broken.default = broken.fail(500)
        async with model(broken, other, breaker_failures=2, breaker_reset_s=0.2) as llm:
            for number in range(20):
                await llm.complete(call(str(number)))
            released = asyncio.Event()
            broken.default = broken.hold(released)
            other.default = other.hold(released)
            broken.bodies.clear()
            other.bodies.clear()
            await asyncio.sleep(0.25)
            calls = [asyncio.create_task(llm.complete(call(str(number)))) for number in range(10)]
            await other.asked(9)
            assert len(broken.bodies) == 1
            released.set()
            await asyncio.gather(*calls)
            await asyncio.gather(*(llm.complete(call(str(number))) for number in range(40)))
        assert len(broken.bodies) > 10

    @pytest.mark.parametrize("status", [401, 403, 404])
    async def test_servers_that_have_refused_every_call_are_not_waited_for(
        self, servers: list[Any], status: int
    ) -> None:
        for number, each in enumerate(servers):
            each.default = each.fail(status, f"no entry {number}")
        async with asyncio.timeout(20), model(*servers, breaker_failures=2, backoff_s=60.0) as llm:
            for number in range(10):
                with pytest.raises(RequestRefused, match=rf"tried 1 time.*answered {status}: no entry"):
                    await llm.complete(call(str(number)))
        assert [len(each.bodies) for each in servers] == [2] * len(servers)

    async def test_a_server_that_has_answered_before_is_waited_for_when_it_refuses_calls(self, server: Any) -> None:
        async with model(server, max_retries=8, backoff_s=0.05, breaker_failures=2, breaker_reset_s=0.1) as llm:
            await llm.complete(call())
            server.behaviours = [server.fail(401)] * 3
            for number in range(2):
                with pytest.raises(RequestRefused):
                    await llm.complete(call(str(number)))
            with pytest.raises(RequestRefused):  # the trial
                await llm.complete(call("then"))
            assert (await llm.complete(call("at last"))).text == "hello"

    async def test_a_server_that_answers_as_another_model_is_named_once(self, server: Any, caplog: Any) -> None:
        def reply(name: object) -> bytes:
            return orjson.dumps({"model": name, "choices": [{"message": {"content": "hello"}}]})

        server.behaviours = [server.answer_with(reply(name)) for name in ("one", "one", "other", "other", 7, "one")]
        async with model(server) as llm:
            for number in range(6):
                await llm.complete(call(str(number)))
        said = f"model server {server.url} now answers as the model other, and has answered as one: the run has replies"
        assert [message for message in caplog.messages if "answers as" in message] == [f"{said} of both"]

    async def test_two_servers_that_answer_as_different_models_are_named(
        self, servers: list[Any], caplog: pytest.LogCaptureFixture
    ) -> None:
        for number, each in enumerate(servers):
            reply = {"model": f"model {number}", "choices": [{"message": {"content": "hello"}}]}
            each.default = each.answer_with(orjson.dumps(reply))
        async with model(*servers) as llm:
            await asyncio.gather(*(llm.complete(call(str(number))) for number in range(8)))
        (said,) = [message for message in caplog.messages if "now answers as the model" in message]
        assert "has answered as model" in said
        assert sum(each.url in said for each in servers) == 2

    async def test_survives_a_restart_of_the_only_server(self, server: Any) -> None:
        async with model(server, max_retries=8, backoff_s=0.05, breaker_reset_s=0.1) as llm:
            await llm.complete(call())
            await server.stop()
            calls = [asyncio.create_task(llm.complete(call(str(number)))) for number in range(20)]
            await asyncio.sleep(0.3)
            await server.start()
            assert {completion.text for completion in await asyncio.gather(*calls)} == {"hello"}

    async def test_a_cancelled_call_is_no_longer_outstanding(self, servers: list[Any]) -> None:
        first, second, _ = servers
        first.default = first.hang
        second.default = second.hang
        async with model(first, second) as llm:
            calls = [asyncio.create_task(llm.complete(call(str(number)))) for number in range(20)]
            await asyncio.sleep(0.1)
            for task in calls:
                task.cancel()
            await asyncio.gather(*calls, return_exceptions=True)
            assert [server.outstanding for server in llm._client.servers] == [0, 0]
