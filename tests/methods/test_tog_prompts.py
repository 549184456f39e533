"""The parsers of ToG's prompts."""

from __future__ import annotations

import pytest

from pipeline.errors import ParseError
from pipeline.methods.tog.answer import first_brace
from pipeline.methods.tog.entities import EntityScores
from pipeline.types import Relation
from tests.methods.tog_prompts import ASKED, FILM, FILM_IN, START, TOWN, enough, entities, relations


@pytest.mark.parametrize(
    ("text", "scores"),
    [
        ("('actor.film', 0.5): x\n('person.town', 0.5): y", {FILM: 0.5, TOWN: 0.5}),
        ('("actor.film (incoming)", .2) ("actor.film", 0.6)', {FILM_IN: 0.25, FILM: 0.75}),
        ("(‘person.town’, 3)", {TOWN: 1.0}),
        ("('person.town', 0.4) ('made.up', 0.6) ('person.town', 0.1)", {TOWN: 1.0}),
    ],
)
def test_relations_are_read_with_scores_that_sum_to_one(text: str, scores: dict[Relation, float]) -> None:
    assert relations().parse(text) == pytest.approx(scores)


def test_a_bare_name_means_the_incoming_relation_when_there_is_no_outgoing_one() -> None:
    assert relations(FILM_IN, TOWN).parse("('actor.film', 1)") == {FILM_IN: 1.0}


@pytest.mark.parametrize("text", ["", "person.town 0.5", "('made.up', 1)", "('person.town', 0)", "('person.town', -1)"])
def test_a_reply_without_a_usable_relation_is_a_parse_error_and_falls_back_to_equal_scores(text: str) -> None:
    with pytest.raises(ParseError):
        relations().parse(text)
    assert relations().fallback(text) == {FILM_IN: 1 / 3, FILM: 1 / 3, TOWN: 1 / 3}


@pytest.mark.parametrize(
    ("text", "scores"),
    [
        ("1. 0.25\n2. 0.75", (0.25, 0.75)),
        ("2) The Salt Road: 0.5", (0.0, 1.0)),
        ("1. Apollo 13: 0.2 (1995)\n2. .2", (0.5, 0.5)),
        ("1. 0\n2. 0", (0.0, 0.0)),
        ("1. 1\n1. 0\n2. 1\n3. 1\n0. 1", (0.5, 0.5)),
        ("1. -0.5\n2. 0.5", (0.0, 1.0)),
    ],
)
def test_entities_are_read_by_number(text: str, scores: tuple[float, ...]) -> None:
    assert entities("m.1", "m.2").parse(text) == scores


@pytest.mark.parametrize("text", ["", "0.5, 0.5", "3. 0.5", "1. the first\n2. 200"])
def test_a_reply_without_a_score_is_a_parse_error_and_falls_back_to_equal_scores(text: str) -> None:
    with pytest.raises(ParseError):
        entities("m.1", "m.2").parse(text)
    assert entities("m.1", "m.2").fallback(text) == (0.5, 0.5)


@pytest.mark.parametrize(
    ("text", "answers"),
    [
        ("{Yes} So the answer is {a; b}.", ("a", "b")),
        ("Thinking {hard}. { YES. } It is {a}.", ("a",)),
        ("{No} The answer is {a}.", None),
        ("{no}", None),
    ],
)
def test_the_verdict_decides_whether_an_answer_is_read(text: str, answers: tuple[str, ...] | None) -> None:
    read = enough(START.then(FILM, "m.1")).parse(text)
    assert (read.texts if read else None) == answers


@pytest.mark.parametrize("text", ["", "Yes, it is {a}.", "{Yes} It is a.", "{Yes} {}", "{a}", "{nobody}"])
def test_without_a_verdict_or_an_answer_the_search_continues(text: str) -> None:
    with pytest.raises(ParseError):
        enough().parse(text)
    assert enough().fallback(text) is None


def test_first_brace_reads_like_the_published_code() -> None:
    assert first_brace("{Yes} It is {a}.") == ("Yes",)
    assert first_brace("It is a.") == ("It is a.",)
    assert first_brace(" {} ") == ()


def test_equal_names_are_distinguished_by_their_numbers() -> None:
    prompt = EntityScores(
        ASKED, START, TOWN, ("e.1", "e.2", "m.1"), {"Ann": "Ann", "e.1": "Paris", "e.2": "Paris\nTexas", "m.1": None}
    )
    assert prompt.inputs()["candidates"] == "1. Paris\n2. Paris Texas\n3. <cvt 1>"
