"""Whatever a model writes, PARoG's parsers return a value or complain with ParseError (methods.md §2.4)."""

from __future__ import annotations

from random import Random
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from pipeline.datasets.gold_paths import query_operation
from pipeline.kg.paths import Leg
from pipeline.llm.oracle import Truth
from pipeline.llm.prompt import Prompt
from pipeline.methods.instance import Instance
from pipeline.methods.parog.aggregate import Aggregate
from pipeline.methods.parog.entities import Candidates, SelectEntities
from pipeline.methods.parog.outcome import Found, Outcome
from pipeline.methods.parog.plan import SubGoal, whole_question
from pipeline.methods.parog.planning import MakePlan
from pipeline.methods.parog.refine import Align, Correct, Read, Refine, Suffice
from pipeline.methods.parog.relations import Offer, SelectRelations
from pipeline.methods.parog.showing import Showing
from pipeline.methods.parog.tentative import AnswerTentatively
from pipeline.methods.parsing import read_records
from pipeline.retrieval.lexical import LexicalEncoder
from pipeline.types import Gold, GoldAnswer, Relation
from tests.methods.hostile import COMMON, damaged_replies, nothing_evaluated, read, texts
from tests.methods.support import question

ASKED = question("wer führte Regie bei “Amélie”?", "Amélie", "O’Hara")
DIRECTED = Relation("film.directed_by", "out")
ACTED = Relation("film.actor", "in")
FACT = Instance("Amélie").then(DIRECTED, "Jeunet")
OTHER = Instance("Amélie").then(ACTED, "Tautou")
WAY = Leg(frozenset({"Amélie"}), (DIRECTED,), frozenset({"Jeunet"}), frozenset({"Jeunet"}))
KNOWN = Truth(ASKED, Gold((GoldAnswer("Jeunet"),)), {"Amélie": ((DIRECTED,),)}, ways={"Amélie": (WAY,)})
SHOWING = Showing({name: name for name in ("Amélie", "O’Hara", "Jeunet", "Tautou")})
GOAL = SubGoal(1, ASKED.text)
DONE = Outcome(GOAL, (Found("Jeunet", "Jeunet"), Found("Tautou")), (FACT,), SHOWING.names)
ABOUT = (ASKED, GOAL, (FACT, OTHER), SHOWING, (DONE,), ("Jean",))
OFFERS = (Offer("Amélie", ("Amélie",), (DIRECTED, ACTED)), Offer("O’Hara", ("O’Hara",), (ACTED,)))

PROMPTS: list[Prompt[Any]] = [
    MakePlan(ASKED),
    AnswerTentatively(ASKED, GOAL, (DONE,)),
    SelectRelations(ASKED, GOAL, whole_question(ASKED), OFFERS, SHOWING.names),
    SelectEntities(ASKED, GOAL, (Candidates("Amélie", "film.directed_by", (("Jeunet", FACT), ("Tautou", OTHER))),)),
    Refine(*ABOUT),
    Align(*ABOUT),
    Correct(*ABOUT),
    Suffice(*ABOUT),
    Read(*ABOUT),
    Aggregate(ASKED, (DONE,), (FACT, OTHER), SHOWING),
]

PIECES = [
    *COMMON,
    *('"id":', '"goal":', '"op":', '"uses":', '"answers":', '"aligned":', '"done":', '"final":', '"keep":', '"bound":'),
    *("^", "#1", "#2", "step 1", "both 1", "count", "^film.actor", "<unnamed 1>", "(1 and " * 9),
]
TEXTS = texts(PIECES)
EXAMPLES = settings(
    max_examples=400, deadline=None, suppress_health_check=[HealthCheck.too_slow, HealthCheck.function_scoped_fixture]
)


@pytest.mark.parametrize("prompt", PROMPTS, ids=lambda prompt: prompt.role)
@EXAMPLES
@given(text=TEXTS)
def test_random_and_hostile_text(prompt: Prompt[Any], text: str) -> None:
    read(prompt, text)


@pytest.mark.parametrize("prompt", PROMPTS, ids=lambda prompt: prompt.role)
@EXAMPLES
@given(data=st.data())
def test_damaged_replies(prompt: Prompt[Any], data: st.DataObject) -> None:
    for text in data.draw(damaged_replies(prompt, KNOWN, PIECES)):
        read(prompt, text)


@pytest.mark.parametrize("prompt", PROMPTS, ids=lambda prompt: prompt.role)
@pytest.mark.parametrize("opening", ["", '[{"id": 1, "goal": "', '{"answers": ["', "1. (1"])
def test_one_piece_over_and_over(prompt: Prompt[Any], opening: str) -> None:
    for piece in PIECES:
        read(prompt, opening + piece * (20_000 // len(piece)))


@pytest.mark.parametrize("prompt", PROMPTS, ids=lambda prompt: prompt.role)
def test_simulated_models_write_what_is_read(prompt: Prompt[Any]) -> None:
    prompt.messages()
    for text in (
        prompt.write_as_oracle(KNOWN, None),
        prompt.write_as_oracle(KNOWN, Random(1)),
        prompt.write_as_oracle(Truth(ASKED, Gold(), {}), None),
        prompt.write_by_similarity(LexicalEncoder()),
    ):
        assert read(prompt, text)
    right, wrong = prompt.write_as_oracle(KNOWN, None), prompt.write_as_oracle(KNOWN, Random(1))
    assert prompt.parse(right) != prompt.parse(wrong)


@pytest.mark.parametrize(
    ("text", "records"),
    [
        ('{"a": 1} and {"b": {"c": 2}}', [{"a": 1}, {"b": {"c": 2}}]),
        ('a { brace, then {"a": [1, {"x": 2}]}', [{"a": [1, {"x": 2}]}]),
        ('{"a": 1', []),
        ("none", []),
    ],
)
def test_all_records_of_a_text_are_found(text: str, records: list[object]) -> None:
    with nothing_evaluated():
        found = read_records(text)
    assert found == records


@pytest.mark.parametrize("sparql", ["", "SELECT", "DROP GRAPH <x>", "SELECT ?x WHERE { ?x <http://a> ?y }"])
def test_gold_sparql_without_an_operation(sparql: str) -> None:
    with nothing_evaluated():
        operation = query_operation(sparql)
    assert operation is None
