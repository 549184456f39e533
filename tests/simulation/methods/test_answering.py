"""The simulated replies to the answering prompts."""

from __future__ import annotations

from dataclasses import replace
from random import Random

from pipeline.methods.answering import AnswerFromFacts, AnswerWithoutFacts
from pipeline.retrieval.lexical import LexicalEncoder
from pipeline.simulation.registry import write_as_oracle, write_by_similarity
from tests.methods.support import chain, gold_context, question

ASKED = question("which movies did Ann direct", "Ann", "Bob")
NAMES = {"Ann": "Ann", "m.1": None, "m.2": None, "Film": "Film", 'Say "Hi"': 'Say "Hi"', "Oslo": "Oslo"}
TO_FILM = chain("Ann", "role", "m.1", "film", "Film")
TO_HI = chain("Ann", "role", "m.2", "film", 'Say "Hi"')
TO_OSLO = chain("Ann", "born_in", "Oslo")
FROM_ALL = AnswerFromFacts(ASKED, (TO_FILM, TO_HI, TO_OSLO), NAMES)
ALONE = AnswerWithoutFacts(ASKED)
KNOWN = gold_context(ASKED, ["Film"], {"Ann": ["role -> film", "directed"], "Bob": []})
ERROR_RNGS = [Random(seed) for seed in range(20)]
ENCODER = LexicalEncoder()


def test_the_oracle_gives_a_gold_answer_only_when_the_facts_show_it() -> None:
    assert FROM_ALL.parse(write_as_oracle(FROM_ALL, KNOWN, None)).texts == ("Film",)
    hidden = replace(FROM_ALL, chains=(TO_HI, TO_OSLO))
    assert hidden.parse(write_as_oracle(hidden, KNOWN, None)).texts == ('Say "Hi"',)
    unnamed = replace(FROM_ALL, chains=(TO_FILM.first(1),))
    assert unnamed.parse(write_as_oracle(unnamed, KNOWN, None)).texts == ("unknown",)
    wrong = {FROM_ALL.parse(write_as_oracle(FROM_ALL, KNOWN, error_rng)).texts for error_rng in ERROR_RNGS}
    assert wrong == {('Say "Hi"',), ("Oslo",)}


def test_the_oracle_counts_the_nodes_that_the_facts_show() -> None:
    counted = replace(gold_context(ASKED, ["2"], {"Ann": ["role -> film"]}), counted=frozenset({"Film", 'Say "Hi"'}))
    for chains, answer in (((TO_FILM, TO_HI), "2"), ((TO_FILM, TO_FILM, TO_OSLO), "1"), ((TO_OSLO,), "Oslo")):
        shown = replace(FROM_ALL, chains=chains)
        assert shown.parse(write_as_oracle(shown, counted, None)).texts == (answer,)
        assert all(shown.parse(write_as_oracle(shown, counted, error_rng)).texts != ("2",) for error_rng in ERROR_RNGS)


def test_the_oracle_knows_nothing_without_facts() -> None:
    for error_rng in (None, *ERROR_RNGS):
        assert ALONE.parse(write_as_oracle(ALONE, KNOWN, error_rng)).texts == ("unknown",)


def test_the_similarity_policy_answers_with_the_ends_of_the_most_similar_path() -> None:
    asked = replace(FROM_ALL, question=question("in which film did Ann play", "Ann"))
    assert asked.parse(write_by_similarity(asked, ENCODER)).texts == ("Film", 'Say "Hi"')
    assert ALONE.parse(write_by_similarity(ALONE, ENCODER)).texts == ("unknown",)
