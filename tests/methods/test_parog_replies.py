"""PARoG's parsers read the natural replies of a strong model: fenced JSON, prose before it, lists left out."""

from __future__ import annotations

import gzip
import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from pipeline.methods.grounded_path import GroundedPath
from pipeline.methods.parog.aggregate import Aggregate
from pipeline.methods.parog.entities import CandidateGroup, SelectEntities
from pipeline.methods.parog.node_labels import SubgoalLabels
from pipeline.methods.parog.plan import whole_question
from pipeline.methods.parog.planning import MakePlan
from pipeline.methods.parog.refine import Refine
from pipeline.methods.parog.relations import Offer, SelectRelations
from pipeline.methods.parog.tentative import AnswerTentatively
from pipeline.types import Relation
from tests.methods.support import question

ASKED = question("q?")
PLAN = whole_question(ASKED)
NO_LABELS = SubgoalLabels({})


@pytest.fixture(scope="module")
def replies(shared_data: Path) -> list[Mapping[str, Any]]:
    with gzip.open(shared_data / "replies" / "parog.jsonl.gz", "rt", encoding="utf-8") as file:
        return [json.loads(line) for line in file]


def of_role(replies: list[Mapping[str, Any]], role: str) -> list[tuple[Mapping[str, str], str]]:
    found = [(reply["inputs"], reply["completion"]) for reply in replies if reply["role"] == role]
    assert found
    return found


def test_every_plan_is_read_with_its_dependencies(replies: list[Mapping[str, Any]]) -> None:
    plans = [
        MakePlan(ASKED, is_trained=False, max_subgoals=6).parse(text) for _, text in of_role(replies, "parog.plan")
    ]
    assert all(plan is not None and plan[0].op == "lookup" for plan in plans)
    assert any(subgoal.keep == "lowest" and subgoal.uses == (1, 2) for plan in plans for subgoal in plan or ())


def test_every_tentative_answer_has_its_confidence(replies: list[Mapping[str, Any]]) -> None:
    for _, text in of_role(replies, "parog.tentative"):
        reply = AnswerTentatively(ASKED, PLAN[0], (), NO_LABELS).parse(text)
        assert reply.answers
        assert reply.confidence in {"high", "medium", "low"}


def offer(line: str) -> Offer:
    entity, _, relations = line.rpartition(": ")
    words = [word for word in relations.split("; ") if word != "none"]
    return Offer(entity, (entity,), tuple(Relation(word.lstrip("^"), "in" if "^" in word else "out") for word in words))


def test_every_relation_of_a_reply_is_one_that_was_offered(replies: list[Mapping[str, Any]]) -> None:
    for inputs, text in of_role(replies, "parog.relations"):
        offers = tuple(map(offer, inputs["relations"].splitlines()))
        selected = SelectRelations(ASKED, PLAN[0], PLAN, (), offers, NO_LABELS, max_relations=5).parse(text)
        written = json.loads(text[text.index("{") : text.rindex("}") + 1])
        assert selected is not None
        assert {entity: len(relations) for entity, relations in selected.items()} == {
            entity: len(relations) for entity, relations in written.items()
        }


def group(line: str) -> CandidateGroup:
    start, _, names = line.partition(". ")[2].partition(": ")
    facts = tuple((name, GroundedPath(start).then(Relation("r", "out"), name)) for name in names.split("; "))
    return CandidateGroup(start, "r", facts)


def test_every_entity_of_a_reply_is_one_that_was_offered(replies: list[Mapping[str, Any]]) -> None:
    for inputs, text in of_role(replies, "parog.entities"):
        groups = tuple(map(group, inputs["groups"].splitlines()))
        selected = SelectEntities(ASKED, PLAN[0], PLAN, groups).parse(text)
        written = json.loads(text[text.index("{") : text.rindex("}") + 1])
        assert selected is not None
        assert [fact.end for fact in selected] == [name for names in written.values() for name in names]


def test_every_refinement_and_aggregation_is_read(replies: list[Mapping[str, Any]]) -> None:
    for _, text in of_role(replies, "parog.refine"):
        refinement = Refine(ASKED, PLAN[0], (), NO_LABELS).parse(text)
        assert refinement.aligned
        assert refinement.answers
        assert bool(refinement.final) == ('"question_answered": true' in text)
    for _, text in of_role(replies, "parog.aggregate"):
        assert Aggregate(ASKED, (), (), NO_LABELS).parse(text).texts
