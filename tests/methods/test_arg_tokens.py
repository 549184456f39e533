"""ArG's reflection tokens: read in every spelling, weighed by what was reported, scored (methods.md §4.2, §4.6)."""

from __future__ import annotations

from math import exp, log

import pytest

from pipeline.methods.arg.scores import aggregate, rationality, relevance, sequence, utility
from pipeline.methods.arg.tokens import CLASSES, certain, find_marks, reported_weights

FULLY, PARTIALLY, NOT = CLASSES["relevance"]


def tokens(text: str) -> list[str]:
    return [mark.token for mark in find_marks(text)]


@pytest.mark.parametrize(
    ("written", "canonical"),
    [
        ("[Relation Retrieval]", "[Retrieve Relation]"),
        ("[Entity Retrieval]", "[Retrieve Entity]"),
        ("[Relevant]", "[Fully Relevant]"),
        ("[Partially]", "[Partially Relevant]"),
        ("[Irrelevant]", "[Unrelevant]"),
        ("[Reasonable]", "[Fully Reasonable]"),
        ("[Utility: 5]", "[Utility:5]"),
        ("[ fully  relevant ]", "[Fully Relevant]"),
    ],
)
def test_aliases_and_loose_spellings(written: str, canonical: str) -> None:
    assert tokens(written) == [canonical]


def test_every_token_is_found_where_it_stands_and_counted_within_its_class() -> None:
    text = "[REC][Unrelevant]b[Fully Reasonable]c[Relevant][No Retrieval][Utility:9]"
    marks = find_marks(text)
    assert [(mark.token, mark.place) for mark in marks] == [
        ("[Unrelevant]", 0),
        ("[Fully Reasonable]", 0),
        ("[Fully Relevant]", 1),
        ("[No Retrieval]", 0),
    ]
    assert [text[mark.start : mark.end] for mark in marks][2] == "[Relevant]"
    for members in CLASSES.values():
        assert tokens("".join(members)) == list(members)


def test_a_token_of_the_vocabulary_is_weighed_against_its_class_alone() -> None:
    logprobs = [{"r1": -0.1}, {FULLY: log(0.6), PARTIALLY: log(0.2), NOT: log(0.1), "[Fully Reasonable]": log(0.05)}]
    weights, is_whole = reported_weights(find_marks(f"r1{FULLY}")[0], logprobs)
    assert weights == pytest.approx({FULLY: 6 / 9, PARTIALLY: 2 / 9, NOT: 1 / 9})
    assert is_whole


def test_the_token_at_a_place_is_weighed_by_the_position_of_that_place() -> None:
    logprobs = [{"a": 0.0}, {FULLY: log(0.9), NOT: log(0.1)}, {"b": 0.0}, {NOT: log(0.8), FULLY: log(0.2)}]
    marks = find_marks(f"a{FULLY}b{NOT}")
    assert [reported_weights(mark, logprobs)[0][FULLY] for mark in marks] == pytest.approx([0.9, 0.2])
    assert not reported_weights(marks[0], logprobs)[1], "one member was not reported"


def test_a_token_of_several_pieces_is_weighed_along_them() -> None:
    logprobs = [
        {"r1[": log(0.9), "r2[": log(0.1)},
        {"F": log(0.5), "Part": log(0.3), "Un": log(0.2)},
        {"ully Relevant": log(1.0)},
        {"]": 0.0},
    ]
    weights, is_whole = reported_weights(find_marks(f"r1{FULLY}")[0], logprobs)
    assert weights == pytest.approx({FULLY: 0.5, PARTIALLY: 0.3, NOT: 0.2})
    assert is_whole


@pytest.mark.parametrize("logprobs", [[], [{}], [{"else": 0.0}], [{NOT: 0.0}], [{FULLY: -10_000.0}]])
def test_what_was_not_reported_leaves_the_token_itself(logprobs: list[dict[str, float]]) -> None:
    mark = find_marks(FULLY)[0]
    assert reported_weights(mark, logprobs) == ({FULLY: 1.0, PARTIALLY: 0.0, NOT: 0.0}, False)


def test_hard_scores() -> None:
    assert [relevance(certain(find_marks(token)[0])) for token in (FULLY, PARTIALLY, NOT)] == [1, 0.5, 0]
    assert [rationality(certain(find_marks(token)[0])) for token in CLASSES["rationality"]] == [1, 0.5, 0]
    levels = [utility(certain(find_marks(token)[0]), "linear") for token in CLASSES["utility"]]
    assert levels == pytest.approx([0.2, 0.4, 0.6, 0.8, 1.0])
    assert (relevance(None), utility(None, "shifted")) == (0, 0)


def test_scores_of_probabilities() -> None:
    assert relevance({FULLY: 0.6, PARTIALLY: 0.3, NOT: 0.1}) == pytest.approx(0.75)
    by_level = dict(zip(CLASSES["utility"], (0.1, 0.2, 0.3, 0.0, 0.4), strict=True))
    u = -1 * 0.1 - 0.5 * 0.2 + 0.5 * 0.0 + 1 * 0.4
    assert utility(by_level, "shifted") == pytest.approx(1 + u)
    assert utility(by_level, (0, 0, 0, 0, 10)) == pytest.approx(4)


def test_the_probability_of_a_segment() -> None:
    logprobs = [{"a": -1.0, "b": -0.5}, {"c": -3.0}]
    assert sequence(logprobs, "exp_mean") == pytest.approx(exp(-2))
    assert sequence(logprobs, "mean_logprob") == -2
    assert [sequence(logprobs, "none"), sequence([], "exp_mean"), sequence(None, "exp_mean")] == [0, 0, 0]


def test_path_scores() -> None:
    assert aggregate((0.8, 0.4), "mean") == pytest.approx(0.6)
    assert aggregate((0.8, 0.4), "sum") == pytest.approx(1.2)
    assert aggregate((0.8, 0.4), "code") == pytest.approx((0.4 + 0.8 / 2) / 3)
    assert [aggregate((), how) for how in ("mean", "sum", "code")] == [0, 0, 0]  # type: ignore[arg-type]
