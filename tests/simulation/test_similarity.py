"""The similarity policy writes what the prompt's simulator makes of its inputs, and weighs choices by similarity."""

from __future__ import annotations

import pickle

import pytest

from pipeline.config import default
from pipeline.llm.prompt import Call, Sampling
from pipeline.retrieval.lexical import LexicalEncoder
from pipeline.simulation.completions import token_logprobs
from pipeline.simulation.registry import Simulator, simulates
from pipeline.simulation.similarity import Similarity
from tests.llm.support import Ask

RELATIONS = ("people.person.place_of_birth", "film.film.directed_by", "sports.team.mascot")


class Pick(Ask):
    """Expects a relation."""

    role = "test.pick"


@simulates(Pick)
class PickSimulator(Simulator[Pick]):
    """Picks the relation most similar to the question."""

    def write_by_similarity(self, prompt: Pick, encoder: LexicalEncoder) -> str:
        scores = encoder.similarities(prompt.question, RELATIONS)
        return RELATIONS[scores.index(max(scores))]


def call(question: str, choices: tuple[str, ...] = ()) -> Call:
    prompt = Pick(question)
    return Call(prompt, prompt.messages(), Sampling(), key="k", seed=1, choices=choices)


async def test_writes_by_similarity_and_is_labelled() -> None:
    async with default(Similarity) as model:
        assert (await model.complete(call("Who directed the film Alien?"))).text == "film.film.directed_by"
        assert (model.identity, model.label) == ("similarity", "similarity")


async def test_weighs_choices_by_similarity_to_the_written_text() -> None:
    async with default(Similarity) as model:
        completion = await model.choose(call("What is the mascot of the team?", choices=RELATIONS))
    probabilities = completion.probabilities or {}
    assert sum(probabilities.values()) == pytest.approx(1)
    assert list(probabilities) == list(RELATIONS)
    assert max(probabilities, key=lambda choice: probabilities[choice]) == completion.text == "sports.team.mascot"


async def test_tokens_are_estimated_at_four_characters_each() -> None:
    asked = call("Who directed the film Alien?")
    completion = await default(Similarity).complete(asked)
    characters = sum(len(message.content) for message in asked.messages)
    assert completion.prompt_tokens == -(-characters // 4)
    assert completion.completion_tokens == -(-len("film.film.directed_by") // 4)


def test_can_be_pickled() -> None:
    assert pickle.loads(pickle.dumps(default(Similarity))) == default(Similarity)


async def test_requested_logprobs_are_certain_and_a_reflection_token_is_one_token() -> None:
    asked = Pick("Who directed [Fully Relevant] it?")
    messages = asked.messages()
    async with default(Similarity) as model:
        plain = await model.complete(Call(asked, messages, Sampling(), key="k", seed=1))
        with_logprobs = await model.complete(Call(asked, messages, Sampling(logprobs=20), key="k", seed=1))
    assert plain.logprobs is None
    assert "".join(token for position in with_logprobs.logprobs or () for token in position) == with_logprobs.text
    assert list(token_logprobs("a b[Fully Relevant][x")) == [
        {"a": 0.0},
        {" ": 0.0},
        {"b": 0.0},
        {"[Fully Relevant]": 0.0},
        {"[": 0.0},
        {"x": 0.0},
    ]
