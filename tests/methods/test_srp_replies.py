"""SRP's parsers read the natural replies of a strong model: copied facts, ranges, labels repeated or left out."""

from __future__ import annotations

import ast
import gzip
import json
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from pipeline.methods.grounded_path import GroundedPath
from pipeline.methods.srp.answer import AnswerFromEvidence
from pipeline.methods.srp.judge import Judge
from pipeline.methods.srp.path_edit import Edit
from pipeline.methods.srp.path_generation import PathGeneration
from pipeline.methods.srp.relation_check import RelationCheck
from pipeline.types import Entity, EntityId, Question, Relation
from tests.methods.support import question

Reply = tuple[Mapping[str, str], str]
"""The inputs of a call and the reply."""


@pytest.fixture(scope="module")
def replies(shared_data: Path) -> list[Mapping[str, Any]]:
    with gzip.open(shared_data / "replies" / "srp.jsonl.gz", "rt", encoding="utf-8") as file:
        return [json.loads(line) for line in file]


def of_role(replies: list[Mapping[str, Any]], role: str) -> list[Reply]:
    found = [(reply["inputs"], reply["completion"]) for reply in replies if reply["role"] == role]
    assert found
    return found


def test_every_reply_has_a_role_that_is_tested_here(replies: list[Mapping[str, Any]]) -> None:
    roles = {"relation_check", "path_generation", "judge", "edit", "answer"}
    assert {reply["role"] for reply in replies} == {f"srp.{role}" for role in roles}


def test_every_relation_that_was_picked_is_read(replies: list[Mapping[str, Any]]) -> None:
    for inputs, text in of_role(replies, "srp.relation_check"):
        offered = tuple(inputs["relations"].split("; "))
        prompt = RelationCheck(question("?"), Entity("e", inputs["entity"]), offered, int(inputs["top_k"]))
        assert list(prompt.parse(text)) == re.findall(r"\('(.+?)', ", text)


def test_every_path_that_was_planned_is_read(replies: list[Mapping[str, Any]]) -> None:
    for inputs, text in of_role(replies, "srp.path_generation"):
        names = json.loads(inputs["entities"])
        planned = PathGeneration(question("?", *names), None, paths_per_entity=9, max_path_len=4).parse(text)
        written = json.loads(text.partition("Path:")[2])
        assert {name: ["->".join(path) for path in paths] for name, paths in planned.items()} == {
            name: ["->".join(path.split(" -> ")[1:]) for path in paths] for name, paths in written.items()
        }


def judged(inputs: Mapping[str, str]) -> Judge:
    """Return the prompt from which the inputs were made, as the sequences of that time were printed."""
    names: dict[EntityId, str | None] = {}
    chains = []
    for line in inputs["sequences"].splitlines():
        facts = ast.literal_eval(line.partition(". ")[2])
        chain = GroundedPath(_start(facts))
        for head, relation, tail in facts:
            names |= {node: None if node.startswith("<cvt") else node for node in (head, tail)}
            step = Relation(relation, "out") if head == chain.end else Relation(relation, "in")
            chain = chain.then(step, tail if step.direction == "out" else head)
        chains.append(chain)
    start = chains[0].start
    return Judge(question("?", start), Entity(start, start), tuple(chains), names)


def _start(facts: list[tuple[str, str, str]]) -> str:
    """Return the node of the first fact that does not lead on to the second one."""
    head, _, tail = facts[0]
    onward = {facts[1][0], facts[1][2]} if len(facts) > 1 else set()
    return tail if head in onward and tail not in onward else head


def test_every_verdict_is_read_with_the_facts_that_it_keeps(replies: list[Mapping[str, Any]]) -> None:
    for inputs, text in of_role(replies, "srp.judge"):
        prompt = judged(inputs)
        verdict = prompt.parse(text)
        assert verdict.have == ("<HAVE_ANSWER>" in text)
        assert verdict.invalid_items == ()
        assert verdict.message
        written = re.findall(r"^(\d+)\. (\[\(.*\])$", text, re.MULTILINE)
        kept = {number: pruned for number, pruned in enumerate(verdict.pruned.values(), 1) if pruned.length}
        assert {number: chain.length for number, chain in kept.items()} == {
            int(number): len(ast.literal_eval(facts)) for number, facts in written
        }


def test_an_edited_path_is_read(replies: list[Mapping[str, Any]]) -> None:
    for inputs, text in of_role(replies, "srp.edit"):
        start, *path = inputs["path"].split(" -> ")
        edited = Edit(
            question=question("?", start),
            entity=Entity(start, start),
            path=tuple(path),
            tried=(),
            message=inputs["message"],
            grounded=(),
            partial=(),
            names={},
            candidates=(),
            max_path_len=4,
            shown_grounded=5,
            shown_partial=15,
        ).parse(text)
        assert edited is not None
        assert " -> ".join((start, *edited)) == text.partition("Final Path: ")[2].strip()


def test_every_answer_in_braces_is_read(replies: list[Mapping[str, Any]]) -> None:
    asked = Question("q", "cwq", "test", "?", ())
    for _, text in of_role(replies, "srp.answer"):
        read = AnswerFromEvidence(asked, (), {}).parse(text)
        assert list(read.texts) == [part.strip() for part in re.findall(r"\{(.*?)\}", text)[-1].split(";")]
