"""The preference order of names (specification §8.5)."""

from __future__ import annotations

import pytest

from pipeline.kg.labels import LabelCandidate, best_name, is_true
from pipeline.types import LiteralNode

NAME, ALIAS = False, True

ENGLISH = (NAME, LiteralNode("Germany", lang="en"))
BRITISH = (NAME, LiteralNode("Federal Republic", lang="en-gb"))
UNTAGGED = (NAME, LiteralNode("Bund"))
GERMAN = (NAME, LiteralNode("Deutschland", lang="de"))
ENGLISH_ALIAS = (ALIAS, LiteralNode("Deutschland (country)", lang="en"))
GERMAN_ALIAS = (ALIAS, LiteralNode("BRD", lang="de"))


@pytest.mark.parametrize(
    ("candidates", "expected"),
    [
        ([GERMAN, ENGLISH_ALIAS, BRITISH, UNTAGGED, ENGLISH], "Germany"),
        ([GERMAN, ENGLISH_ALIAS, BRITISH, UNTAGGED], "Bund"),
        ([GERMAN, ENGLISH_ALIAS, BRITISH], "Federal Republic"),
        ([GERMAN, ENGLISH_ALIAS], "Deutschland (country)"),
        ([GERMAN, GERMAN_ALIAS], "Deutschland"),
        ([GERMAN_ALIAS], None),
        ([], None),
        ([(NAME, LiteralNode("b", lang="en")), (NAME, LiteralNode("a", lang="en"))], "a"),
        ([(NAME, LiteralNode("", lang="en"))], ""),
    ],
)
def test_names_are_preferred_by_language_and_relation(candidates: list[LabelCandidate], expected: str | None) -> None:
    assert best_name(candidates, ["en"]) == expected
    assert best_name(reversed(candidates), ["en"]) == expected


def test_a_flag_may_be_stored_as_a_text() -> None:
    assert all(map(is_true, ("true", "1", "True")))
    assert not any(map(is_true, ("false", "0", "")))
