"""The replies of a strong language model to R3's prompts are parsed, however it wrote them."""

from __future__ import annotations

import gzip
import json
from pathlib import Path
from typing import Any

import pytest

from pipeline.methods.r3.step_prompts import NextAction, Thought, Turn
from pipeline.methods.r3.verify import Verdict, Verify
from tests.methods.support import question

TURN = Turn(question("?"), "triples")


@pytest.fixture(scope="module")
def replies(shared_data: Path) -> list[dict[str, Any]]:
    with gzip.open(shared_data / "replies" / "r3.jsonl.gz", "rt", encoding="utf-8") as lines:
        return [json.loads(line) for line in lines]


def of_role(replies: list[dict[str, Any]], role: str) -> list[dict[str, Any]]:
    found = [reply for reply in replies if reply["role"] == role]
    assert found
    return found


def test_every_reply_has_a_role_that_is_tested_here(replies: list[dict[str, Any]]) -> None:
    assert {reply["role"] for reply in replies} == {"r3.thought", "r3.action", "r3.verify"}


def test_a_thought_is_read_as_written(replies: list[dict[str, Any]]) -> None:
    for reply in of_role(replies, "r3.thought"):
        thought, number = reply["completion"].strip(), reply["inputs"]["number"]
        for written in (thought, f"\n{thought}", f"Thought {number}: {thought}", f"{thought}\nAction {number}: x[y]"):
            assert Thought(TURN).parse(written) == thought


def test_an_action_is_read_whole_and_its_tools_are_known(replies: list[dict[str, Any]]) -> None:
    for reply in of_role(replies, "r3.action"):
        action, number = reply["completion"].strip(), reply["inputs"]["number"]
        line = NextAction(TURN).parse(action)
        assert line.actions
        assert all(each.tool is not None and each.content for each in line.actions)
        assert " ".join(f"{each.tool}[{each.content}]" for each in line.actions) == action
        for written in (f"\n{action}", f"Action {number}: {action}", f"{action}\nObservation {number}: made up[z]"):
            assert NextAction(TURN).parse(written) == line


def test_a_verdict_is_read(replies: list[dict[str, Any]]) -> None:
    for reply in of_role(replies, "r3.verify"):
        verdict = Verify(question("?"), (), ()).parse(reply["completion"])
        assert isinstance(verdict, Verdict)
        assert verdict.accept == ('"accept"' in reply["completion"])
        assert verdict.why
