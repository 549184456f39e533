"""ArG's parsers read the natural replies of a strong model to the prompted generator, those that were cut too."""

from __future__ import annotations

import gzip
import json
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from pipeline.methods.arg.answers import AnswerSegment
from pipeline.methods.arg.entities import EntitySegment
from pipeline.methods.arg.relations import HypotheticalRelations, RelationSegment
from pipeline.methods.arg.tokens import CLASSES
from pipeline.methods.arg.transcript import UNKNOWN_ENTITY
from pipeline.methods.grounded_path import GroundedPath
from pipeline.types import Relation
from tests.methods.support import question

ASKED = question("q?")
START = GroundedPath("start")
_FACT = re.compile(r"\((.*?), ([a-z_]+\.[a-z_.]+), (.*?)\)(?:;|$)")


@pytest.fixture(scope="module")
def replies(shared_data: Path) -> list[Mapping[str, Any]]:
    with gzip.open(shared_data / "replies" / "arg.jsonl.gz", "rt", encoding="utf-8") as file:
        return [json.loads(line) for line in file]


def of_role(replies: list[Mapping[str, Any]], role: str) -> list[tuple[str, str]]:
    """The last paragraph that was shown, and the reply."""
    found = [(reply["inputs"]["text"], reply["completion"]) for reply in replies if reply["role"] == role]
    assert found
    return [(text.rpartition("<paragraph>")[2].partition("</paragraph>")[0], reply) for text, reply in found]


def segment(paragraph: str) -> EntitySegment:
    facts = _FACT.findall(paragraph)
    assert facts
    tails = tuple(START.then(Relation(relation, "out"), tail) for _, relation, tail in facts)
    names = {tail: None if tail == UNKNOWN_ENTITY else tail for _, _, tail in facts} | {"start": facts[0][0]}
    return EntitySegment(ASKED, True, "", START, facts[0][1], tails, names, 5, 3, "walk")


def test_hypothetical_relations_are_read_without_their_labels(replies: list[Mapping[str, Any]]) -> None:
    for _, text in of_role(replies, "arg.hypo"):
        read = HypotheticalRelations(ASKED, True, "", (START,)).parse(text)
        assert read
        assert all(re.fullmatch(r"[a-z_]+(\.[a-z_]+)+", name) for name in read)
        assert len(read) == len(re.findall(r"\[(?:Fully|Partially) Relevant\]", text))


def test_every_offered_relation_of_a_reply_has_its_label(replies: list[Mapping[str, Any]]) -> None:
    declined = 0
    for paragraph, text in of_role(replies, "arg.relations"):
        group = tuple(paragraph.split(";"))
        judgement = RelationSegment(ASKED, True, "", group, (START,)).parse(text)
        assert {pair.name for pair in judgement.labelled} == set(group)
        declined += judgement.declines
    assert declined, "one reply ends with [No Retrieval] after relations that do not help"


def test_every_shown_tail_is_judged_and_every_answer_is_whole(replies: list[Mapping[str, Any]]) -> None:
    cut = 0
    for paragraph, text in of_role(replies, "arg.entities"):
        shown = segment(paragraph)
        judgement = shown.parse(text)
        assert len(judgement.relevance) == len(shown.shown_tails)
        assert judgement.rationality is not None
        assert judgement.ends == ("[No Retrieval]" in text)
        if judgement.answers is not None and judgement.answers.utility is None:
            cut += 1
            assert set(judgement.answers.texts) <= set(shown.by_name), "the last name has no part of a token"
        for answer in judgement.answers.texts if judgement.answers else ():
            assert not any(token[:6].casefold() in answer.casefold() for token in CLASSES["usefulness"])
    assert cut, "replies of 100 tokens were cut before the utility"


def test_a_tail_is_found_by_its_own_spelling_first() -> None:
    shown = segment("(start, a.b, it);(start, a.b, It)")
    text = "it[Fully Relevant]It[Unrelevant][Fully Reasonable][Retrieve Relation]"
    assert [tail.end for tail in shown.parse(text).relevant] == [shown.by_name["it"][0].end]
    (other,) = shown.parse(text.replace("it[", "IT[", 1).replace("It[Unrelevant]", "")).relevant
    assert other.end == shown.by_name["It"][0].end


def test_forced_answers_are_read_with_their_utility(replies: list[Mapping[str, Any]]) -> None:
    for _, text in of_role(replies, "arg.answer"):
        answers = AnswerSegment(ASKED, True, "", (START,), {"start": "start"}).parse(text)
        assert answers.texts
        assert answers.utility is not None
