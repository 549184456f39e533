"""Numbers with their noun: one helper, and no text that joins a number with a plural by hand."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from itertools import pairwise
from pathlib import Path

import pytest

from pipeline.text import counted, plural

PACKAGE = Path(__file__).parents[1] / "pipeline"
NOUNS = "questions|calls|configurations|runs|shards|combinations|predictions"
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


def test_no_message_joins_a_number_with_a_plural_by_hand() -> None:
    found = {
        f"{file.relative_to(PACKAGE)} {each}"
        for file in PACKAGE.rglob("*.py")
        for each in joined_by_hand(file.read_text())
    }
    assert not found, "\n".join(sorted(found))
