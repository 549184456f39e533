"""Servers that refuse a parameter of a call, and models that show their reasoning."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
from aiohttp import web

from pipeline.errors import ServiceError, UserError
from pipeline.llm.dialect import refused_parameter
from pipeline.llm.prompt import Sampling
from tests.llm.conftest import Behaviour, FakeOpenAIServer
from tests.llm.support import call, model

MAX_TOKENS = (
    "Unsupported parameter: 'max_tokens' is not supported with this model. Use 'max_completion_tokens' instead. "
    "(unsupported_parameter)"
)
TEMPERATURE = (
    "Unsupported value: 'temperature' does not support 0.0 with this model. Only the default (1) value is supported."
)
ALL = {"max_tokens", "temperature", "top_p", "seed"}


def refusing(refusals: dict[str, str], *, status: int = 400) -> Behaviour:
    """Refuse the first of the parameters that a call has, with its message; answer a call without them."""

    async def behave(request: web.Request, body: dict[str, Any]) -> web.StreamResponse:
        for parameter, message in refusals.items():
            if parameter in body:
                return await FakeOpenAIServer.fail(status, message)(request, body)
        return await FakeOpenAIServer.say("hello")(request, body)

    return behave


@pytest.mark.parametrize(
    ("message", "parameter"),
    [
        (MAX_TOKENS, "max_tokens"),
        (TEMPERATURE, "temperature"),
        ("Unrecognized request argument supplied: seed", "seed"),
        ("[{'type': 'extra_forbidden', 'loc': ['body', 'seed'], 'msg': 'Extra inputs are not permitted'}]", "seed"),
        ("`temperature` and `top_p` cannot both be specified for this model. Please use only one.", "top_p"),
        ("property 'top_p' is unsupported", "top_p"),
        ("temperature must be non-negative, got -1.0.", None),
        ("max_tokens is too large: 5000", None),
        ("'logprobs' is not supported with this model", None),
        ("use 'max_completion_tokens' instead of max_tokens", "max_tokens"),
        ("max_tokens is deprecated; please send max_completion_tokens", "max_tokens"),
        ("This model doesn't accept the parameter seed.", "seed"),
        ("7 is not a valid temperature", None),
        ("the parameter seed is no longer taken", "seed"),
        ("the value of seed is not an integer", None),
    ],
)
def test_a_message_names_the_parameter_that_it_refuses(message: str, parameter: str | None) -> None:
    assert refused_parameter(message, ALL) == parameter
    assert refused_parameter(message, ()) is None


async def test_a_refused_parameter_is_left_out_or_renamed_from_then_on(server: Any, caplog: Any) -> None:
    server.default = refusing({"max_tokens": MAX_TOKENS, "temperature": TEMPERATURE, "seed": "unknown field: seed"})
    async with model(server, max_retries=0, breaker_failures=1) as llm:
        assert (await llm.complete(call(sampling=Sampling(max_tokens=50)))).text == "hello"
        assert len(server.bodies) == 4
        assert server.bodies[-1].keys() == {"model", "messages", "max_completion_tokens", "top_p"}
        assert server.bodies[-1]["max_completion_tokens"] == 50
        await llm.complete(call())
        (stats,) = llm.server_stats
        assert (stats.failures, stats.healthy) == (0, True)
    assert len(server.bodies) == 5
    refused = [record.getMessage() for record in caplog.records if "refuses the parameter" in record.getMessage()]
    assert len(refused) == 3
    assert "refuses the parameter max_tokens: it gets max_completion_tokens in its place" in refused[0]
    (random,) = (each for each in refused if "refuses the parameter temperature" in each)
    assert "a temperature of the method above 0 gives each seed its own" in random


async def test_calls_in_flight_at_the_first_refusal_are_all_answered(server: Any, caplog: Any) -> None:
    server.default = refusing({"seed": "Extra inputs are not permitted: seed"}, status=422)
    async with model(server, max_retries=0) as llm:
        completions = await asyncio.gather(*(llm.complete(call(str(number))) for number in range(30)))
    assert {completion.text for completion in completions} == {"hello"}
    assert caplog.text.count("refuses the parameter") == 1


async def test_each_server_has_its_own_dialect(servers: list[Any]) -> None:
    first, second, _ = servers
    first.default = refusing({"temperature": TEMPERATURE})
    async with model(first, second) as llm:
        await asyncio.gather(*(llm.complete(call(f"question {number}")) for number in range(40)))
        assert llm.identity == "llama"
    assert any("temperature" not in body for body in first.bodies)
    assert second.bodies
    assert all("temperature" in body for body in second.bodies)


async def test_a_server_that_refuses_forever_is_not_asked_forever(server: Any) -> None:
    server.default = server.fail(400, "unsupported: max_tokens, temperature, top_p, seed")
    async with model(server, max_retries=0) as llm:
        with pytest.raises(ServiceError, match="answered 400: unsupported"):
            await llm.complete(call())
    assert len(server.bodies) == 5


async def test_the_reasoning_dialect_sends_no_refused_parameter(server: Any) -> None:
    async with model(server, dialect="reasoning") as llm:
        await llm.complete(call(sampling=Sampling(temperature=0.3, max_tokens=50, stop=("END",))))
    assert server.bodies[0].keys() == {"model", "messages", "max_completion_tokens", "stop"}


async def test_fields_that_are_null_are_not_sent(server: Any) -> None:
    async with model(server, extra_body={"seed": None, "top_k": 5}) as llm:
        await llm.complete(call())
        assert llm.identity == 'llama {"seed":null,"top_k":5}'
    assert server.bodies[0].keys() == {"model", "messages", "max_tokens", "temperature", "top_p", "top_k"}


def test_a_dialect_that_does_not_exist_is_refused(server: Any) -> None:
    with pytest.raises(UserError, match=r"llm\.dialect|dialect"):
        model(server, dialect="klingon")


@pytest.mark.parametrize(
    ("content", "text"),
    [
        ("<think>Who was it? Ada.</think>\n\nAda", "Ada"),
        ("Who was it? Ada.\n</think>\n\nAda", "Ada"),
        ("\n<think>Who was", ""),
        ("<thinking aloud> Ada", "<thinking aloud> Ada"),
    ],
)
async def test_reasoning_inside_the_content_is_not_part_of_the_text(server: Any, content: str, text: str) -> None:
    server.default = server.say(content)
    async with model(server) as llm:
        assert (await llm.complete(call())).text == text


@pytest.mark.parametrize("field", ["reasoning_content", "reasoning"])
async def test_reasoning_beside_the_content_is_not_part_of_the_text(server: Any, field: str) -> None:
    message = {"role": "assistant", "content": "Ada", field: "Who was it? Ada."}
    usage = {"prompt_tokens": 12, "completion_tokens": 30, "completion_tokens_details": {"reasoning_tokens": 27}}
    server.default = server.say("", message=message, usage=usage)
    async with model(server) as llm:
        completion = await llm.complete(call())
    assert (completion.text, completion.completion_tokens) == ("Ada", 30)


async def test_replies_without_text_because_of_reasoning_are_explained_once(server: Any, caplog: Any) -> None:
    server.default = server.say(None, finish_reason="length")
    async with model(server) as llm:
        for number in range(3):
            assert (await llm.complete(call(str(number)))).text == ""
    assert caplog.text.count("its tokens were all spent on reasoning") == 1
