"""Rendering for prompts."""

from __future__ import annotations

from pipeline.methods.rendering import Printer, as_question, names_of, print_path
from tests.methods.support import chain, literal


def test_unnamed_nodes_are_numbered_and_names_are_escaped() -> None:
    printer = Printer({"a": 'Ann "A"\nSmith', "b": None, "c": None})
    walked = chain("a", "r.s", "c", "t", "b", "u", literal("2001-02-03T00:00:00Z"))
    assert printer.chain(walked.triples) == (
        r'[("Ann \"A\"\nSmith", "r.s", "<cvt 1>"), ("<cvt 1>", "t", "<cvt 2>"), ("<cvt 2>", "u", "2001-02-03")]'
    )
    assert Printer({}, unnamed="<cvt></cvt>").node("m.1") == "<cvt></cvt>"
    assert print_path("Ann\nSmith", ("r", "s")) == "Ann Smith -> r -> s"
    assert as_question("who \n is it") == "who is it?"
    assert as_question("Name it.") == "Name it."


def test_names_of_keeps_the_order_of_the_nodes_and_leaves_out_unnamed_ones() -> None:
    nodes = ["b", literal("2001-02-03T00:00:00Z"), "m.1", "a", "b", "never looked up", "blank"]
    names = {"a": "Ann", "b": "Ann", "m.1": None, "blank": ""}
    assert list(names_of(nodes, names).items()) == [
        ("b", "Ann"),
        (literal("2001-02-03T00:00:00Z"), "2001-02-03"),
        ("a", "Ann"),
    ]
