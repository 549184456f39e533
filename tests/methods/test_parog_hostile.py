"""PARoG's parsers return a value or raise ParseError for every text (specification §2.4)."""

from __future__ import annotations

from random import Random
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from pipeline.datasets.gold_paths import query_operation
from pipeline.llm.prompt import Prompt
from pipeline.methods.grounded_path import GroundedPath
from pipeline.methods.parog.aggregate import Aggregate
from pipeline.methods.parog.entities import CandidateGroup, SelectEntities
from pipeline.methods.parog.node_labels import SubgoalLabels
from pipeline.methods.parog.plan import SubGoal, whole_question
from pipeline.methods.parog.planning import MakePlan
from pipeline.methods.parog.refine import Align, Correct, Read, Refine, Suffice, SufficeAlone
from pipeline.methods.parog.relations import Offer, SelectRelations
from pipeline.methods.parog.subgoal_result import SubgoalAnswer, SubgoalResult
from pipeline.methods.parog.tentative import AnswerTentatively
from pipeline.methods.parsing import read_records
from pipeline.retrieval.lexical import LexicalEncoder
from pipeline.simulation.gold_context import GoldContext
from pipeline.simulation.gold_path_search import Leg
from pipeline.simulation.registry import write_as_oracle, write_by_similarity
from pipeline.types import Gold, GoldAnswer, Relation
from tests.methods.hostile import COMMON, damaged_replies, nothing_evaluated, read, texts
from tests.methods.support import question
from tests.support import sampled

ASKED = question("wer führte Regie bei “Amélie”?", "Amélie", "O’Hara")
DIRECTED = Relation("film.directed_by", "out")
ACTED = Relation("film.actor", "in")
FACT = GroundedPath("Amélie").then(DIRECTED, "Jeunet")
OTHER = GroundedPath("Amélie").then(ACTED, "Tautou")
LEG = Leg(frozenset({"Amélie"}), (DIRECTED,), frozenset({"Jeunet"}), frozenset({"Jeunet"}))
GOLD_CONTEXT = GoldContext(ASKED, Gold((GoldAnswer("Jeunet"),)), {"Amélie": ((DIRECTED,),)}, legs={"Amélie": (LEG,)})
LABELS = SubgoalLabels({name: name for name in ("Amélie", "O’Hara", "Jeunet", "Tautou")})
GOAL = SubGoal(1, ASKED.text)
RESULT = SubgoalResult(GOAL, (SubgoalAnswer("Jeunet", "Jeunet"), SubgoalAnswer("Tautou")), (FACT,), LABELS.names)
LABELS.add_facts((FACT, OTHER))
LABELS.add_answers((RESULT,))
INPUTS = (ASKED, GOAL, (FACT, OTHER), LABELS, (RESULT,), ("Jean",))
OFFERS = (Offer("Amélie", ("Amélie",), (DIRECTED, ACTED)), Offer("O’Hara", ("O’Hara",), (ACTED,)))

GROUP = CandidateGroup("Amélie", "film.directed_by", (("Jeunet", FACT), ("Tautou", OTHER)))

PROMPTS: list[Prompt[Any]] = [
    MakePlan(ASKED, max_subgoals=6),
    AnswerTentatively(ASKED, GOAL, (RESULT,), LABELS),
    SelectRelations(ASKED, GOAL, whole_question(ASKED), (RESULT,), OFFERS, LABELS, max_relations=5),
    SelectEntities(
        ASKED,
        GOAL,
        whole_question(ASKED),
        (CandidateGroup("Amélie", "film.directed_by", (("Jeunet", FACT), ("Tautou", OTHER))),),
    ),
    Refine(*INPUTS),
    Align(*INPUTS),
    Correct(*INPUTS),
    Suffice(*INPUTS),
    SufficeAlone(*INPUTS),
    Read(*INPUTS),
    Aggregate(ASKED, (RESULT,), (FACT, OTHER), LABELS),
]

PIECES = [
    *COMMON,
    *('"id":', '"goal":', '"op":', '"uses":', '"answers":', '"aligned":', '"done":', '"final":', '"keep":', '"bound":'),
    *("^", "#1", "#2", "step 1", "both 1", "count", "^film.actor", "<unnamed 1>", "(1 and " * 9),
]
TEXTS = texts(PIECES)
EXAMPLES = settings(
    max_examples=4 * settings().max_examples,
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.function_scoped_fixture],
)


@pytest.mark.parametrize("prompt", PROMPTS, ids=lambda prompt: prompt.role)
@EXAMPLES
@given(text=TEXTS)
def test_random_and_hostile_texts_never_break_a_parser(prompt: Prompt[Any], text: str) -> None:
    read(prompt, text)


@pytest.mark.parametrize("prompt", PROMPTS, ids=lambda prompt: prompt.role)
@EXAMPLES
@given(data=st.data())
def test_damaged_replies_never_break_a_parser(prompt: Prompt[Any], data: st.DataObject) -> None:
    for text in data.draw(damaged_replies(prompt, GOLD_CONTEXT, PIECES)):
        read(prompt, text)


@pytest.mark.parametrize("prompt", sampled(PROMPTS), ids=lambda prompt: prompt.role)
@pytest.mark.parametrize("opening", ["", '[{"id": 1, "goal": "', '{"answers": ["', "1. (1"])
def test_a_piece_repeated_many_times_never_breaks_a_parser(prompt: Prompt[Any], opening: str) -> None:
    for piece in PIECES:
        read(prompt, opening + piece * (20_000 // len(piece)))


@pytest.mark.parametrize("prompt", PROMPTS, ids=lambda prompt: prompt.role)
def test_the_replies_of_simulated_models_can_be_parsed(prompt: Prompt[Any]) -> None:
    for text in (
        write_as_oracle(prompt, GOLD_CONTEXT, None),
        write_as_oracle(prompt, GOLD_CONTEXT, Random(1)),
        write_as_oracle(prompt, GoldContext(ASKED, Gold(), {}), None),
        write_by_similarity(prompt, LexicalEncoder()),
    ):
        assert read(prompt, text)
    right, wrong = write_as_oracle(prompt, GOLD_CONTEXT, None), write_as_oracle(prompt, GOLD_CONTEXT, Random(1))
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
def test_all_json_objects_of_a_text_are_read(text: str, records: list[object]) -> None:
    with nothing_evaluated():
        found = read_records(text)
    assert found == records


@pytest.mark.parametrize("sparql", ["", "SELECT", "DROP GRAPH <x>", "SELECT ?x WHERE { ?x <http://a> ?y }"])
def test_gold_sparql_without_an_operation_gives_none(sparql: str) -> None:
    with nothing_evaluated():
        operation = query_operation(sparql)
    assert operation is None
