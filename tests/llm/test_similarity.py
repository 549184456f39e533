"""The model-free policy: it writes what a prompt makes of its own inputs, and weighs choices by likeness to that."""

from __future__ import annotations

import pickle

import pytest

from pipeline.llm.prompt import Call, Sampling
from pipeline.llm.similarity import Similarity
from pipeline.llm.simulated import token_logprobs
from pipeline.retrieval.lexical import LexicalEncoder
from tests.llm.support import Ask

RELATIONS = ("people.person.place_of_birth", "film.film.directed_by", "sports.team.mascot")


class Pick(Ask):
    """Picks the relation most like the question."""

    role = "test.pick"

    def write_by_similarity(self, encoder: LexicalEncoder) -> str:
        scores = encoder.similarities(self.question, RELATIONS)
        return RELATIONS[scores.index(max(scores))]


def call(question: str, choices: tuple[str, ...] = ()) -> Call:
    prompt = Pick(question)
    return Call(prompt, prompt.messages(), Sampling(), key="k", seed=1, choices=choices)


async def test_writes_by_likeness_and_is_labelled() -> None:
    async with Similarity() as model:
        assert (await model.complete(call("Who directed the film Alien?"))).text == "film.film.directed_by"
        assert (model.identity, model.label) == ("similarity", "similarity")


async def test_weighs_choices_by_likeness_to_what_it_writes() -> None:
    async with Similarity() as model:
        completion = await model.choose(call("What is the mascot of the team?", choices=RELATIONS))
    probabilities = completion.probabilities or {}
    assert sum(probabilities.values()) == pytest.approx(1)
    assert list(probabilities) == list(RELATIONS)
    assert max(probabilities, key=lambda choice: probabilities[choice]) == completion.text == "sports.team.mascot"


async def test_tokens_are_estimated_at_four_characters_each() -> None:
    asked = call("Who directed the film Alien?")
    completion = await Similarity().complete(asked)
    characters = sum(len(message.content) for message in asked.messages)
    assert completion.prompt_tokens == -(-characters // 4)
    assert completion.completion_tokens == -(-len("film.film.directed_by") // 4)


def test_pickles() -> None:
    assert pickle.loads(pickle.dumps(Similarity())) == Similarity()


async def test_tokens_that_are_asked_for_are_certain_and_a_reflection_token_is_one() -> None:
    asked = Pick("Who directed [Fully Relevant] it?")
    messages = asked.messages()
    async with Similarity() as model:
        plain = await model.complete(Call(asked, messages, Sampling(), key="k", seed=1))
        told = await model.complete(Call(asked, messages, Sampling(logprobs=20), key="k", seed=1))
    assert plain.logprobs is None
    assert "".join(token for position in told.logprobs or () for token in position) == told.text
    assert list(token_logprobs("a b[Fully Relevant][x")) == [
        {"a": 0.0},
        {" ": 0.0},
        {"b": 0.0},
        {"[Fully Relevant]": 0.0},
        {"[": 0.0},
        {"x": 0.0},
    ]
