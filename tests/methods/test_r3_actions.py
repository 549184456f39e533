"""Parsing of action lines: balanced brackets, several actions, quotes and commas (specification §6.2)."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pipeline.methods.r3.actions import MAX_ACTIONS, Action, read_actions, read_finish, split_two
from pipeline.methods.r3.environment import print_id, print_relation


@pytest.mark.parametrize(
    ("line", "actions"),
    [
        ("RetrieveNode[Canon Battery [2 Pack] Black]", [("RetrieveNode", "Canon Battery [2 Pack] Black")]),
        ("RetrieveNode[Odd ] title]", [("RetrieveNode", "Odd ] title")]),
        ("RetrieveNode[Odd [ title]", [("RetrieveNode", "Odd [ title")]),
        (
            "RetrieveNode[Odd [ title] RetrieveNode[Next]",
            [("RetrieveNode", "Odd [ title"), ("RetrieveNode", "Next")],
        ),
        (
            "NodeFeature[a1, name] NodeFeature[a2, name]",
            [("NodeFeature", "a1, name"), ("NodeFeature", "a2, name")],
        ),
        (
            "neighborcheck[p1, author], and NodeDegree [p1, author].",
            [("NeighbourCheck", "p1, author"), ("NodeDegree", "p1, author")],
        ),
        ("Action 3: Relations[m.01]", [("Relations", "m.01")]),
        ('Finish[["A ] b", "c [d"]]', [("Finish", '["A ] b", "c [d"]')]),
        ("Finish[a [b], c] d]", [("Finish", "a [b], c] d")]),
        ("Finish[Ann] (see NodeFeature[m.0q7, name])", [("Finish", "Ann"), ("NodeFeature", "m.0q7, name")]),
        ("Finish[Ann]. [end]", [("Finish", "Ann")]),
        ("Finish[Ann] Finish[Bob]", [("Finish", "Ann"), ("Finish", "Bob")]),
        ("Finish[The [REC] movie], I am sure.", [("Finish", "The [REC] movie")]),
        ("Relations[m.01] to see more", [("Relations", "m.01")]),
        ("Sure, this is it.\n\nRelations[x]\n\nMore?", [("Relations", "x")]),
        ("Search[the web]", [(None, "Search")]),
        ("Retr\u0130eveNode[x]", [(None, "Retr\u0130eveNode")]),
        ("RetrieveNode[no end", []),
        ("RetrieveNode no brackets", []),
        ("", []),
    ],
)
def test_the_actions_of_a_line_are_parsed(line: str, actions: list[tuple[str, str]]) -> None:
    assert list(read_actions(line).actions) == [Action(*action) for action in actions]


def test_the_number_of_actions_of_a_line_is_limited() -> None:
    assert len(read_actions("Relations[x] " * 500).actions) == MAX_ACTIONS


@pytest.mark.parametrize(
    ("content", "at", "pair"),
    [
        ("p1, Compound-causes-Side Effect", "first", ("p1", "Compound-causes-Side Effect")),
        ("p1, a, b", "first", ("p1", "a, b")),
        ("Crouching Tiger, Hidden Dragon, directed_by", "last", ("Crouching Tiger, Hidden Dragon", "directed_by")),
        ('"Tiger, Dragon", directed_by', "first", ("Tiger, Dragon", "directed_by")),
        (r'"Say \"Hi\", Ann", directed_by', "last", ('Say "Hi", Ann', "directed_by")),
        ("'p1', 'author'", "first", ("p1", "author")),
        ("p1", "first", None),
        ("p1,", "last", None),
        ("", "first", None),
    ],
)
def test_two_arguments_are_split_at_a_comma(content: str, at: str, pair: tuple[str, str] | None) -> None:
    assert split_two(content, at=at) == pair


@pytest.mark.parametrize(
    ("content", "answers"),
    [
        ("Ann, Bob", ("Ann, Bob",)),
        ('["Ann", "Bob", "Ann"]', ("Ann", "Bob")),
        ("['Ann', 3, 4.5, None]", ("Ann", "3", "4.5")),
        ("[REC]", ("[REC]",)),
        ("['Ann', __import__('os')]", ("['Ann', __import__('os')]",)),
        ('"Ann"', ("Ann",)),
        ("[]", ()),
        ("  ", ()),
    ],
)
def test_the_answers_of_finish_are_parsed(content: str, answers: tuple[str, ...]) -> None:
    assert read_finish(content) == answers


@given(st.text(max_size=40), st.text(max_size=40))
def test_an_argument_with_balanced_brackets_is_kept_whole(left: str, right: str) -> None:
    for bracket in "[]":
        left, right = left.replace(bracket, ""), right.replace(bracket, "")
    content = "".join(f"{left}[{right}]".split())
    assert read_actions(f"RetrieveNode[{content}] ").actions == (Action("RetrieveNode", content),)


@given(st.text(min_size=1).filter(str.strip), st.text(min_size=1).filter(str.strip))
def test_any_printed_node_and_relation_can_be_repeated_in_an_action(node: str, relation: str) -> None:
    node, relation = node.strip(), relation.strip()
    (action,) = read_actions(f"NeighbourCheck[{print_id(node)}, {print_relation(relation)}]").actions
    assert split_two(action.content, at="first") == (node, relation)


@pytest.mark.parametrize("piece", ["[", "]", "RetrieveNode[", "Finish[", "a[b]", "] ", " ", ", ", "RetrieveNode[[] "])
def test_a_piece_repeated_many_times_is_parsed_quickly(piece: str) -> None:
    read_actions("RetrieveNode[" + piece * (100_000 // len(piece)))
