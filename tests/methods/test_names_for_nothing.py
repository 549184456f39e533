"""A word for nothing is no answer, unless a node that the prompt shows has that name (specification §5.7, §16)."""

from __future__ import annotations

import pytest

from pipeline.errors import ParseError
from pipeline.methods.dog.enough import Enough
from pipeline.methods.json_replies import read_texts
from pipeline.methods.node_labels import NodeLabels
from pipeline.methods.pog.verdict import read_verdict
from pipeline.methods.rog.read import ReadPaths
from tests.methods.support import chain, question

FOR_NOTHING = ["Unknown", "None", "N/A", "null", "m.0abc", "<cvt 1>", "<unnamed 1>"]


@pytest.mark.parametrize("text", FOR_NOTHING)
def test_only_a_name_that_is_shown_is_read_as_an_answer(text: str) -> None:
    labels = NodeLabels({"m.1": text})
    labels.add(["m.1"])
    assert read_texts([text, "Lyon"], labels.is_name) == (text, "Lyon")
    assert read_texts([text, text.swapcase(), "Lyon"]) == ("Lyon",)
    assert read_texts([None, "", text.swapcase(), "Lyon"], labels.is_name) == ("Lyon",)


def test_the_label_of_an_unnamed_node_is_no_name() -> None:
    labels = NodeLabels({"m.2": None})
    labels.add(["m.2"])
    assert labels.label("m.2") == "<unnamed 1>"
    assert not labels.is_name("<unnamed 1>")


@pytest.mark.parametrize("name", ["Unknown", "a; b", "x | y", "none"])
def test_pog_reads_a_name_that_is_shown_as_one_answer(name: str) -> None:
    reply = f'{{"sufficient": true, "answer": "{name}"}}'
    assert read_verdict(reply, ["sufficient"], {name}).answers == (name,)
    assert read_verdict(reply, ["sufficient"], {"Lyon"}).answers != (name,)


@pytest.mark.parametrize("name", ["1. FC Köln", "- minus", "W.E.", '"Heroes"', "2) b"])
def test_rog_keeps_the_marks_of_a_name_that_is_shown(name: str) -> None:
    shown = ReadPaths(question("?", "A"), False, (), (chain("A", "r", "B"),), {"A": "A", "B": name})
    for reply in (name, f" {name} ", f"- {name}", f"1. {name}"):
        assert shown.parse(f"{reply}\nLyon").texts == (name, "Lyon")
    unshown = ReadPaths(question("?", "A"), False, (), (), {})
    assert unshown.parse(name).texts != (name,)


@pytest.mark.parametrize("name", ["Yes", "No", "^", "?!"])
def test_dog_reads_a_name_that_is_shown_as_an_answer(name: str) -> None:
    reply = f"{{Yes}} The answer is {{{name}}}."
    answers = Enough(question("?", "A"), (chain("A", "r", "B"),), {"A": "A", "B": name}).parse(reply)
    assert answers is not None
    assert answers.texts == (name,)
    with pytest.raises(ParseError):
        Enough(question("?", "A"), (), {}).parse(f"{{Yes}} {{{name}}}")
