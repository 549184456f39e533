"""What a method returns: anything but an answer fails one question, with a sentence for who wrote the method."""

from __future__ import annotations

import math
from dataclasses import replace
from typing import Any

import pytest

from pipeline.engine.returned_answer import check_answer
from pipeline.types import Answer, Prediction, Relation, Triple

GOOD = Answer(
    predictions=(Prediction("Ann"),), raw="Ann", evidence=((Triple("a", "b", "c"),),), initial=(Prediction("Bob"),)
)


@pytest.mark.parametrize("answer", [GOOD, Answer(), replace(GOOD, initial=None)])
def test_an_answer_is_returned(answer: Answer) -> None:
    assert check_answer(answer) == answer


def test_what_can_be_read_only_once_is_kept() -> None:
    once: Any = replace(
        GOOD, predictions=map(Prediction, ["Ann"]), evidence=(iter(chain) for chain in GOOD.evidence), initial=[]
    )
    assert check_answer(once) == replace(GOOD, initial=())


@pytest.mark.parametrize("value", [None, [], "Ann", [Prediction("Ann")]])
def test_something_else_is_named(value: object) -> None:
    with pytest.raises(TypeError, match=rf"must return a pipeline.Answer, not {type(value).__name__}"):
        check_answer(value)


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("predictions", ["Ann"]),
        ("predictions", "Ann"),
        ("predictions", None),
        ("predictions", (Prediction(5),)),  # type: ignore[arg-type]
        ("predictions", (Prediction("Ann", score=math.nan),)),
        ("predictions", (Prediction("Ann", score="high"),)),  # type: ignore[arg-type]
        ("raw", 5),
        ("evidence", (Triple("a", "b", "c"),)),
        ("evidence", [["a"]]),
        ("evidence", ((Triple("a", Relation("b", "out"), "c"),),)),  # type: ignore[arg-type]
        ("evidence", ((Triple("a", "b", None),),)),  # type: ignore[arg-type]
        ("predictions", (Prediction("Ann", 5),)),  # type: ignore[arg-type]
        ("predictions", (Prediction("Ann \ud800"),)),
        ("raw", "\udfff"),
        ("names", {"m.1": 5}),
        ("names", ["Ann"]),
        ("status", "fine"),
        ("initial", ["Ann"]),
    ],
)
def test_a_wrong_field_is_named(field: str, value: Any) -> None:
    with pytest.raises(TypeError, match=rf"Answer\.{field} cannot be "):
        check_answer(replace(GOOD, **{field: value}))
