"""Numbers with their noun: one helper, and no text that joins a number with a plural by hand."""

from __future__ import annotations

import ast
import re
from collections.abc import Callable, Iterator
from itertools import pairwise
from pathlib import Path

import pytest

from pipeline.text import agreeing, amount, counted, error_kind, plural, short_keys

PACKAGE = Path(__file__).parents[1] / "pipeline"
NOUNS = "questions|calls|configurations|runs|shards|combinations|predictions|errors|plans|workers"
PLURAL_VERB = re.compile(r"^[a-z ]{0,20}\b(?:are|were|have|do|count|stand|wait|need)\b")
BY_HAND = re.compile(rf"^ (?:more |other |answered )?(?:{NOUNS})\b")


@pytest.mark.parametrize(
    ("number", "noun", "text"),
    [
        (1, "question", "1 question"),
        (0, "question", "0 questions"),
        (2000, "more configuration", "2,000 more configurations"),
        (2, "graph query", "2 graph queries"),
        (2, "delay", "2 delays"),
    ],
)
def test_a_number_stands_with_its_noun(number: int, noun: str, text: str) -> None:
    assert counted(number, noun) == text
    assert plural(noun, number) in text


@pytest.mark.parametrize(
    ("verb", "of_one"), [("count", "counts"), ("are", "is"), ("were", "was"), ("have", "has"), ("they", "it")]
)
def test_a_verb_agrees_with_its_number(verb: str, of_one: str) -> None:
    assert agreeing(verb, 1) == of_one
    assert agreeing(verb, 0) == agreeing(verb, 2000) == verb


def joined_by_hand(source: str) -> Iterator[str]:
    for node in ast.walk(ast.parse(source)):
        parts = node.values if isinstance(node, ast.JoinedStr) else []
        for before, after in pairwise(parts):
            if isinstance(before, ast.FormattedValue) and isinstance(after, ast.Constant):
                text = str(after.value)
                shown = ast.unparse(before.value)
                form = ast.unparse(before.format_spec) if before.format_spec else ""
                has_decimals_or_width = "." in form or ">" in form
                if BY_HAND.match(text) and not has_decimals_or_width:
                    yield f"line {node.lineno}: {{{shown}}}{text}"


def without_agreement(source: str) -> Iterator[str]:
    """The verbs in the plural after a number with its noun, which is the subject unless it stands after `of`."""
    for node in ast.walk(ast.parse(source)):
        parts = [ast.Constant(""), *node.values] if isinstance(node, ast.JoinedStr) else []
        for earlier, number, after in zip(parts, parts[1:], parts[2:], strict=False):
            shown = ast.unparse(number)
            is_subject = "counted(" in shown and not (
                isinstance(earlier, ast.Constant) and earlier.value.endswith("of ")
            )
            if is_subject and isinstance(after, ast.Constant) and PLURAL_VERB.match(str(after.value)):
                yield f"line {node.lineno}: {shown}{after.value}"


def test_a_small_amount_has_two_significant_digits() -> None:
    amounts = (0, 0.01066, 0.00893, 0.2, 1.5, 1234.5)
    assert [amount(each) for each in amounts] == ["0.00", "0.011", "0.0089", "0.20", "1.50", "1,234.50"]


@pytest.mark.parametrize("faults", [joined_by_hand, without_agreement])
def test_every_number_in_a_message_agrees_with_its_noun_and_verb(faults: Callable[[str], Iterator[str]]) -> None:
    files = [*PACKAGE.rglob("*.py")]
    found = {f"{file.relative_to(PACKAGE)} {each}" for file in files for each in faults(file.read_text())}
    assert not found, "\n".join(sorted(found))


@pytest.mark.parametrize(
    ("error", "kind"),
    [
        ("no answer (tried 1 time) from http://gpu1:8000/v1 for 'x y'", "no answer (tried …) from … for …"),
        ('no answer (tried 12 times) from https://other/v1 for "z"', "no answer (tried …) from … for …"),
        ("3 timeouts", "… timeouts"),
        ("KeyError: 'm.0abc' (own.py:23)", "KeyError (own.py:23)"),
        ("ValueError: nothing at Oslo (own.py:7)", "ValueError (own.py:7)"),
        ("AssertionError (own.py:7)", "AssertionError (own.py:7)"),
    ],
)
def test_errors_with_one_cause_are_of_one_kind(error: str, kind: str) -> None:
    assert error_kind(f"{error}\nmore") == kind


def test_a_key_is_short_where_nothing_else_can_be_meant() -> None:
    keys = ("method.width", "llm.model", "llm.roles.srp.judge.model", "kg.limit", "run.limit", "experiment")
    assert list(short_keys(keys).values()) == [
        *("width", "model", "roles.srp.judge.model"),
        *("kg.limit", "run.limit", "experiment"),
    ]
