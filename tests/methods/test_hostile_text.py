"""Parsers return a value or raise ParseError for any model text, and never evaluate it (specification §2.4)."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from pipeline.llm.prompt import Prompt
from pipeline.methods.arg.answers import AnswerSegment
from pipeline.methods.arg.entities import EntitySegment
from pipeline.methods.arg.relations import HypotheticalRelations, RelationSegment
from pipeline.methods.cot import AnswerAlone
from pipeline.methods.dog.alone import AnswerAlone as DoGAlone
from pipeline.methods.dog.debate import Criticise, Rewrite, Simplify
from pipeline.methods.dog.enough import Enough
from pipeline.methods.dog.relations import ChooseRelations
from pipeline.methods.grounded_path import GroundedPath
from pipeline.methods.rog.plan import ListPaths, PlanPath
from pipeline.methods.rog.read import AnswerAlone as RoGAlone
from pipeline.methods.rog.read import ReadPaths
from pipeline.methods.srp.answer import AnswerFromEvidence
from pipeline.methods.srp.judge import Judge
from pipeline.methods.srp.path_edit import Edit
from pipeline.methods.srp.path_generation import PathGeneration
from pipeline.methods.srp.relation_check import RelationCheck
from pipeline.types import Relation
from tests.methods.hostile import COMMON, damaged_replies, read, texts
from tests.methods.support import gold_context, question
from tests.support import sampled

ASKED = question("wer führte Regie bei “Amélie”?", "Amélie", "O’Hara", dataset="cwq")
KNOWN = gold_context(ASKED, ["Jeunet"], {"Amélie": ["film.directed_by"], "O’Hara": ["person.film -> film.directed_by"]})
FOUND = GroundedPath("Amélie").then(Relation("film.directed_by", "out"), "Jeunet")
NAMES = {"Amélie": "Amélie", "Jeunet": "Jeunet"}
TOPIC = ASKED.topic_entities[0]
RELATIONS = ("film.directed_by", "film.genre")

SHOWN = {"max_path_len": 4, "shown_grounded": 5, "shown_partial": 15}

PROMPTS: list[Prompt[Any]] = [
    RelationCheck(ASKED, TOPIC, RELATIONS, 2),
    PathGeneration(ASKED, {"Amélie": RELATIONS, "O’Hara": ("person.film",)}, paths_per_entity=3, max_path_len=4),
    Judge(ASKED, TOPIC, (FOUND, FOUND.first(0)), NAMES),
    Edit(ASKED, TOPIC, ("film.genre",), ((),), "no", (FOUND,), (), NAMES, (((), RELATIONS),), **SHOWN),
    AnswerFromEvidence(ASKED, (FOUND,), NAMES),
    AnswerAlone(ASKED),
    HypotheticalRelations(ASKED, False, "[Retrieve Relation]", (FOUND.first(0),)),
    RelationSegment(ASKED, True, "[Retrieve Relation]", RELATIONS, (FOUND.first(0),)),
    EntitySegment(ASKED, False, "[Retrieve Entity]", FOUND.first(0), RELATIONS[0], (FOUND,), NAMES, 5, 3, "graph"),
    AnswerSegment(ASKED, False, "[Retrieve Relation]", (FOUND,), NAMES),
    PlanPath(ASKED),
    ListPaths(ASKED, {"Amélie": RELATIONS}, 3),
    ReadPaths(ASKED, True, ("Amélie -> film.directed_by -> Jeunet",), (FOUND,), NAMES),
    RoGAlone(ASKED, False),
    ChooseRelations(ASKED, ("Amélie",), (Relation("film.directed_by", "out"), Relation("film.genre", "in"))),
    Enough(ASKED, (FOUND,), NAMES),
    *(debater(ASKED, (FOUND,), NAMES, (("Simplifier", "who?"),)) for debater in (Simplify, Criticise, Rewrite)),
    DoGAlone(ASKED),
]

PIECES = [
    *COMMON,
    *("Path:", "Final Path:", "Thought:", "Goal:", "<HAVE_ANSWER>", "<NO_ANSWER>", "Retained sequences:", "answer is"),
    *("1-3", "2 (first 1)", "9999", "none", "first"),
    *(";", "|", "->", "→", "—>", "0.5", "+", "film.genre", "m.0abc", "<cvt 1>"),
    *("[Fully Relevant]", "[Partially]", "[Unreasonable]", "[Retrieve Relation]", "[Entity Retrieval]"),
    *("[No Retrieval]", "[Not Useful]", "[Utility:", "[Utility: 3]", "Answer:", "Unknown Entity"),
    *("<paragraph>", "</paragraph>"),
    *("<PATH>", "<SEP>", "</PATH>", "Reasons:", "- ", "• "),
    *("relation_1", "relation_99", "^film.genre", "{Yes}", "{No}", "question:"),
]
TEXTS = texts(PIECES)

# test_all_parsers.py reads many more texts, made from replies of runs; Hypothesis adds texts that no rule there makes.
EXAMPLES = settings(max_examples=4 * settings().max_examples, suppress_health_check=[HealthCheck.too_slow])


@pytest.mark.parametrize("prompt", PROMPTS, ids=lambda prompt: prompt.role)
@EXAMPLES
@given(text=TEXTS)
def test_random_and_hostile_text_is_read_or_refused(prompt: Prompt[Any], text: str) -> None:
    read(prompt, text)


@pytest.mark.parametrize("prompt", PROMPTS, ids=lambda prompt: prompt.role)
@EXAMPLES
@given(data=st.data())
def test_damaged_replies_are_read_or_refused(prompt: Prompt[Any], data: st.DataObject) -> None:
    for text in data.draw(damaged_replies(prompt, KNOWN, PIECES)):
        read(prompt, text)


@pytest.mark.parametrize("prompt", sampled(PROMPTS, every=8), ids=lambda prompt: prompt.role)
def test_a_piece_that_is_repeated_many_times_is_read_or_refused(prompt: Prompt[Any]) -> None:
    opening = "Final Path: Retained sequences:\n1. [<NO_ANSWER> answer is {"
    for piece in PIECES:
        read(prompt, opening + piece * (100_000 // len(piece)))
