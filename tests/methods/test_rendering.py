"""One way to print for every method."""

from __future__ import annotations

from pipeline.methods.rendering import Printer, as_question, names_of, print_path
from tests.methods.support import chain, literal


def test_printing_numbers_unnamed_nodes_and_escapes_names() -> None:
    printer = Printer({"a": 'Ann "A"\nSmith', "b": None, "c": None})
    walked = chain("a", "r.s", "c", "t", "b", "u", literal("2001-02-03T00:00:00Z"))
    assert printer.chain(walked.triples) == (
        r'[("Ann \"A\"\nSmith", "r.s", "<cvt 1>"), ("<cvt 1>", "t", "<cvt 2>"), ("<cvt 2>", "u", "2001-02-03")]'
    )
    assert Printer({}, unnamed="<cvt></cvt>").node("m.1") == "<cvt></cvt>"
    assert print_path("Ann\nSmith", ("r", "s")) == "Ann Smith -> r -> s"
    assert as_question("who \n is it") == "who is it?"
    assert as_question("Name it.") == "Name it."


def test_names_are_given_in_the_order_of_the_nodes_and_only_where_there_are_any() -> None:
    nodes = ["b", literal("2001-02-03T00:00:00Z"), "m.1", "a", "b", "never looked up", "blank"]
    names = {"a": "Ann", "b": "Ann", "m.1": None, "blank": ""}
    assert list(names_of(nodes, names).items()) == [
        ("b", "Ann"),
        (literal("2001-02-03T00:00:00Z"), "2001-02-03"),
        ("a", "Ann"),
    ]
