"""Parsing of model text (specification §2.4, §3.10)."""

from __future__ import annotations

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pipeline.errors import ParseError
from pipeline.methods.parsing import (
    after_last,
    answers_without_braces,
    brace_answers,
    first_line,
    looks_like_relation,
    match_key,
    numbered,
    parse_leniently,
    read_literal,
    split_path,
    straighten,
    truncate,
    unquoted,
)
from pipeline.simulation.methods.answering import write_answers

VALUES = st.recursive(
    st.none() | st.booleans() | st.integers(-(10**9), 10**9) | st.text(),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(), inner, max_size=4),
    max_leaves=12,
)


@given(st.dictionaries(st.text(), VALUES, max_size=4))
def test_a_json_literal_is_read_as_json_reads_it(value: dict[str, object]) -> None:
    assert read_literal(f"Sure: {json.dumps(value)} and so on }}", "{") == value
    assert read_literal(json.dumps(value, ensure_ascii=False), "{") == value


@given(st.lists(VALUES, max_size=4))
def test_a_python_literal_is_read_as_python_reads_it(value: list[object]) -> None:
    assert read_literal(repr(value), "[") == value


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ('{"a": ["b",], }', {"a": ["b"]}),
        ("{'a': ('b', 1.5, -2, 1e3, True, null)}", {"a": ["b", 1.5, -2, 1000.0, True, None]}),
        (r'{"a": "\u00e9\ud83d\ude00\xe9\U0001F600\U99999999\n\q"}', {"a": "é😀é😀U99999999\nq"}),
        (r'{"a": "\ud800"}', {"a": "�"}),
        ("{1: 2}", {"1": 2}),
        ("{broken} {'a': 1}", {"a": 1}),
        ("{}", {}),
    ],
)
def test_mixed_and_slightly_malformed_literals_are_read(text: str, value: object) -> None:
    assert read_literal(text, "{") == value


@pytest.mark.parametrize(
    "text",
    [
        "",
        "{",
        '{"a"',
        '{"a": }',
        '{"a" 1}',
        '{"a": 1 "b": 2}',
        "{a: 1}",
        "{'a': open('/etc/passwd')}",
        "{'a': 1 + 1}",
        '{"a": "no end}',
        "{" * 50,
        "{'a': " + "[" * 30 + "]" * 30 + "}",
    ],
)
def test_text_that_is_not_a_literal_is_a_parse_error_and_never_evaluated(text: str) -> None:
    with pytest.raises(ParseError):
        read_literal(text, "{")


@pytest.mark.parametrize(
    "text", ["[" * 200_000, "[1," * 100_000, '["' * 100_000, "{'a':" * 100_000, "[" + "1," * 300_000]
)
def test_hostile_nesting_neither_overflows_nor_hangs(text: str) -> None:
    with pytest.raises(ParseError):
        read_literal(text, "[" if "{" not in text else "{")


@pytest.mark.parametrize(
    ("text", "answers"),
    [
        ("So the answer is {Paris}.", ("Paris",)),
        ("{Yes} … the answer is {Paris; Rome|Oslo}", ("Paris", "Rome", "Oslo")),
        ("The answer is {Paris}. No, the answers are: {Rome} and {Oslo}", ("Rome", "Oslo")),
        ("I say {Paris}, and that is my answer: it is clear.", ("Paris",)),
        ("Answer: {} {  } {Paris;;Paris}", ("Paris",)),
        ("the answer is {\"Paris\"; 'Rome'}", ("Paris", "Rome")),
        ("the answer is {the Joneses'}", ("the Joneses'",)),
        (r"\boxed{42}", ("42",)),
        ("answer is {{nested}}", ("nested",)),
        (r'{"one; two | {three}"; four; "say \"hi\"" }', ("one; two | {three}", "four", 'say "hi"')),
        ('{5" gun; 6" gun}', ('5" gun', '6" gun')),
        ('{"Paris; Rome}', ('"Paris', "Rome")),
        ('{"a" b; "c"}', ('"a" b', "c")),
        ("ANSWER IS {two\nlines}", ("two\nlines",)),
    ],
)
def test_answers_in_braces(text: str, answers: tuple[str, ...]) -> None:
    assert brace_answers(text) == answers


@given(st.lists(st.text(min_size=1).map(str.strip).filter(bool), min_size=1, unique=True))
def test_any_answer_can_be_written_and_read_back(texts: list[str]) -> None:
    assert brace_answers(write_answers(texts)) == tuple(texts)


@pytest.mark.parametrize("text", ["", "Paris", "the answer is Paris", "{}", "{ ; | }", "{unclosed"])
def test_no_answer_in_braces(text: str) -> None:
    with pytest.raises(ParseError, match="braces"):
        brace_answers(text)


@pytest.mark.parametrize(
    ("text", "answers"),
    [
        ("So the answer is Paris.", ("Paris",)),
        ("The answer is Rome. No: the answer is:\n **Oslo; Bern**\nBecause.", ("Oslo", "Bern")),
        ("It is Paris", ()),
        ("The answer is", ()),
    ],
)
def test_answers_without_braces(text: str, answers: tuple[str, ...]) -> None:
    assert answers_without_braces(text) == answers


@pytest.mark.parametrize(
    ("text", "parts"),
    [
        ("a -> r1->r2", ["a", "r1", "r2"]),
        ("a → r1 --> 'r2' ⇒ ", ["a", "r1", "r2"]),
        ("-> ->", []),
        ("no arrow", ["no arrow"]),
        ("a-b -> c", ["a-b", "c"]),
    ],
)
def test_paths_are_split_at_arrows(text: str, parts: list[str]) -> None:
    assert split_path(text) == parts


def test_a_typographic_dash_in_an_arrow_is_read_after_straightening() -> None:
    assert split_path(straighten("a –> r1 —> r2")) == ["a", "r1", "r2"]


def test_numbered_items_end_at_the_next_number() -> None:
    text = "intro\n1. first\n  goes on\n2) second\nSequence 3: third\n10 . tenth\n\nend"
    assert numbered(text) == [(1, "first\n  goes on"), (2, "second"), (3, "third"), (10, "tenth\n\nend")]


@pytest.mark.parametrize(
    ("part", "is_relation"),
    [
        ("people.person.parents", True),
        ("written_by", True),
        ("directed_by", False),
        ("m.0cg8r04", False),
        ("g.11b6gq6dl2", False),
        ("St. Louis", False),
        ("Naked Movie", False),
        ("etc.", False),
        ("a.b", True),
    ],
)
def test_relations_are_distinguished_from_entities(part: str, is_relation: bool) -> None:
    assert looks_like_relation(part, {"written_by"}) is is_relation


def test_the_second_attempt_reads_the_straightened_text_and_its_error_is_raised() -> None:
    seen: list[str] = []

    def read(text: str) -> str:
        seen.append(text)
        if '"' not in text:
            raise ParseError("no quote")
        return text

    assert parse_leniently(read, "```json\n“a”\n```").strip() == '"a"'
    assert len(seen) == 2
    with pytest.raises(ParseError, match="no quote"):
        parse_leniently(read, "plain")
    assert len(seen) == 3, "text that straightening does not change is not read again"


def test_match_key_truncate_first_line_after_last_and_unquoted() -> None:
    assert match_key("  Ann’s\tHOUSE ") == "ann's house"
    assert truncate("a\nb" + "c" * 100) == "a b" + "c" * 56 + "…"
    assert first_line("\n \n x \ny") == "x"
    assert first_line("") == ""
    assert after_last("Path: a path: b", "Path:") == " b"
    assert unquoted(" 'a' ") == "a"
    assert unquoted('"') == '"'
    with pytest.raises(ParseError, match="there is no 'Path:'"):
        after_last("nothing", "Path:")
