"""The probabilities of single-token choices, exact and estimated."""

from __future__ import annotations

import math
from typing import Any

import pytest

from pipeline.errors import ServiceError, UserError
from pipeline.llm.endpoint import estimate_choices
from tests.llm.support import call, model

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


def test_a_choice_that_is_not_reported_gets_no_more_than_the_others_leave() -> None:
    found = estimate_choices(("yes", "no"), {"yes": math.log(0.99)})
    assert found["no"] == pytest.approx(math.log(0.01))
    lowest = math.log(0.1)
    assert estimate_choices(("yes", "no"), {"yes": math.log(0.6), "x": lowest})["no"] == pytest.approx(lowest)
