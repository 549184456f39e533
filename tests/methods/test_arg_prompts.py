"""ArG's prompts: what they render, and what they parse (specification §4.3, §4.5)."""

from __future__ import annotations

from dataclasses import replace

import pytest

from pipeline.errors import ParseError
from pipeline.methods.arg.answers import AnswerSegment, read_answers
from pipeline.methods.arg.relations import HypotheticalRelations, RelationJudgement
from pipeline.methods.arg.tokens import CLASSES
from pipeline.methods.arg.transcript import find_name
from pipeline.types import Relation
from tests.methods.arg_prompts import ANN, ASKED, entities, relations
from tests.methods.support import literal

RELEVANT = "[Fully Relevant]"


def test_the_finetuned_model_sees_the_question_and_continues_its_own_turn() -> None:
    messages = relations().messages()
    assert [message.role for message in messages] == ["user", "assistant"]
    assert messages[0].content == "who directed it"
    assert messages[1].content == "[Retrieve Relation]<paragraph>film.director;film.genre;film.year</paragraph>"


def test_the_prompted_model_sees_instructions_and_the_text_so_far() -> None:
    system, user = relations(prompted=True).messages()
    assert (system.role, user.role) == ("system", "user")
    assert all(
        token in system.content for kind in ("relevance", "rationality", "usefulness") for token in CLASSES[kind]
    )
    assert system.content.count("[No Retrieval]Answer:") == 2, "two complete examples"
    assert "Question: who directed it?\nText: [Retrieve Relation]<paragraph>film.director;" in user.content
    assert "Batch 1 of 1." in user.content


def test_the_complaint_of_a_retry_is_not_part_of_the_transcript() -> None:
    rendered = relations().template.render(relations().inputs() | {"complaint": "no pair"})
    assert rendered[-1] == relations().messages()[-1]
    assert "could not be used: no pair" in rendered[0].content


@pytest.mark.parametrize(
    ("text", "read"),
    [
        ("film.director[Fully Relevant]film.genre[Unrelevant][Retrieve Entity]", "film.director+ film.genre-"),
        ("FILM.DIRECTOR [relevant]; film.genre[Partially][Entity Retrieval]x", "film.director+ film.genre~"),
        ("Sure:\n- film.genre[Irrelevant]", "film.genre-"),
        ("film.other[Fully Relevant]film.year[Partially Relevant]", "film.year~"),
        ("film.year[Unrelevant]film.year[Fully Relevant]", "film.year-"),
        ("film.year[Fully Relevant][Retrieve Entity]film.genre[Fully Relevant]", "film.year+"),
        ("film.year[Fully Relevant][Retrieve Entity]<paragraph>(a, b, c)</paragraph>c[Relevant]", "film.year+"),
    ],
)
def test_relation_segments_are_parsed(text: str, read: str) -> None:
    sign = {"[Fully Relevant]": "+", "[Partially Relevant]": "~", "[Unrelevant]": "-"}
    assert " ".join(pair.name + sign[pair.token.text] for pair in relations().parse(text).labelled) == read


def test_the_index_of_a_token_counts_those_of_dropped_names() -> None:
    (pair,) = relations().parse("film.other[Unrelevant]film.year[Partially Relevant]").labelled
    assert pair.token.index == 1


@pytest.mark.parametrize("text", ["", "film.director", "[Retrieve Entity]film.director[Relevant]", "film.x[Relevant]"])
def test_a_segment_without_a_labelled_relation_cannot_be_parsed(text: str) -> None:
    with pytest.raises(ParseError, match="no relation of the paragraph"):
        relations().parse(text)
    assert relations().fallback(text) == RelationJudgement()


@pytest.mark.parametrize("text", ["[No Retrieval]Answer: Bo", "film.year[Relevant][No Retrieval][Retrieve Entity]"])
def test_a_segment_of_relations_may_decline_to_retrieve(text: str) -> None:
    assert relations().parse(text).declines
    assert not relations().parse(f"film.year[Relevant][Retrieve Entity]{text}").declines


def test_hypothetical_relations_may_start_with_a_paragraph() -> None:
    hypo = HypotheticalRelations(ASKED, False, "[Retrieve Relation]", ANN)
    text = "<paragraph>a.b;c.d;e.f</paragraph>a.b[Fully Relevant]c.d[Unrelevant]e.f[Partially Relevant]"
    assert hypo.parse(text) == ("a.b", "e.f")
    with pytest.raises(ParseError):
        hypo.parse("<paragraph>a.b")
    assert hypo.fallback("") == ()


def test_each_tail_name_is_shown_once_and_unnamed_tails_share_a_placeholder() -> None:
    segment = entities("Bo", "m.1", "m.2", "Cy", "Di", shown=3, names={"m.1": None, "m.2": None})
    assert segment.text_so_far == (
        "so far[Retrieve Entity]<paragraph>(Ann, film.director, Bo);(Ann, film.director, Unknown Entity);"
        "(Ann, film.director, Cy)</paragraph>"
    )


def test_relevant_tails_are_returned_and_the_placeholder_selects_a_few() -> None:
    unnamed = [f"m.{n}" for n in range(6)]
    segment = entities("Bo", *unnamed, "Cy", shown=2, fanout=2, names=dict.fromkeys(unnamed))
    judgement = segment.parse(
        "Bo[Unrelevant]unknown entity[Partially]Cy[Fully Relevant][Fully Reasonable][Retrieve Relation]<paragraph>"
    )
    assert [walk.end for walk in judgement.relevant] == ["m.0", "m.1", "Cy"], (
        "a fetched tail may be named though not shown"
    )
    assert (judgement.ends, judgement.is_unreasonable, len(judgement.relevance)) == (False, False, 3)


def test_a_segment_with_answers_is_parsed() -> None:
    judgement = entities("Bo", literal("1999")).parse(
        "Bo[Fully Relevant][Unreasonable][No Retrieval]Answer: Bo[Fully Useful];1999;Cy[Not Useful][Utility:2]"
    )
    assert judgement.ends
    assert judgement.is_unreasonable
    assert judgement.answers is not None
    assert judgement.answers.texts == ("Bo", "1999")
    assert judgement.answers.utility is not None
    assert judgement.answers.utility.text == "[Utility:2]"


@pytest.mark.parametrize("text", ["Bo[Fully Relevant][Fully Reasonable]", "[No Retrieval]Answer: [Utility:1]", ""])
def test_an_incomplete_segment_falls_back_to_a_leaf_without_answer(text: str) -> None:
    with pytest.raises(ParseError):
        entities("Bo").parse(text)
    fallback = entities("Bo").fallback(text)
    assert (fallback.ends, fallback.answers, fallback.relevant) == (True, None, ())


def test_an_incoming_fact_has_the_graphs_own_subject_unless_the_layout_begins_at_the_entity() -> None:
    incoming = (ANN[0].then(Relation("film.director", "in"), "Bo"), ANN[0].then(Relation("film.director", "out"), "Cy"))
    both = replace(entities("Bo", "Cy"), tails=incoming)
    assert "(Bo, film.director, Ann);(Ann, film.director, Cy)" in both.text_so_far
    assert "(Ann, film.director, Bo);(Ann, film.director, Cy)" in replace(both, facts="walk").text_so_far
    assert both.parse(f"Bo{RELEVANT}[Fully Reasonable][Retrieve Relation]").relevant == incoming[:1]


def test_an_explained_turn_says_how_many_nodes_are_hidden_and_beside_which_one_they_are() -> None:
    user = replace(entities("Bo", "Cy", "Di", shown=2), prompted=True).messages()[-1].content
    assert "2 of 3 nodes beside Ann are shown." in user


def test_the_tails_that_a_prompted_model_judged_before_a_cut_are_followed() -> None:
    text = f"Bo{RELEVANT}Cy[Unrelevant]Di[Fully Rel"
    cut = replace(entities("Bo", "Cy", "Di"), prompted=True).fallback(text)
    assert ([walk.end for walk in cut.relevant], cut.ends, cut.rationality) == (["Bo"], False, None)
    assert len(cut.relevance) == 2
    assert entities("Bo", "Cy", "Di").fallback(text).ends, "a trained model was taught to end its segment"
    assert replace(entities("Bo"), prompted=True).fallback("I do not know").ends


def test_the_relations_of_a_paragraph_that_was_cut_are_used() -> None:
    hypo = HypotheticalRelations(ASKED, True, "[Retrieve Relation]", ANN)
    assert hypo.fallback("<paragraph>a.b;c.d;e.") == ("a.b", "c.d")
    assert replace(hypo, prompted=False).fallback("<paragraph>a.b;c.d;e.") == ()


@pytest.mark.parametrize(
    "text",
    ["none[Not Useful][Utility:1]", "None", "none[Not Useful]", " none [Not Useful]; none[Not Useful][Utility:2]"],
)
def test_a_model_may_give_no_answer(text: str) -> None:
    judgement = entities("Bo").parse(f"Bo[Unrelevant][Unreasonable][No Retrieval]Answer: {text}")
    assert judgement.ends
    assert judgement.answers is not None
    assert (judgement.answers.texts, judgement.answers.is_none) == ((), True)
    assert AnswerSegment(ASKED, True, "x", ANN, {"Ann": "Ann"}).parse(text).is_none


def test_a_node_named_none_is_an_answer_and_none_beside_an_answer_is_not() -> None:
    assert read_answers("Answer: none[Fully Useful][Utility:5]", {"none": "None"}).texts == ("None",)
    assert read_answers("Answer: a[Fully Useful];none[Not Useful][Utility:5]", {}).texts == ("a",)
    assert read_answers("Answer: a[Not Useful];none[Not Useful][Utility:1]", {}).texts == ("a",)


@pytest.mark.parametrize(
    ("text", "answers"),
    [
        ("a[Fully Useful];Rapa Nui[Fully", ["a", "Rapa Nui"]),
        ("a[Fully Useful];Rapa Nui[", ["a", "Rapa Nui"]),
        ("a[Fully Useful];Rapa", ["a", "Rapa Nui"]),
        ("a[Fully Useful];[REC", ["a", "[REC"]),
        ("a[Fully Useful];S", ["a", "S"]),
        ("a[Fully Useful];Rapa[Utility:5]", ["a", "Rapa"]),
        ("Rapa", ["Rapa"]),
        ("a[Fully Useful];b[Fully Useful][Util", ["a", "b"]),
    ],
)
def test_answers_before_a_cut_are_kept_and_a_name_that_was_cut_is_completed(text: str, answers: list[str]) -> None:
    known = {"rapa nui": "Rapa Nui", "salt": "Salt", "salz": "Salz"}
    assert list(read_answers(f"Answer: {text}", known).texts) == answers


@pytest.mark.parametrize(
    ("text", "answers"),
    [
        ("Answer: a[Fully Useful];b[Fully Useful][Utility:5]", ["a", "b"]),
        ("Answer: a; b ;a", ["a", "b"]),
        ("a[Not Useful];b[Not Useful][Utility:1]", ["a", "b"]),
        ("Answer: a[Not Useful];b[Partially Useful]c", ["b", "c"]),
        ("Answer: O'Hara; Me, Myself; I[Fully Useful]", ["O’Hara", "Me, Myself", "I"]),
        ("Answer: Me, Myself; I[Fully Useful][Utility:5] and more", ["Me, Myself; I"]),
        ("Answer: [Utility:4]", []),
    ],
)
def test_answers_are_parsed(text: str, answers: list[str]) -> None:
    known = {"o'hara": "O’Hara", "me, myself; i": "Me, Myself; I"}
    assert list(read_answers(text, known).texts) == answers


def test_a_forced_answer_continues_the_transcript() -> None:
    segment = AnswerSegment(ASKED, False, "text[Retrieve Relation]", ANN, {"Ann": "Ann"})
    assert segment.text_so_far == "text[No Retrieval]Answer:"
    assert segment.parse(" ANN[Fully Useful][Utility:3]").texts == ("Ann",)
    with pytest.raises(ParseError):
        segment.parse("[Utility:3]")
    assert segment.fallback("x").texts == ()


def test_names_are_found_after_remarks() -> None:
    offered = {"amélie": "Amélie"}
    assert find_name("AMÉLIE", offered) == "Amélie"
    assert find_name("I think:\n- Amélie", offered) == "Amélie"
    assert find_name("Amelia", offered) is None
