"""Questions that are not independent: those of one source, and copies."""

from __future__ import annotations

import json

import polars as pl
import pytest

from pipeline.evaluation.question_groups import count_repeated, repeated_text

Row = tuple[str, str, str | None]
"""The text of a question, a topic entity, and the source."""


def frame(rows: list[Row], *, configurations: int = 1) -> pl.DataFrame:
    each = [
        {
            "dataset": "own",
            "question_id": f"q{number}",
            "question": text,
            "topic_entities": [topic],
            "meta": json.dumps({"source": source} if source else {}),
        }
        for number, (text, topic, source) in enumerate(rows)
    ]
    return pl.DataFrame(each * configurations)


@pytest.mark.parametrize(
    ("rows", "repeated"),
    [
        ([("who?", "ann", None), ("where?", "ann", None)], 0),
        ([("who?", "ann", None), ("who?", "ann", None), ("who?", "ann", None)], 2),
        ([("who?", "ann", None), ("who?", "bob", None)], 0),
        ([("who?", "ann", "w"), ("who?", "ann", "w"), ("who?", "ann", "x")], 1),
        ([("who?", "ann", "w"), ("who?", "ann", "w"), ("where?", "ann", "w")], 0),
    ],
    ids=["none", "copies", "other topics", "one of another source", "one source"],
)
def test_copies_are_counted_unless_they_have_one_source(rows: list[Row], repeated: int) -> None:
    assert count_repeated(frame(rows)) == repeated
    assert count_repeated(frame(rows, configurations=2)) == repeated, "a question has a row in each configuration"


def test_the_sentence_names_what_to_do() -> None:
    said = repeated_text(1, "9 questions")
    assert said.startswith("1 of 9 questions repeats an earlier one, ")
    assert said.endswith("in a field `source`")
