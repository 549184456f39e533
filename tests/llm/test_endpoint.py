"""A served model: requests, replies, and failing servers."""

from __future__ import annotations

import asyncio
import math
import pickle
import re
import time
from collections.abc import Mapping
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from email.utils import format_datetime
from types import SimpleNamespace
from typing import Any

import orjson
import pytest

from pipeline.config import default
from pipeline.errors import ContextOverflow, RequestRefused, ServiceError, UserError
from pipeline.llm.endpoint import EndpointModel, estimate_choices
from pipeline.llm.prompt import Call, Message, Sampling
from pipeline.llm.serve import ServedModel
from tests.llm.support import GREEDY, call, model
from tests.support import until


@pytest.fixture
def pauses(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    """The seconds of every pause between two rounds."""
    noted: list[float] = []
    sleep = asyncio.sleep

    async def note(seconds: float) -> None:
        noted.append(seconds)
        await sleep(seconds)

    monkeypatch.setattr("pipeline.net.replicated_client.asyncio", SimpleNamespace(**{**vars(asyncio), "sleep": note}))
    return noted


class TestConversation:
    async def test_the_request_has_all_sampling_parameters(self, server: Any) -> None:
        sampling = Sampling(temperature=0.3, max_tokens=50, top_p=0.9, stop=("\n", "END"))
        async with model(server, extra_body={"top_k": 20}) as llm:
            await llm.complete(call("Who wrote it?", sampling, seed=123))
        assert server.bodies == [
            {
                "model": "llama",
                "messages": [
                    {"role": "system", "content": "Answer briefly."},
                    {"role": "user", "content": "Who wrote it?"},
                ],
                "temperature": 0.3,
                "top_p": 0.9,
                "max_tokens": 50,
                "stop": ["\n", "END"],
                "seed": 123,
                "top_k": 20,
            }
        ]

    @pytest.mark.parametrize(("cap", "sent"), [(None, 50), (20, 20), (80, 50)])
    async def test_a_cap_on_tokens_holds_besides_the_limit_of_the_method(
        self, server: Any, cap: int | None, sent: int
    ) -> None:
        async with model(server, max_new_tokens=cap) as llm:
            await llm.complete(call(sampling=Sampling(max_tokens=50)))
            assert llm.identity == ("llama" if cap is None else f"llama-max{cap}"), "it is part of the key of a call"
        assert server.bodies[0]["max_tokens"] == sent

    async def test_reads_text_finish_reason_and_usage(self, server: Any) -> None:
        server.default = server.say("Ada", finish_reason="length")
        async with model(server) as llm:
            completion = await llm.complete(call())
        assert (completion.text, completion.finish_reason) == ("Ada", "length")
        assert (completion.prompt_tokens, completion.completion_tokens) == (12, 3)
        assert completion.logprobs is None

    @pytest.mark.parametrize(
        "ignored", [None, {"content": None}, {"content": []}, {"content": [{"token": "b", "logprob": -0.1}]}]
    )
    async def test_logprobs_that_the_server_leaves_out_are_not_known(self, server: Any, ignored: object) -> None:
        server.default = server.say("b", logprobs=ignored)
        async with model(server) as llm:
            assert (await llm.complete(call(sampling=Sampling(logprobs=2)))).logprobs is None

    @pytest.mark.parametrize(
        ("sent", "read"),
        [("length", "length"), ("MAX_TOKENS", "length"), ("model_length", "length"), ("stop", "stop"), (None, "stop")],
    )
    async def test_servers_have_several_words_for_a_cut_reply(self, server: Any, sent: str | None, read: str) -> None:
        server.default = server.say("b", finish_reason=sent)
        async with model(server) as llm:
            assert (await llm.complete(call())).finish_reason == read

    async def test_reads_logprobs_with_the_generated_token_first(self, server: Any) -> None:
        position = {
            "token": "b",
            "logprob": -1.0,
            "top_logprobs": [{"token": "a", "logprob": -0.5}, {"token": "b", "logprob": -1.0}],
        }
        server.default = server.say("b", logprobs={"content": [position]})
        async with model(server) as llm:
            completion = await llm.complete(call(sampling=Sampling(logprobs=2)))
        assert server.bodies[0]["logprobs"] is True
        assert server.bodies[0]["top_logprobs"] == 2
        assert [list(logprobs.items()) for logprobs in completion.logprobs or ()] == [[("b", -1.0), ("a", -0.5)]]

    async def test_continues_an_unfinished_assistant_message(self, server: Any) -> None:
        started = call()
        messages = (*started.messages, Message("assistant", "[Retrieve Relation]"))
        async with model(server) as llm:
            await llm.complete(Call(started.prompt, messages, GREEDY, key="k", seed=1))
            await llm.complete(started)
        assert server.bodies[0]["continue_final_message"] is True
        assert server.bodies[0]["add_generation_prompt"] is False
        assert "continue_final_message" not in server.bodies[1]

    async def test_a_reply_without_content_is_an_empty_text(self, server: Any) -> None:
        server.default = server.say(None)
        async with model(server) as llm:
            assert (await llm.complete(call())).text == ""


class TestRefusals:
    @pytest.mark.parametrize(
        ("status", "message"),
        [
            (400, "This model's maximum context length is 2048 tokens. However, you requested 2500 tokens."),
            (400, "Input length (5000) exceeds model's maximum context length (4096)."),
            (400, "The decoder prompt (length 5000) is longer than the maximum model length of 4096."),
            (400, "The input (5000 tokens) is longer than the model's context length (4096 tokens)."),
            (400, "the request exceeds the available context size, try increasing it"),
            (413, "Prompt is too long"),
        ],
    )
    async def test_a_prompt_that_does_not_fit_is_a_context_overflow(
        self, server: Any, status: int, message: str
    ) -> None:
        server.default = server.fail(status, message)
        async with model(server) as llm:
            with pytest.raises(ContextOverflow, match=f"answered {status}"):
                await llm.complete(call())
        assert len(server.bodies) == 1

    async def test_another_refusal_is_final_and_quotes_the_server(self, server: Any) -> None:
        server.default = server.fail(400, "top_p must be in (0, 1]")
        async with model(server) as llm:
            with pytest.raises(ServiceError, match=r"top_p must be in \(0, 1\]") as caught:
                await llm.complete(call())
        assert not isinstance(caught.value, ContextOverflow)
        assert len(server.bodies) == 1


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


class TestBalancing:
    async def test_load_is_spread_evenly(self, servers: list[Any]) -> None:
        for server in servers:
            server.default = server.say("hello", delay_s=0.1)
        async with model(*servers) as llm:
            await asyncio.gather(*(llm.complete(call(f"question {number}")) for number in range(300)))
        shares = [len(server.bodies) for server in servers]
        assert sum(shares) == 300
        assert min(shares) >= 75

    async def test_a_slow_server_gets_less(self, servers: list[Any]) -> None:
        slow, *quick = servers
        slow.default = slow.say("hello", delay_s=0.2)
        for server in quick:
            server.default = server.say("hello", delay_s=0.01)

        async def worker(llm: EndpointModel, name: int) -> None:
            for number in range(10):
                await llm.complete(call(f"{name}/{number}"))

        async with model(*servers) as llm:
            await asyncio.gather(*(worker(llm, name) for name in range(12)))
        assert len(slow.bodies) < min(len(server.bodies) for server in quick)

    async def test_the_calls_of_a_question_go_to_one_server(self, servers: list[Any]) -> None:
        async with model(*servers) as llm:
            homes = await self.homes(llm, servers)
            assert all(len(home) == 1 for home in homes.values())
            assert len(set.union(*homes.values())) > 1
            left = servers[0].url
            llm.follow([server.url for server in servers[1:]], ())
            moved = await self.homes(llm, servers[1:])
        stayed = {name for name, home in homes.items() if home != {left}}
        assert {name for name in homes if moved[name] == homes[name]} == stayed

    async def test_without_affinity_a_question_has_no_server_of_its_own(self, servers: list[Any]) -> None:
        async with model(*servers, question_affinity=False) as llm:
            homes = await self.homes(llm, servers)
        assert any(len(home) > 1 for home in homes.values())

    @staticmethod
    async def homes(llm: EndpointModel, servers: list[Any]) -> dict[str, set[str]]:
        """The servers that got the calls of each question."""
        for server in servers:
            server.bodies.clear()
        names = [f"question {number}" for number in range(24)]
        for name in names:
            for number in range(5):
                await llm.complete(replace(call(f"{name}: {number}"), question=name))
        asked = {server.url: str(server.bodies) for server in servers}
        return {name: {url for url, bodies in asked.items() if f"{name}:" in bodies} for name in names}

    async def test_a_busy_server_leaves_its_questions_to_others(self, servers: list[Any]) -> None:
        released = asyncio.Event()
        for server in servers:
            server.default = server.hold(released)
        async with model(*servers) as llm:
            calls = [replace(call(str(number)), question="one") for number in range(60)]
            answering = [asyncio.create_task(llm.complete(each)) for each in calls]
            await until(lambda: sum(len(server.bodies) for server in servers) == 60)
            released.set()
            await asyncio.gather(*answering)
        assert min(len(server.bodies) for server in servers) > 10

    async def test_connections_are_kept_and_not_capped(self, server: Any) -> None:
        released = asyncio.Event()
        server.default = server.hold(released)
        async with model(server) as llm:
            calls = [asyncio.create_task(llm.complete(call(str(number)))) for number in range(200)]
            await server.asked(200)  # aiohttp's default limit is 100 connections
            released.set()
            await asyncio.gather(*calls)
            for _ in range(20):
                await llm.complete(call())
        assert len(server.connections) == 200


class TestJoiningAndLeaving:
    async def test_calls_to_a_server_that_is_gone_are_sent_to_another(self, servers: list[Any]) -> None:
        gone, other, _ = servers
        gone.default = gone.hang
        async with model(gone) as llm:
            calls = [asyncio.create_task(llm.complete(call(str(number)))) for number in range(20)]
            await gone.asked(20)
            llm.follow([other.url], ())
            assert {completion.text for completion in await asyncio.gather(*calls)} == {"hello"}
        assert len(other.bodies) == 20

    async def test_a_leaving_server_answers_its_calls_and_gets_no_others(self, servers: list[Any]) -> None:
        leaving, other, _ = servers
        released = asyncio.Event()
        leaving.default = leaving.hold(released)
        async with model(leaving) as llm:
            first = asyncio.create_task(llm.complete(call("first")))
            await leaving.asked(1)
            llm.follow([other.url], [leaving.url])
            await llm.complete(call("second"))
            released.set()
            assert (await first).text == "hello"
            assert {stats.url for stats in llm.server_stats} == {leaving.url, other.url}
            llm.follow([other.url], ())
            assert {stats.url for stats in llm.server_stats} == {other.url}
        assert (len(leaving.bodies), len(other.bodies)) == (1, 1)

    async def test_calls_wait_for_a_server_while_there_is_none(self, servers: list[Any], pauses: list[float]) -> None:
        first, second, _ = servers
        first.default = first.hang
        async with model(first, max_retries=1) as llm:
            calls = [asyncio.create_task(llm.complete(call(str(number)))) for number in range(5)]
            await first.asked(5)
            llm.follow((), ())
            calls.append(asyncio.create_task(llm.complete(call("asked while there is none"))))
            await asyncio.sleep(0.1)
            llm.follow([second.url], ())
            assert {completion.text for completion in await asyncio.gather(*calls)} == {"hello"}

    async def test_without_a_server_for_long_a_call_fails(self, server: Any, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr("pipeline.net.replicated_client._ABSENCE_S", 0.05)
        async with model(server) as llm:
            llm.follow((), ())
            with pytest.raises(ServiceError, match=r"no model server has joined for 0\.05 s"):
                await llm.complete(call())


class TestOpening:
    async def test_takes_the_only_model(self, server: Any) -> None:
        async with model(server) as llm:
            assert llm.identity == "llama"
            assert llm.label is None

    async def test_the_identity_has_checkpoint_base_model_and_extra_fields_but_no_url(self, server: Any) -> None:
        server.cards = [{"id": "srp", "root": "adapters/srp-7", "parent": "llama-3"}]
        async with model(server, extra_body={"top_k": 5}) as llm:
            assert llm.identity == 'srp of adapters/srp-7 of llama-3 {"top_k":5}'

    @pytest.mark.parametrize(
        "fields",
        [
            {},
            {"dtype": "float32"},
            {"engine_kwargs": {"revision": "0a" * 20}},
            {"dtype": "bfloat16", "engine_kwargs": {"revision": "v2", "quantization": "fp8"}},
        ],
        ids=str,
    )
    @pytest.mark.parametrize("adapter", [None, "user/adapter"])
    async def test_the_identity_is_that_of_the_job_which_serves_the_model(
        self, server: Any, fields: dict[str, Any], adapter: str | None
    ) -> None:
        served = default(ServedModel, model="org/llama", adapter=adapter, **fields)
        base = {"id": served.base_name, "root": "org/llama"}
        of_adapter = {"id": served.name, "root": adapter, "parent": served.base_name}
        server.cards = [of_adapter if adapter else base]
        own = model(server)
        own.serve_from(own.base_urls, "the-token")
        async with model(server) as of_endpoint, own as of_job:
            assert of_endpoint.identity == of_job.identity == served.name

    async def test_a_job_that_serves_the_model_caps_its_replies_alike(self) -> None:
        section = default(ServedModel, model="org/llama", max_new_tokens=20).as_endpoint(["http://127.0.0.1:1/v1"])
        assert section["max_new_tokens"] == 20

    @pytest.mark.parametrize("name", ["org/llama-Instruct", "org/llama2", "my-org/llama", "org/llama-Instruct+user/a"])
    async def test_the_identity_keeps_the_origin_of_a_model_with_a_similar_name(self, server: Any, name: str) -> None:
        server.cards = [{"id": name, "root": "org/llama"}]
        async with model(server) as llm:
            assert llm.identity == f"{name} of org/llama"

    async def test_one_of_several_models_must_be_chosen(self, server: Any) -> None:
        server.cards = [{"id": "llama"}, {"id": "qwen"}]
        with pytest.raises(UserError, match=r"serves 2 models \(llama, qwen\); set llm.model"):
            await model(server).__aenter__()
        async with model(server, model="qwen") as llm:
            await llm.complete(call())
        assert server.bodies[0]["model"] == "qwen"

    async def test_a_misspelt_model_is_named(self, server: Any) -> None:
        with pytest.raises(UserError, match=r"serves llama, not llm.model=lama. Did you mean 'llama'\?"):
            await model(server, model="lama").__aenter__()

    async def test_an_unreachable_server_is_a_user_error_with_its_url(self, server: Any) -> None:
        await server.stop()
        with pytest.raises(UserError, match=f"no model server can be used: {server.url} failed.*set llm.base_urls"):
            await model(server).__aenter__()

    async def test_a_server_that_is_still_loading_is_not_up(self, server: Any) -> None:
        server.models_status = 503
        with pytest.raises(UserError, match=r"no model server can be used: .* answered 503"):
            await model(server).__aenter__()

    async def test_one_server_of_several_may_be_down(self, servers: list[Any], caplog: Any) -> None:
        await servers[0].stop()
        async with model(*servers) as llm:
            for number in range(30):
                assert (await llm.complete(call(str(number)))).text == "hello"
        assert servers[0].url in caplog.text

    async def test_a_variable_of_the_users_own_must_hold_the_key(self, server: Any) -> None:
        with pytest.raises(UserError, match=r"environment variable MY_KYE, .* is not set"):
            await model(server, api_key_env="MY_KYE").__aenter__()

    @pytest.mark.parametrize("name", [None, "tiny"])
    async def test_a_missing_url_prefix_is_explained(self, server: Any, name: str | None) -> None:
        url = server.url.removesuffix("/v1")
        with pytest.raises(UserError, match="must end in the API's prefix, usually /v1"):
            await default(EndpointModel, base_urls=(url,), model=name).__aenter__()

    @pytest.mark.parametrize("status", [404, 405])
    async def test_a_server_without_a_list_of_models_serves_the_one_that_is_named(
        self, server: Any, status: int, caplog: Any
    ) -> None:
        server.models_status = status
        async with model(server, model="tiny") as llm:
            assert (await llm.complete(call())).text == "hello"
            assert llm.identity == "tiny"
        assert f"answered {status}" in caplog.text
        assert "continuing with llm.model=tiny, unchecked" in caplog.text
        with pytest.raises(UserError, match=f"answered {status}: .*; if it has no list of models, .* with llm.model"):
            await model(server).__aenter__()

    async def test_servers_of_different_models_are_refused(self, servers: list[Any]) -> None:
        servers[1].cards = [{"id": "llama", "root": "/checkpoints/old"}]
        with pytest.raises(UserError, match=r"serve different models: llama at .*, llama of /checkpoints/old at"):
            await model(*servers[:2]).__aenter__()

    @pytest.mark.parametrize("url", ["localhost:8000/v1", "ftp://host/v1", "http://", ""])
    def test_an_invalid_url_is_refused(self, url: str) -> None:
        with pytest.raises(UserError, match="write it as http://HOST:PORT/v1"):
            default(EndpointModel, base_urls=(url,))

    @pytest.mark.parametrize("options", [{"base_urls": ()}, {"timeout_s": 0}, {"max_retries": -1}, {"colour": "red"}])
    def test_wrong_values_are_refused(self, options: Mapping[str, Any]) -> None:
        with pytest.raises(UserError):
            default(EndpointModel, **({"base_urls": ("http://127.0.0.1:1/v1",)} | options))

    def test_pickles_before_it_is_opened(self) -> None:
        llm = default(EndpointModel, base_urls=("http://127.0.0.1:1/v1",), model="llama", extra_body={"top_k": 1})
        assert pickle.loads(pickle.dumps(llm)) == llm


class TestSecrets:
    KEY = "sk-planted-1234567890"

    async def test_the_key_is_sent_but_appears_nowhere_else(
        self, server: Any, monkeypatch: pytest.MonkeyPatch, caplog: Any
    ) -> None:
        monkeypatch.setenv("MY_KEY", f"{self.KEY}\n")
        caplog.set_level("DEBUG")
        seen: list[object] = []
        async with model(server, api_key_env="MY_KEY", max_retries=1, timeout_s=0.5) as llm:
            for behaviour in (
                server.fail(401, f"invalid key: Bearer {self.KEY}"),
                server.answer_with(f"<p>{self.KEY}</p>".encode()),
                server.fail(500, f"crashed on {self.KEY}"),
                server.hang_up,
                server.hang,
            ):
                server.default = behaviour
                with pytest.raises(ServiceError) as caught:
                    await llm.complete(call())
                error: BaseException | None = caught.value
                while error is not None:
                    seen += [repr(error), str(error), error.args, vars(error)]
                    error = error.__cause__ or error.__context__
            seen += [repr(llm), llm.identity, vars(llm), repr(llm._client), caplog.text]
        assert any(headers.get("Authorization") == f"Bearer {self.KEY}" for headers in server.headers)
        assert self.KEY not in repr(seen)

    async def test_a_refused_key_is_a_user_error_with_the_variables_name(
        self, server: Any, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setenv("MY_KEY", self.KEY)
        server.models_status = 401
        with pytest.raises(UserError, match="put a valid key into the variable MY_KEY") as caught:
            await model(server, api_key_env="MY_KEY").__aenter__()
        assert self.KEY not in str(caught.value)

    def test_credentials_in_a_url_are_refused_without_showing_them(self) -> None:
        with pytest.raises(UserError, match=r"remove the credentials from the URL of example.org") as caught:
            default(EndpointModel, base_urls=("http://me:hunter2@example.org/v1",))
        assert "hunter2" not in repr(caught.value)


RELEVANCE = ("[Fully Relevant]", "[Partially Relevant]", "[Unrelevant]")


def listed(**logprobs: float) -> dict[str, Any]:
    """The `logprobs` field of one position; the first token is the generated one."""
    entries = [{"token": token, "logprob": logprob} for token, logprob in logprobs.items()]
    return {"content": [{**entries[0], "top_logprobs": entries}]}


class TestChoosing:
    async def test_exact_choices_are_the_softmax_over_their_tokens(self, server: Any) -> None:
        server.vocabulary = {"[Fully Relevant]": 901, "[Partially Relevant]": 902, "[Unrelevant]": 903}
        logprobs = {"token_id:17": -0.1, "token_id:901": -3.0, "token_id:903": -4.0, "token_id:902": -5.0}
        server.default = server.say("anything", logprobs=listed(**logprobs))
        async with model(server) as llm:
            completion = await llm.choose(call(choices=RELEVANCE))
            await llm.choose(call(choices=RELEVANCE))
        body = server.bodies[0]
        assert body["logprob_token_ids"] == [901, 902, 903]
        assert (body["logprobs"], body["return_tokens_as_token_ids"], body["max_tokens"]) == (True, True, 1)
        total = math.exp(-3) + math.exp(-4) + math.exp(-5)
        expected = {choice: math.exp(-3 - rank) / total for choice, rank in zip(RELEVANCE, (0, 2, 1), strict=True)}
        assert completion.probabilities == pytest.approx(expected)
        assert completion.text == "[Fully Relevant]"
        assert sorted(server.tokenised) == sorted(RELEVANCE)  # each choice once, for any number of calls

    async def test_a_choice_of_several_tokens_is_refused(self, server: Any) -> None:
        async with model(server) as llm:
            with pytest.raises(UserError, match="'maybe' is 5 tokens for llama, but choices must be single tokens"):
                await llm.choose(call(choices=("maybe", "a")))

    async def test_a_server_that_ignores_listed_tokens_is_named(self, server: Any) -> None:
        server.default = server.say("a", logprobs=listed(a=-0.1))
        async with model(server) as llm:
            with pytest.raises(UserError, match=r"did not report .*llm.approximate_choices=true"):
                await llm.choose(call(choices=("a", "b")))

    async def test_estimates_come_from_the_reported_tokens_and_are_labelled(self, server: Any) -> None:
        server.default = server.say("Yes", logprobs=listed(**{"Yes": math.log(0.6), " yes": -9.0, "No": math.log(0.2)}))
        async with model(server, approximate_choices=True) as llm:
            assert llm.label == "approximate choices"
            completion = await llm.choose(call(choices=("Yes", "No")))
        assert completion.probabilities == pytest.approx({"Yes": 0.75, "No": 0.25})
        assert server.bodies[0]["top_logprobs"] == 20
        assert not server.tokenised

    async def test_no_logprobs_at_all_is_a_service_error(self, server: Any) -> None:
        async with model(server, approximate_choices=True) as llm:
            with pytest.raises(ServiceError, match="no log-probabilities"):
                await llm.choose(call(choices=("Yes", "No")))

    def test_an_unreported_choice_gets_at_most_the_lowest_reported_value(self) -> None:
        estimates = estimate_choices(("Yes", "No"), {"Yes": -0.1, "Well": -4.0})
        assert estimates == pytest.approx({"Yes": -0.1, "No": -4.0})

    def test_tokens_that_begin_a_choice_count_for_it_unless_they_begin_two(self) -> None:
        estimates = estimate_choices(("[Fully]", "[Partially]"), {"[": -0.1, "[Full": -1.0, "[Part": -2.0})
        assert estimates == pytest.approx({"[Fully]": -1.0, "[Partially]": -2.0})
        with pytest.raises(ServiceError, match="none of the 1 reported tokens"):
            estimate_choices(("[Fully]", "[Partially]"), {"[": -0.1})

    def test_a_whole_choice_wins_over_a_beginning(self) -> None:
        assert estimate_choices(("1", "10"), {"1": -0.5, "10": -1.0}) == pytest.approx({"1": -0.5, "10": -1.0})


@pytest.mark.parametrize("url", ["http://h/v1/chat/completions", "http://h/v1/completions/", "http://h/v1?version=1"])
def test_an_address_with_more_than_the_prefix_is_refused(url: str) -> None:
    with pytest.raises(UserError, match="should end in the API's prefix, usually /v1, without what follows it"):
        default(EndpointModel, base_urls=[url])


def test_a_choice_that_is_not_reported_gets_no_more_than_the_others_leave() -> None:
    found = estimate_choices(("yes", "no"), {"yes": math.log(0.99)})
    assert found["no"] == pytest.approx(math.log(0.01))
    lowest = math.log(0.1)
    assert estimate_choices(("yes", "no"), {"yes": math.log(0.6), "x": lowest})["no"] == pytest.approx(lowest)
