"""The critic's four prompts: what they render, what they parse, and their fallbacks."""

from __future__ import annotations

from random import Random
from typing import Any

import pytest

import pipeline.training.arg.simulators  # noqa: F401 - registers the simulators of the critic
from pipeline.errors import ParseError
from pipeline.llm.prompt import Prompt
from pipeline.methods.arg.entities import EntitySegment
from pipeline.methods.arg.relations import RelationSegment
from pipeline.methods.grounded_path import GroundedPath
from pipeline.retrieval.lexical import LexicalEncoder
from pipeline.simulation.gold_context import GoldContext
from pipeline.simulation.registry import write_as_oracle, write_by_similarity
from pipeline.training.arg.critic import EntityRelevance, Judgement, Rationality, RelationRelevance, Utility
from tests.methods.support import chain, gold_context, question

ASKED = question("who directed the films that Ann played in?", "Ann")
KNOWN = gold_context(ASKED, ["Dee"], {"Ann": ["played_in -> directed_by", "friend -> admires"]})
FULLY, PARTIALLY, NOT = "[Fully Relevant]", "[Partially Relevant]", "[Unrelevant]"


def relations(walk: GroundedPath, *group: str) -> RelationRelevance:
    return RelationRelevance(RelationSegment(ASKED, False, "…", group, (walk,)), {"Ann": "Ann", "m.1": None})


def entities(walk: GroundedPath, relation: str, *ends: str) -> EntityRelevance:
    names = {end: None if end.startswith("m.") else end for end in ("Ann", *map(str, walk.nodes), *ends)}
    tails = tuple(chain(*_flat(walk), relation, end) for end in ends)
    return EntityRelevance(EntitySegment(ASKED, False, "…", walk, relation, tails, names, 5, 3, "graph"))


def _flat(walk: GroundedPath) -> list[str]:
    return [walk.start, *(part for step in walk.steps for part in (step.relation.name, str(step.node)))]


def rationality(walk: GroundedPath) -> Rationality:
    return Rationality(ASKED, walk, ("Dee", "Eve"), {node: str(node) for node in walk.nodes if isinstance(node, str)})


PROMPTS: list[Prompt[Any]] = [
    relations(chain("Ann"), "played_in", "friend", "born_in"),
    entities(chain("Ann"), "played_in", "Tin", "m.1"),
    rationality(chain("Ann", "played_in", "Tin")),
    Utility(ASKED, ("Dee", "Eve")),
]


@pytest.mark.parametrize("prompt", PROMPTS, ids=lambda prompt: prompt.role)
def test_replies_of_simulated_models_are_parsed(prompt: Prompt[Any]) -> None:
    prompt.messages()
    errors = {write_as_oracle(prompt, KNOWN, Random(seed)) for seed in range(8)}
    right = write_as_oracle(prompt, KNOWN, None)
    assert right not in errors
    for text in (right, *errors, write_by_similarity(prompt, LexicalEncoder())):
        prompt.parse(text)
        assert prompt.parse(f"```\n{text}\n```") == prompt.parse(text)


@pytest.mark.parametrize("prompt", PROMPTS, ids=lambda prompt: prompt.role)
@pytest.mark.parametrize("text", ["", "I cannot say.", "{}", "1. {x (Score: [Fully Relevant])}", '{"answers": 3}', "["])
def test_a_reply_without_labels_cannot_be_parsed(prompt: Prompt[Any], text: str) -> None:
    with pytest.raises(ParseError):
        prompt.parse(text)
    assert prompt.fallback(text) in ({}, None, Judgement({"Dee": "", "Eve": ""}, "[Utility:3]"))


def oracle(prompt: Prompt[Any], known: GoldContext = KNOWN) -> Any:
    return prompt.parse(write_as_oracle(prompt, known, None))


def test_the_oracle_labels_relations_by_the_gold_paths() -> None:
    assert oracle(PROMPTS[0]) == {"played_in": FULLY, "friend": PARTIALLY, "born_in": NOT}
    assert oracle(relations(chain("Ann", "played_in", "Tin"), "played_in", "directed_by")) == {
        "played_in": NOT,
        "directed_by": FULLY,
    }
    assert oracle(relations(chain("Ann", "born_in", "Rome"), "directed_by")) == {"directed_by": NOT}


def test_the_oracle_labels_entities_by_the_gold_paths() -> None:
    assert oracle(PROMPTS[1]) == {"Tin": FULLY, "Unknown Entity": FULLY}
    assert oracle(entities(chain("Ann", "played_in", "Tin"), "directed_by", "Dee", "Eve")) == {"Dee": FULLY, "Eve": NOT}
    assert oracle(entities(chain("Ann"), "born_in", "Rome")) == {"Rome": NOT}


@pytest.mark.parametrize(
    ("walk", "label"),
    [
        (chain("Ann", "played_in", "Tin"), "[Fully Reasonable]"),
        (chain("Ann", "played_in", "Tin", "directed_by", "Dee"), "[Fully Reasonable]"),
        (chain("Ann", "married_to", "Dee"), "[Partially Reasonable]"),
        (chain("Ann", "born_in", "Rome"), "[Unreasonable]"),
    ],
)
def test_the_oracle_judges_a_path_by_the_gold_paths(walk: GroundedPath, label: str) -> None:
    assert oracle(rationality(walk)) == label


def test_the_oracle_labels_answers_by_gold() -> None:
    assert oracle(Utility(ASKED, ("Dee", "Eve"))) == Judgement(
        {"Dee": "[Fully Useful]", "Eve": "[Not Useful]"}, "[Utility:5]"
    )
    assert oracle(Utility(ASKED, ("Eve",))).utility == "[Utility:1]"


@pytest.mark.parametrize(
    "text",
    [
        "1. {played_in (Score: [Relevant])}: x\n2. {friend (Score: [Irrelevant])}\n3. {born_in (Score: [Partially])}",
        "Sure!\n1) Played_In (score: [relevant]): x\n2) friend (Score: [Unrelevant])\n3) born_in (Score:[Partially])",
    ],
)
def test_relevance_is_parsed_in_the_spellings_that_models_use(text: str) -> None:
    assert PROMPTS[0].parse(text) == {"played_in": FULLY, "friend": NOT, "born_in": PARTIALLY}


def test_names_that_look_like_numbers_or_labels_are_parsed() -> None:
    films = entities(chain("Ann"), "played_in", "1984", "12. Mile", "[REC]", "{x} (Score: high)")
    assert oracle(films) == dict.fromkeys(["1984", "12. Mile", "[REC]", "{x} (Score: high)"], FULLY)


def test_the_complaint_names_the_first_name_without_a_label() -> None:
    with pytest.raises(ParseError, match=r"name \(Score: \[label\]\)\} for friend"):
        PROMPTS[0].parse("1. {played_in (Score: [Fully Relevant])}: x")
    with pytest.raises(ParseError, match=r"none of \[Fully Relevant\]"):
        PROMPTS[0].parse("1. {played_in (Score: [Fully Useful])}: x")


def test_rationality_is_parsed_from_the_first_line() -> None:
    assert PROMPTS[2].parse("\nJudgement: [Reasonable]\nno [Unreasonable] step") == "[Fully Reasonable]"
    with pytest.raises(ParseError):
        PROMPTS[2].parse("Well,\n[Unreasonable]")


def test_utility_is_parsed_from_a_json_object_within_other_text() -> None:
    reply = 'So:\n{"answers": {"dee": "[Fully Useful]", "Eve": "[Partially Useful]"}, "utility": "[Utility: 4]"} done'
    assert PROMPTS[3].parse(reply) == Judgement({"Dee": "[Fully Useful]", "Eve": "[Partially Useful]"}, "[Utility:4]")
    with pytest.raises(ParseError, match="there is no label for 'eve'"):
        PROMPTS[3].parse('{"answers": {"Dee": "[Fully Useful]"}, "utility": "[Utility:4]"}')
