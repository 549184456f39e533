"""ArG's prompts: the text before the model, and what is read from its reply (methods.md §4.3, §4.5)."""

from __future__ import annotations

from random import Random
from typing import Any

import pytest

from pipeline.errors import ParseError
from pipeline.methods.arg.answers import AnswerSegment, read_answers
from pipeline.methods.arg.entities import EntitySegment
from pipeline.methods.arg.layout import find_name
from pipeline.methods.arg.relations import HypotheticalRelations, RelationSegment
from pipeline.methods.instance import Instance
from pipeline.retrieval.lexical import LexicalEncoder
from pipeline.types import Relation
from tests.methods.support import literal, question, truth

ASKED = question("who directed it", "Ann")
GROUP = ("film.director", "film.genre", "film.year")
ANN = (Instance("Ann"),)


def relations(**changed: Any) -> RelationSegment:
    return RelationSegment(ASKED, changed.pop("prompted", False), "[Retrieve Relation]", GROUP, ANN)


def entities(*ends: Any, shown: int = 5, fanout: int = 3, names: dict[str, str | None] | None = None) -> EntitySegment:
    tails = tuple(ANN[0].then(Relation("film.director", "out"), end) for end in ends)
    known = {"Ann": "Ann"} | {end: end for end in ends if isinstance(end, str)} | (names or {})
    return EntitySegment(ASKED, False, "so far[Retrieve Entity]", ANN[0], "film.director", tails, known, shown, fanout)


def test_the_finetuned_model_sees_the_question_alone_and_goes_on_with_its_own_turn() -> None:
    messages = relations().messages()
    assert [message.role for message in messages] == ["user", "assistant"]
    assert messages[0].content == "who directed it"
    assert messages[1].content == "[Retrieve Relation]<paragraph>film.director;film.genre;film.year</paragraph>"


def test_the_prompted_model_is_told_everything_in_two_turns() -> None:
    system, user = relations(prompted=True).messages()
    assert (system.role, user.role) == ("system", "user")
    assert system.content.count("[Utility:5]") == 2
    assert system.content.count("[No Retrieval]Answer:") == 3
    assert "Question: who directed it?\nText so far: [Retrieve Relation]<paragraph>film.director;" in user.content


def test_the_complaint_of_a_second_try_does_not_get_into_the_text() -> None:
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
def test_relation_segments(text: str, read: str) -> None:
    sign = {"[Fully Relevant]": "+", "[Partially Relevant]": "~", "[Unrelevant]": "-"}
    assert " ".join(pair.name + sign[pair.mark.token] for pair in relations().parse(text)) == read


def test_the_place_of_a_pair_counts_dropped_names() -> None:
    (pair,) = relations().parse("film.other[Unrelevant]film.year[Partially Relevant]")
    assert pair.mark.place == 1


@pytest.mark.parametrize("text", ["", "film.director", "[Retrieve Entity]film.director[Relevant]", "film.x[Relevant]"])
def test_a_segment_without_a_pair_complains_and_the_node_dies(text: str) -> None:
    with pytest.raises(ParseError, match="no relation of the paragraph"):
        relations().parse(text)
    assert relations().fallback(text) == ()


def test_made_up_relations_may_come_in_a_paragraph_of_their_own() -> None:
    hypo = HypotheticalRelations(ASKED, False, "[Retrieve Relation]", ANN)
    text = "<paragraph>a.b;c.d;e.f</paragraph>a.b[Fully Relevant]c.d[Unrelevant]e.f[Partially Relevant]"
    assert hypo.parse(text) == ("a.b", "e.f")
    with pytest.raises(ParseError):
        hypo.parse("<paragraph>a.b")
    assert hypo.fallback("") == ()


def test_tails_are_shown_by_distinct_names_and_unnamed_ones_once() -> None:
    segment = entities("Bo", "m.1", "m.2", "Cy", "Di", shown=3, names={"m.1": None, "m.2": None})
    assert segment.shown == (
        "so far[Retrieve Entity]<paragraph>(Ann, film.director, Bo);(Ann, film.director, Unknown Entity);"
        "(Ann, film.director, Cy)</paragraph>"
    )


def test_relevant_tails_go_on_and_the_placeholder_stands_for_a_few() -> None:
    unnamed = [f"m.{n}" for n in range(6)]
    segment = entities("Bo", *unnamed, "Cy", shown=2, fanout=2, names=dict.fromkeys(unnamed))
    reading = segment.parse(
        "Bo[Unrelevant]unknown entity[Partially]Cy[Fully Relevant][Fully Reasonable][Retrieve Relation]<paragraph>"
    )
    assert [walk.end for walk in reading.relevant] == ["m.0", "m.1", "Cy"], (
        "a fetched tail may be named though not shown"
    )
    assert (reading.ends, reading.is_unreasonable, len(reading.relevance)) == (False, False, 3)


def test_a_segment_that_answers() -> None:
    reading = entities("Bo", literal("1999")).parse(
        "Bo[Fully Relevant][Unreasonable][No Retrieval]Answer: Bo[Fully Useful];1999;Cy[Not Useful][Utility:2]"
    )
    assert reading.ends
    assert reading.is_unreasonable
    assert reading.answered is not None
    assert reading.answered.texts == ("Bo", "1999")
    assert reading.answered.utility is not None
    assert reading.answered.utility.token == "[Utility:2]"


@pytest.mark.parametrize("text", ["Bo[Fully Relevant][Fully Reasonable]", "[No Retrieval]Answer: [Utility:1]", ""])
def test_a_segment_that_breaks_off_is_a_leaf_without_answer(text: str) -> None:
    with pytest.raises(ParseError):
        entities("Bo").parse(text)
    fallen = entities("Bo").fallback(text)
    assert (fallen.ends, fallen.answered, fallen.relevant) == (True, None, ())


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
def test_reading_answers(text: str, answers: list[str]) -> None:
    known = {"o'hara": "O’Hara", "me, myself; i": "Me, Myself; I"}
    assert list(read_answers(text, known).texts) == answers


def test_a_forced_answer_goes_on_from_the_text() -> None:
    segment = AnswerSegment(ASKED, False, "text[Retrieve Relation]", ANN, {"Ann": "Ann"})
    assert segment.shown == "text[No Retrieval]Answer:"
    assert segment.parse(" ANN[Fully Useful][Utility:3]").texts == ("Ann",)
    with pytest.raises(ParseError):
        segment.parse("[Utility:3]")
    assert segment.fallback("x").texts == ()


def test_names_are_found_behind_remarks() -> None:
    offered = {"amélie": "Amélie"}
    assert find_name("AMÉLIE", offered) == "Amélie"
    assert find_name("I think:\n- Amélie", offered) == "Amélie"
    assert find_name("Amelia", offered) is None


# The oracle and the similarity policy


KNOWN = truth(ASKED, ["Bo"], {"Ann": ["film.director", "film.genre -> film.year"]})


def test_the_oracle_follows_the_best_path_first() -> None:
    assert relations().write_as_oracle(KNOWN, None) == (
        "film.director[Fully Relevant]film.genre[Partially Relevant]film.year[Unrelevant][Retrieve Entity]"
    )
    assert "film.year[Fully Relevant]" in relations().write_as_oracle(KNOWN, Random(1)), "the only wrong one"
    hypo = HypotheticalRelations(ASKED, False, "", ANN)
    assert hypo.parse(hypo.write_as_oracle(KNOWN, None)) == ("film.director",)
    assert hypo.parse(hypo.write_as_oracle(KNOWN, Random(1))) != ("film.director",)


def test_the_oracle_answers_what_it_is_shown() -> None:
    reading = entities("Bo", "Cy").parse(entities("Bo", "Cy").write_as_oracle(KNOWN, None))
    assert reading.answered is not None
    assert (reading.answered.texts, [walk.end for walk in reading.relevant]) == (("Bo",), ["Bo"])
    lost = entities("Cy").parse(entities("Cy").write_as_oracle(KNOWN, None))
    assert lost.answered is not None
    assert (lost.is_unreasonable, lost.answered.texts) == (True, ("unknown",))
    forced = AnswerSegment(ASKED, False, "[Retrieve Relation]", ANN, {"Ann": "Ann"})
    assert forced.parse(forced.write_as_oracle(KNOWN, None)).texts == ("unknown",)


def test_the_oracle_goes_on_from_no_node_that_the_walk_was_at_before() -> None:
    films = truth(ASKED, ["Cy"], {"Ann": ["film.director -> film.year"]})
    reading = entities("Ann", "Bo").parse(entities("Ann", "Bo").write_as_oracle(films, None))
    assert ([walk.end for walk in reading.relevant], reading.ends) == (["Bo"], False)
    back = entities("Ann").parse(entities("Ann").write_as_oracle(films, None))
    assert (back.is_unreasonable, back.ends) == (True, True)


def test_a_slip_at_the_entities_is_well_formed_and_wrong() -> None:
    for seed in range(20):
        reading = entities("Bo", "Cy").parse(entities("Bo", "Cy").write_as_oracle(KNOWN, Random(seed)))
        assert [walk.end for walk in reading.relevant] == ["Cy"]
        assert reading.answered is None or reading.answered.texts == ("Cy",)


def test_the_similarity_policy_takes_the_likest_relation_and_all_its_tails() -> None:
    asked = question("which genre?", "Ann")
    segment = RelationSegment(asked, False, "", GROUP, ANN)
    read = segment.parse(segment.write_by_similarity(LexicalEncoder()))
    assert [pair.name for pair in read if pair.mark.token == "[Fully Relevant]"] == ["film.genre"]
    reading = entities("Bo", "Cy").parse(entities("Bo", "Cy").write_by_similarity(LexicalEncoder()))
    assert reading.answered is not None
    assert reading.answered.texts == ("Bo", "Cy")
