"""The parsers of PoG's prompts: what they accept, refuse and ignore (specification §16.3)."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from pipeline.errors import ParseError
from pipeline.llm.prompt import Prompt
from pipeline.methods.pog.reflect import Reflection
from pipeline.methods.pog.selection import Selection
from pipeline.methods.pog.verdict import read_verdict
from pipeline.simulation.registry import write_as_oracle
from tests.methods.hostile import COMMON, damaged_replies, read, texts
from tests.methods.pog_prompts import (
    ALONE,
    ANSWER,
    ASKED,
    BACKTRACK,
    ENTITIES,
    ENTITIES_BATCHED,
    EVALUATE,
    FACTS,
    KNOWN,
    MEMORY,
    PLAN,
    PROMPTS,
    REFLECT,
    RELATIONS,
    RELATIONS_BATCHED,
    SHOWN,
    STATUS,
)
from tests.support import sampled

PIECES = [
    *COMMON,
    *('{"sufficient": true, "answers": ["', '"]}', '{"A": {"Sufficient": "Yes", "Answer": "', '{"add": "YES"', '["'),
    *("Jeunet #2", "<unnamed 1>", "m.0abc", "Delicatessen [1991], restored", '{"1": ["film.genre"], "2": []}', "null"),
]
EXAMPLES = settings(suppress_health_check=[HealthCheck.too_slow])
EACH_PROMPT = pytest.mark.parametrize("prompt", PROMPTS, ids=lambda prompt: f"{prompt.role}-{len(prompt.inputs())}")


@EACH_PROMPT
@EXAMPLES
@given(text=texts(PIECES))
def test_random_and_hostile_text_is_read_or_refused(prompt: Prompt[Any], text: str) -> None:
    read(prompt, text)


@EACH_PROMPT
@EXAMPLES
@given(data=st.data())
def test_damaged_replies_are_read_or_refused(prompt: Prompt[Any], data: st.DataObject) -> None:
    for text in data.draw(damaged_replies(prompt, KNOWN, PIECES)):
        read(prompt, text)


@pytest.mark.parametrize("prompt", sampled(PROMPTS), ids=lambda prompt: prompt.role)
def test_a_piece_that_is_repeated_many_times_is_read_or_refused(prompt: Prompt[Any]) -> None:
    for piece in PIECES:
        read(prompt, '{"sufficient": true, "answers": [' + piece * (100_000 // len(piece)))


@EACH_PROMPT
def test_a_reply_of_the_oracle_can_be_read(prompt: Prompt[Any]) -> None:
    assert read(prompt, write_as_oracle(prompt, KNOWN, None))


@pytest.mark.parametrize(
    "text",
    [
        '["film.directed_by"]',
        "```json\n['film.directed_by']\n```",
        "The directors are needed [see above].\nSo: ['Film.Directed_By',]. That is all.",
        "[film.directed_by]",
        "Picked: [“film.directed_by”]",
    ],
)
def test_lists_in_all_shapes(text: str) -> None:
    assert RELATIONS.parse(text) == (Selection((0,)),)


def test_a_relation_that_exists_in_both_directions_is_offered_once() -> None:
    assert RELATIONS_BATCHED.lists[1].names == ("person.film",)


def test_names_that_were_not_offered_are_dropped_and_told() -> None:
    assert RELATIONS.parse('["film.cast", "film.genre"]') == (Selection((1,), ("film.cast",)),)
    with pytest.raises(ParseError, match="none of the names"):
        RELATIONS.parse('["film.cast"]')


def test_an_empty_list_is_a_choice_and_garbage_is_none() -> None:
    for prompt in (RELATIONS, ENTITIES):
        assert prompt.parse("[]") == (Selection(),)
        with pytest.raises(ParseError, match="no list"):
            prompt.parse("None of them.")
        assert prompt.fallback("None of them.") is None


def test_two_candidates_with_one_name_are_told_apart() -> None:
    assert ENTITIES.inputs()["candidates"] == "Jeunet; Jeunet #2; <unnamed 1>"
    assert ENTITIES.parse('["jeunet #2"]') == (Selection((1,)),)
    assert ENTITIES.parse('["Jeunet", "Jeunet", "<unnamed 1>"]') == (Selection((0, 2)),)


def test_brackets_and_commas_in_a_name() -> None:
    reply = '{"1": [], "2": ["Delicatessen [1991], restored"]}'
    assert ENTITIES_BATCHED.parse(f"Sure: {reply} I hope.") == (Selection(), Selection((0,)))
    assert BACKTRACK.parse('["Delicatessen [1991], restored"]') == Selection((1,))
    assert BACKTRACK.fallback("?") == Selection()


@pytest.mark.parametrize("text", ["[]", "{}", '{"3": ["Jeunet"]}', '{"1": ["Nobody"]}'])
def test_an_object_is_needed_for_several_lists(text: str) -> None:
    if text == "{}":
        assert ENTITIES_BATCHED.parse(text) == (Selection(), Selection())
        return
    with pytest.raises(ParseError):
        ENTITIES_BATCHED.parse(text)


@pytest.mark.parametrize(
    "text",
    [
        '["Find A", "Find B"]',
        "```\n['Find A', 'Find B']\n```",
        "1. Find A\n2. Find B",
        "Here: ['Find A', 'Find B'] (two)",
    ],
)
def test_plans(text: str) -> None:
    assert PLAN.parse(text) == ("Find A", "Find B")


def test_a_line_of_a_plan_may_name_something_in_brackets() -> None:
    assert PLAN.parse("1. Find who wrote [The Quay]\n2. Find B") == ("Find who wrote [The Quay]", "Find B")
    assert PLAN.parse("1. Find who wrote ['The Quay']\n2. Find B []") == ("Find who wrote ['The Quay']", "Find B []")
    assert PLAN.parse("1. First A, then B.\n[Find A, Find B]") == ("Find A", "Find B")
    assert PLAN.parse('1. First A, then B.\n["Find A", "Find B"]') == ("Find A", "Find B")


def test_without_a_readable_plan_the_question_is_the_only_sub_objective() -> None:
    with pytest.raises(ParseError):
        PLAN.parse("I would first look.")
    assert PLAN.fallback("I would first look.") == (ASKED.text,)


def test_sub_objectives_that_the_memory_leaves_out_keep_their_sentence() -> None:
    (first, known), second = STATUS
    assert MEMORY.parse('So {"2.": "it is\\nDelicatessen"}') == ((first, known), (second[0], "it is Delicatessen"))
    assert MEMORY.fallback("?") == STATUS
    for text in ('{"3": "x"}', '{"1": ""}', "x"):
        with pytest.raises(ParseError):
            MEMORY.parse(text)


@pytest.mark.parametrize(
    ("text", "sufficient", "answers"),
    [
        ('{"sufficient": true, "answers": ["Jeunet"], "reason": "shown"}', True, ("Jeunet",)),
        ('{"A": {"Sufficient": "YES", "Answer": "Jeunet"}, "R": "shown"}', True, ("Jeunet",)),
        ('{"A": {"Sufficient": "No", "Answer": null}, "R": "not shown"}', False, ()),
        ('{"sufficient": "Yes", "answers": "Jeunet; Caro | Lyon\\nParis"}', True, ("Jeunet", "Caro", "Lyon", "Paris")),
        ('{"sufficient": "yes", "answers": "Delicatessen [1991], restored"}', True, ("Delicatessen [1991], restored",)),
        ('{"sufficient": true, "answers": ["The \\"Big\\" House"]}', True, ('The "Big" House',)),
        ('{"sufficient": true, "answers": ["m.0abc", "<unnamed 1>", "unknown"]}', True, ()),
        ('{"sufficient": "maybe", "answers": [7]}', False, ("7",)),
    ],
)
def test_verdicts(text: str, sufficient: bool, answers: tuple[str, ...]) -> None:
    verdict = EVALUATE.parse(text)
    assert (verdict.sufficient, verdict.answers, verdict.raw) == (sufficient, answers, text)


def test_a_comma_separates_answers_where_no_shown_name_has_one() -> None:
    text = '{"answers": "Jeunet, Caro"}'
    assert ALONE.parse(text).answers == ("Jeunet", "Caro")
    assert ANSWER.parse(text).answers == ("Jeunet, Caro",)


@given(names=st.lists(st.text(min_size=1).map(str.strip).filter(lambda name: len(name) > 9), max_size=4, unique=True))
def test_a_list_of_answers_is_read_as_it_is(names: list[str]) -> None:
    text = f"Thinking … {json.dumps({'sufficient': bool(names), 'answers': names})} Done."
    verdict = read_verdict(text, ["sufficient"])
    assert verdict.sufficient == bool(names)
    assert [name.strip() for name in verdict.answers] == [name.strip() for name in names]


def test_an_unreadable_verdict_is_not_sufficient_and_an_unreadable_answer_stays_raw() -> None:
    assert not EVALUATE.fallback("Enough!").sufficient
    for prompt in (ANSWER, ALONE):
        assert (prompt.fallback("It is Jeunet.").answers, prompt.fallback("It is Jeunet.").raw) == ((), "It is Jeunet.")


@pytest.mark.parametrize(("word", "add"), [("true", True), ('"Yes"', True), ('"NO"', False), ("null", False)])
def test_reflections(word: str, add: bool) -> None:
    assert REFLECT.parse(f'{{"Add": {word}, "Reason": "lost"}}') == Reflection(add, "lost")
    assert REFLECT.fallback("?") == Reflection(add=False)


def test_facts_have_one_line_per_entity_and_relation_in_the_graphs_own_order() -> None:
    assert str(SHOWN).splitlines() == [
        "Amélie | film.directed_by | Jeunet; Jeunet #2; <unnamed 1>",
        "O’Hara | person.film | Delicatessen [1991], restored; <unnamed 1>",
        "(2 more facts are not shown.)",
    ]
    assert FACTS[0].triples[0].head == "m.amelie"
