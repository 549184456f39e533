"""Several candidates of one prompt as one call, on every back end that can (specification §16.2)."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import orjson
import pytest

from pipeline.config import default
from pipeline.errors import ServiceError, UserError
from pipeline.llm.embedded.model import EmbeddedModel
from pipeline.llm.prompt import Candidate, Message, Sampling
from tests.llm.conftest import FakeOpenAIServer
from tests.llm.reference import CHAT, Reference
from tests.llm.reference import call as about
from tests.llm.support import call, model

BEAMS = Sampling(candidates=3, search="beam", max_tokens=8)
DRAWS = Sampling(candidates=3, temperature=1.0, max_tokens=8)


def choice(text: Any, logprob: float | None = None, **more: Any) -> dict[str, Any]:
    position = {"token": "x", "logprob": logprob}
    reported = {} if logprob is None else {"logprobs": {"content": [position, position]}}
    return {"message": {"content": text}, "finish_reason": "stop", **reported, **more}


def say(*choices: dict[str, Any]) -> Any:
    usage = {"prompt_tokens": 12, "completion_tokens": 9}
    return FakeOpenAIServer.answer_with(orjson.dumps({"choices": list(choices), "usage": usage}))


class TestSampling:
    @pytest.mark.parametrize(
        ("wrong", "reason"),
        [
            ({"candidates": 0}, "cannot return 0 candidates"),
            ({"candidates": 3}, "3 draws at temperature 0 are 3 times the same text"),
            ({"candidates": 3, "search": "beam", "temperature": 0.5}, "a beam search takes temperature 0"),
            ({"candidates": 3, "search": "beam", "stop": ("\n",)}, "no stop strings"),
            ({"candidates": 3, "search": "beam", "logprobs": 1}, "no log-probabilities"),
        ],
    )
    def test_parameters_that_contradict_each_other_are_refused(self, wrong: dict[str, Any], reason: str) -> None:
        with pytest.raises(UserError, match=reason):
            Sampling(**wrong)

    def test_one_candidate_is_stored_as_before(self) -> None:
        plain = {"temperature": 0.0, "max_tokens": 1024, "top_p": 1.0, "stop": (), "logprobs": None}
        assert Sampling().as_hashed() == plain == Sampling(search="beam").as_hashed()
        assert BEAMS.as_hashed() == plain | {"max_tokens": 8, "candidates": 3, "search": "beam", "length_penalty": 1.0}
        assert not Sampling(search="beam").is_beam_search


class TestServed:
    async def test_a_beam_search_is_one_request_at_temperature_0(self, server: Any) -> None:
        server.default = say(choice("b"), choice("a", finish_reason="length"), choice("c"))
        async with model(server, extra_body={"temperature": 0.7}) as llm:
            found = await llm.complete(call(sampling=BEAMS))
        (body,) = server.bodies
        asked = {"n": 3, "use_beam_search": True, "length_penalty": 1.0, "temperature": 0.0, "max_tokens": 8}
        assert {name: body.get(name) for name in asked} == asked
        assert "stop" not in body
        assert (found.text, found.prompt_tokens, found.completion_tokens) == ("b", 12, 9)
        assert found.candidates == (Candidate("b"), Candidate("a", "length"), Candidate("c"))

    async def test_draws_are_ordered_by_their_log_probabilities(self, server: Any) -> None:
        server.default = say(choice("a", -3.0), choice("<think>hm</think>b", -0.5), choice("c", -1.0))
        scored = Sampling(candidates=3, temperature=1.0, logprobs=0)
        async with model(server) as llm:
            found = await llm.complete(call(sampling=scored))
        assert "use_beam_search" not in server.bodies[0]
        assert server.bodies[0]["n"] == 3
        assert found.candidates == tuple(
            Candidate(text, score=score) for text, score in (("b", -1), ("c", -2), ("a", -6))
        )
        assert found.text == "b"
        assert found.logprobs == ({"x": -0.5}, {"x": -0.5})

    async def test_draws_without_scores_keep_the_order_of_the_server(self, server: Any) -> None:
        server.default = say(choice("a"), choice("b"), choice("a"))
        async with model(server) as llm:
            found = await llm.complete(call(sampling=DRAWS))
        assert [each.text for each in found.candidates] == ["a", "b", "a"]

    @pytest.mark.parametrize("texts", [["a"], ["a", "b"], ["a", "b", "c", "d"]])
    @pytest.mark.parametrize("sampling", [BEAMS, DRAWS], ids=["beams", "draws"])
    async def test_another_number_of_texts_is_explained(
        self, server: Any, texts: list[str], sampling: Sampling
    ) -> None:
        server.default = say(*map(choice, texts))
        async with model(server, max_retries=1) as llm:
            with pytest.raises(
                UserError, match=f"cannot .*{len(texts)} in place of 3 texts.*serve the model with vLLM"
            ):
                await llm.complete(call(sampling=sampling))
            assert llm.server_stats[0].failures == 2
        assert len(server.bodies) == 2

    async def test_another_server_answers_for_one_that_cannot(self, servers: Any) -> None:
        deaf, good, _ = servers
        deaf.default, good.default = say(choice("a")), say(*map(choice, "abc"))
        async with model(deaf, good) as llm:
            for number in range(6):
                found = await llm.complete(call(str(number), BEAMS))
                assert [each.text for each in found.candidates] == ["a", "b", "c"]

    @pytest.mark.parametrize("wrong", [7, {"text": "b"}, ["b"], "x" * 5000])
    async def test_a_candidate_of_another_form_is_a_failure_of_its_server(self, server: Any, wrong: Any) -> None:
        server.default = say(choice("a"), choice(wrong), choice("c"))
        async with model(server, max_retries=0) as llm:
            with pytest.raises(ServiceError, match=r"unusable reply \((choices\.1\.message\.content|its text has)"):
                await llm.complete(call(sampling=BEAMS))

    @pytest.mark.parametrize(
        "message",
        [
            "Unrecognized request argument supplied: use_beam_search",
            "Only one completion choice is allowed: n must be 1",
            "Extra inputs are not permitted: length_penalty",
        ],
    )
    async def test_a_server_that_refuses_is_explained(self, server: Any, message: str) -> None:
        server.default = server.fail(400, message)
        async with model(server) as llm:
            with pytest.raises(
                UserError, match=f"cannot search with beams.*{message[-12:]}.*serve the model with vLLM"
            ):
                await llm.complete(call(sampling=BEAMS))

    async def test_a_server_that_is_down_is_no_mistake_of_the_user(self, server: Any) -> None:
        server.default = server.fail(500)
        async with model(server, max_retries=0) as llm:
            with pytest.raises(ServiceError, match="out of sorts"):
                await llm.complete(call(sampling=BEAMS))

    async def test_a_server_that_ignores_beams_is_noticed_once(self, server: Any, caplog: Any) -> None:
        server.default = say(*[choice("same")] * 3)
        async with model(server) as llm:
            for _ in range(3):
                await llm.complete(call(sampling=BEAMS))
        assert caplog.text.count("probably ignores use_beam_search") == 1


def embedded(folder: Path) -> EmbeddedModel:
    return default(EmbeddedModel, model=str(folder), threads=2)


@pytest.fixture(scope="module")
def reference(llama: Path) -> Reference:
    return Reference.of(llama)


class TestEmbedded:
    @pytest.mark.parametrize(("width", "penalty"), [(2, 1.0), (3, 1.0), (5, 0.5)])
    async def test_a_beam_search_finds_the_best_sequences(
        self, llama: Path, reference: Reference, width: int, penalty: float
    ) -> None:
        sampling = Sampling(candidates=width, search="beam", max_tokens=7, length_penalty=penalty)
        expected = reference.beams(CHAT, sampling)
        async with embedded(llama) as llm:
            found = await llm.complete(about(CHAT, sampling))
        assert [each.score for each in found.candidates] == pytest.approx([score for score, _ in expected], abs=1e-3)
        for each, (_, ids) in zip(found.candidates, expected, strict=True):
            written = reference.tokenizer.decode(ids, skip_special_tokens=True)
            assert each.text == written or "\N{REPLACEMENT CHARACTER}" in written
        assert found.text == found.candidates[0].text
        assert found.prompt_tokens == len(reference.ids(CHAT))
        assert found.completion_tokens == sum(len(ids) for _, ids in expected)
        assert found.seconds is not None
        assert found.seconds > 0

    async def test_candidates_do_not_depend_on_the_batch(self, llama: Path) -> None:
        calls = [about((Message("user", f"word {n} " * (n + 1)),), BEAMS) for n in range(9)]
        async with embedded(llama) as llm:
            together = await asyncio.gather(*map(llm.complete, calls))
            alone = [await llm.complete(each) for each in calls]
        for one, other in zip(together, alone, strict=True):
            assert [each.text for each in one.candidates] == [each.text for each in other.candidates]
            assert [each.score for each in one.candidates] == pytest.approx(
                [each.score for each in other.candidates], abs=1e-3
            )

    async def test_draws_differ_repeat_and_are_ordered(self, llama: Path) -> None:
        scored = Sampling(candidates=6, temperature=1.0, max_tokens=9, logprobs=0)
        async with embedded(llama) as llm:
            once, again, other = [await llm.complete(about(CHAT, scored, seed=seed)) for seed in (3, 3, 400)]
            plain = await llm.complete(about(CHAT, DRAWS, seed=3))
        assert once == again
        assert [each.text for each in once.candidates] != [each.text for each in other.candidates]
        assert len({each.text for each in once.candidates}) > 3
        scores = [each.score or 0.0 for each in once.candidates]
        assert scores == sorted(scores, reverse=True)
        assert once.logprobs is not None
        assert scores[0] == pytest.approx(sum(next(iter(each.values())) for each in once.logprobs))
        assert once.completion_tokens > max(len(once.logprobs), 9)
        assert {each.score for each in plain.candidates} == {None}
        assert plain.logprobs is None

    async def test_a_beam_that_ends_its_turn_stops_there(self, llama: Path, reference: Reference) -> None:
        """Ask for so many beams that one of them ends at once."""
        many = Sampling(candidates=60, search="beam", max_tokens=3)
        async with embedded(llama) as llm:
            found = await llm.complete(about(CHAT, many))
        assert len(found.candidates) == 60
        scores = [each.score for each in found.candidates]
        assert scores == sorted(scores, key=lambda score: -(score or 0.0))
        assert {each.finish_reason for each in found.candidates} <= {"stop", "length"}
        assert not any(reference.tokenizer.eos_token in each.text for each in found.candidates)
