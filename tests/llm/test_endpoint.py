"""A served model: requests, replies, refusals, how it is opened, and its key."""

from __future__ import annotations

import pickle
from collections.abc import Mapping
from typing import Any

import pytest

from pipeline.config import default
from pipeline.errors import ContextOverflow, ServiceError, UserError
from pipeline.llm.endpoint import EndpointModel
from pipeline.llm.prompt import Call, Message, Sampling
from pipeline.llm.serve import ServedModel
from tests.llm.support import GREEDY, call, model


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


@pytest.mark.parametrize("url", ["http://h/v1/chat/completions", "http://h/v1/completions/", "http://h/v1?version=1"])
def test_an_address_with_more_than_the_prefix_is_refused(url: str) -> None:
    with pytest.raises(UserError, match="should end in the API's prefix, usually /v1, without what follows it"):
        default(EndpointModel, base_urls=[url])


def test_a_field_that_the_dialect_never_sends_is_refused() -> None:
    urls = {"base_urls": ["http://h/v1"], "dialect": "reasoning"}
    with pytest.raises(UserError, match=r"llm\.extra_body has temperature, which llm\.dialect=reasoning never sends"):
        default(EndpointModel, **urls, extra_body={"temperature": 1.0, "top_k": 20})
    default(EndpointModel, **urls, extra_body={"max_tokens": 9, "seed": None, "top_k": 20})


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
