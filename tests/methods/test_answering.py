"""The prompts for an answer in braces, and their parser (specification §3.10)."""

from __future__ import annotations

import pytest

from pipeline.errors import ParseError
from pipeline.methods.answering import AnswerFromFacts, AnswerWithoutFacts
from pipeline.methods.srp.answer import AnswerFromEvidence, AnswerWithoutEvidence
from pipeline.methods.tog.answer import AnswerFromChains, AnswerWithoutChains
from pipeline.simulation.methods.answering import write_answers
from tests.methods.support import chain, question

ASKED = question("which movies did Ann direct", "Ann", "Bob")
NAMES = {"Ann": "Ann", "m.1": None, "m.2": None, "Film": "Film", 'Say "Hi"': 'Say "Hi"', "Oslo": "Oslo"}
TO_FILM = chain("Ann", "role", "m.1", "film", "Film")
TO_HI = chain("Ann", "role", "m.2", "film", 'Say "Hi"')
TO_OSLO = chain("Ann", "born_in", "Oslo")
FROM_ALL = AnswerFromFacts(ASKED, (TO_FILM, TO_HI, TO_OSLO), NAMES)
ALONE = AnswerWithoutFacts(ASKED)


def test_the_parser_accepts_the_five_examples() -> None:
    for template in (AnswerFromFacts.template, AnswerWithoutFacts.template):
        examples = template.system.split("\n\nQuestion:")[1:]
        assert len(examples) == 5
        assert all(ALONE.parse(example).texts for example in examples)


def test_each_chain_is_rendered_on_one_line() -> None:
    assert FROM_ALL.messages()[-1].content == (
        "Question: which movies did Ann direct?\nFacts:\n"
        '[("Ann", "role", "<cvt 1>"), ("<cvt 1>", "film", "Film")]\n'
        r'[("Ann", "role", "<cvt 2>"), ("<cvt 2>", "film", "Say \"Hi\"")]'
        '\n[("Ann", "born_in", "Oslo")]\nReasoning:'
    )


def test_the_prompt_says_how_many_chains_were_left_out() -> None:
    cut = AnswerFromFacts(ASKED, (TO_OSLO,), NAMES, left_out=2)
    assert cut.messages()[-1].content.endswith('"Oslo")]\n(2 more were found)\nReasoning:')


def test_methods_share_the_text_of_the_prompts_and_have_their_own_roles() -> None:
    asked = [AnswerFromEvidence(ASKED, (TO_FILM,), NAMES), AnswerFromChains(ASKED, (TO_FILM,), NAMES)]
    assert [prompt.role for prompt in asked] == ["srp.answer", "tog.answer"]
    assert asked[0].messages() == asked[1].messages()
    alone = [AnswerWithoutEvidence(ASKED), AnswerWithoutChains(ASKED)]
    assert [prompt.role for prompt in alone] == ["srp.answer_cot", "tog.answer_cot"]
    assert alone[0].messages() == alone[1].messages()


def test_answers_keep_the_raw_reply_and_fall_back_to_the_text_after_answer_is() -> None:
    read = FROM_ALL.parse("Curly: the answer is {Film; “Oslo”}")
    assert (read.texts, read.raw) == (("Film", "“Oslo”"), "Curly: the answer is {Film; “Oslo”}")
    assert FROM_ALL.fallback("Surely the answer is Film.").texts == ("Film",)
    nothing = FROM_ALL.fallback("It must be Film")
    assert (nothing.texts, nothing.raw) == ((), "It must be Film")


def test_written_answers_are_read_back_and_a_reply_without_braces_is_a_parse_error() -> None:
    names = ("Film", 'Say "Hi"', "a; b", "{x}", "it's | so", "back\\slash")
    assert ALONE.parse(write_answers(names)).texts == names
    with pytest.raises(ParseError, match="no answer in braces"):
        ALONE.parse("The answer is Film.")
