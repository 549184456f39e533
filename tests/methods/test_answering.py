"""The answer in braces: what its prompts show, what they read, what simulated models write (methods.md §3.10)."""

from __future__ import annotations

from dataclasses import replace
from random import Random

import pytest

from pipeline.errors import ParseError
from pipeline.methods.answering import FROM_FACTS, WITHOUT_FACTS, AnswerFromFacts, AnswerWithoutFacts, write_answers
from pipeline.methods.srp.answer import AnswerFromEvidence, AnswerWithoutEvidence
from pipeline.methods.tog.answer import AnswerFromChains, AnswerWithoutChains
from pipeline.retrieval.lexical import LexicalEncoder
from tests.methods.support import chain, question, truth

ASKED = question("which movies did Ann direct", "Ann", "Bob")
NAMES = {"Ann": "Ann", "m.1": None, "m.2": None, "Film": "Film", 'Say "Hi"': 'Say "Hi"', "Oslo": "Oslo"}
TO_FILM = chain("Ann", "role", "m.1", "film", "Film")
TO_HI = chain("Ann", "role", "m.2", "film", 'Say "Hi"')
TO_OSLO = chain("Ann", "born_in", "Oslo")
FROM_ALL = AnswerFromFacts(ASKED, (TO_FILM, TO_HI, TO_OSLO), NAMES)
ALONE = AnswerWithoutFacts(ASKED)
KNOWN = truth(ASKED, ["Film"], {"Ann": ["role -> film", "directed"], "Bob": []})
SLIPS = [Random(seed) for seed in range(20)]
ENCODER = LexicalEncoder()


def test_the_five_examples_are_read_by_the_parser_that_they_teach() -> None:
    for template in (FROM_FACTS, WITHOUT_FACTS):
        examples = template.system.split("\n\nQuestion:")[1:]
        assert len(examples) == 5
        assert all(ALONE.parse(example).texts for example in examples)


def test_each_chain_is_shown_on_a_line() -> None:
    assert FROM_ALL.messages()[-1].content == (
        "Question: which movies did Ann direct?\nFacts:\n"
        '[("Ann", "role", "<cvt 1>"), ("<cvt 1>", "film", "Film")]\n'
        r'[("Ann", "role", "<cvt 2>"), ("<cvt 2>", "film", "Say \"Hi\"")]'
        '\n[("Ann", "born_in", "Oslo")]\nReasoning:'
    )


def test_methods_that_answer_from_facts_ask_in_the_same_words_in_roles_of_their_own() -> None:
    asked = [AnswerFromEvidence(ASKED, (TO_FILM,), NAMES), AnswerFromChains(ASKED, (TO_FILM,), NAMES)]
    assert [prompt.role for prompt in asked] == ["srp.answer", "tog.answer"]
    assert asked[0].messages() == asked[1].messages()
    alone = [AnswerWithoutEvidence(ASKED), AnswerWithoutChains(ASKED)]
    assert [prompt.role for prompt in alone] == ["srp.answer_cot", "tog.answer_cot"]
    assert alone[0].messages() == alone[1].messages()


def test_answers_keep_the_raw_reply_and_fall_back_on_what_the_reply_says() -> None:
    read = FROM_ALL.parse("Curly: the answer is {Film; “Oslo”}")
    assert (read.texts, read.raw) == (("Film", "“Oslo”"), "Curly: the answer is {Film; “Oslo”}")
    assert FROM_ALL.fallback("Surely the answer is Film.").texts == ("Film",)
    nothing = FROM_ALL.fallback("It must be Film")
    assert (nothing.texts, nothing.raw) == ((), "It must be Film")


def test_what_is_written_is_read_back_and_a_reply_without_braces_is_a_complaint() -> None:
    names = ("Film", 'Say "Hi"', "a; b", "{x}", "it's | so", "back\\slash")
    assert ALONE.parse(write_answers(names)).texts == names
    with pytest.raises(ParseError, match="no answer in braces"):
        ALONE.parse("The answer is Film.")


# Simulated models


def test_the_oracle_answers_with_gold_only_when_the_facts_show_it() -> None:
    assert FROM_ALL.parse(FROM_ALL.write_as_oracle(KNOWN, None)).texts == ("Film",)
    hidden = replace(FROM_ALL, chains=(TO_HI, TO_OSLO))
    assert hidden.parse(hidden.write_as_oracle(KNOWN, None)).texts == ('Say "Hi"',)
    unnamed = replace(FROM_ALL, chains=(TO_FILM.first(1),))
    assert unnamed.parse(unnamed.write_as_oracle(KNOWN, None)).texts == ("unknown",)
    slipped = {FROM_ALL.parse(FROM_ALL.write_as_oracle(KNOWN, slip)).texts for slip in SLIPS}
    assert slipped == {('Say "Hi"',), ("Oslo",)}


def test_the_oracle_counts_what_the_facts_show_of_what_is_asked_for() -> None:
    counted = replace(truth(ASKED, ["2"], {"Ann": ["role -> film"]}), counted=frozenset({"Film", 'Say "Hi"'}))
    for chains, answer in (((TO_FILM, TO_HI), "2"), ((TO_FILM, TO_FILM, TO_OSLO), "1"), ((TO_OSLO,), "Oslo")):
        shown = replace(FROM_ALL, chains=chains)
        assert shown.parse(shown.write_as_oracle(counted, None)).texts == (answer,)
        assert all(shown.parse(shown.write_as_oracle(counted, slip)).texts != ("2",) for slip in SLIPS)


def test_the_oracle_does_not_know_what_it_was_not_shown() -> None:
    for slip in (None, *SLIPS):
        assert ALONE.parse(ALONE.write_as_oracle(KNOWN, slip)).texts == ("unknown",)


def test_the_similarity_policy_answers_with_the_ends_of_the_path_most_like_the_question() -> None:
    asked = replace(FROM_ALL, question=question("in which film did Ann play", "Ann"))
    assert asked.parse(asked.write_by_similarity(ENCODER)).texts == ("Film", 'Say "Hi"')
    assert ALONE.parse(ALONE.write_by_similarity(ENCODER)).texts == ("unknown",)
