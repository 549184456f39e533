"""ArG's reflection tokens: their spellings, reported probabilities and scores (specification §4.2, §4.6)."""

from __future__ import annotations

from math import exp, log

import pytest

from pipeline.methods.arg.scores import aggregate, graded_score, sequence, utility
from pipeline.methods.arg.tokens import CLASSES, find_tokens, hard_weights, reported_weights

FULLY, PARTIALLY, NOT = CLASSES["relevance"]


def tokens(text: str) -> list[str]:
    return [token.text for token in find_tokens(text)]


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
def test_aliases_and_loose_spellings_are_read_as_the_canonical_token(written: str, canonical: str) -> None:
    assert tokens(written) == [canonical]


def test_tokens_are_found_with_their_position_and_their_index_in_their_class() -> None:
    text = "[REC][Unrelevant]b[Fully Reasonable]c[Relevant][No Retrieval][Utility:9]"
    found = find_tokens(text)
    assert [(token.text, token.index) for token in found] == [
        ("[Unrelevant]", 0),
        ("[Fully Reasonable]", 0),
        ("[Fully Relevant]", 1),
        ("[No Retrieval]", 0),
    ]
    assert [text[token.start : token.end] for token in found][2] == "[Relevant]"
    for members in CLASSES.values():
        assert tokens("".join(members)) == list(members)


def test_weights_are_normalised_over_the_class_of_the_token() -> None:
    logprobs = [{"r1": -0.1}, {FULLY: log(0.6), PARTIALLY: log(0.2), NOT: log(0.1), "[Fully Reasonable]": log(0.05)}]
    weights, complete = reported_weights(find_tokens(f"r1{FULLY}")[0], logprobs)
    assert weights == pytest.approx({FULLY: 6 / 9, PARTIALLY: 2 / 9, NOT: 1 / 9})
    assert complete


def test_each_token_is_weighed_by_its_own_position() -> None:
    logprobs = [{"a": 0.0}, {FULLY: log(0.9), NOT: log(0.1)}, {"b": 0.0}, {NOT: log(0.8), FULLY: log(0.2)}]
    found = find_tokens(f"a{FULLY}b{NOT}")
    assert [reported_weights(token, logprobs)[0][FULLY] for token in found] == pytest.approx([0.9, 0.2])
    assert not reported_weights(found[0], logprobs)[1], "one member was not reported"


def test_a_token_of_several_vocabulary_tokens_is_weighed_along_them() -> None:
    logprobs = [
        {"r1[": log(0.9), "r2[": log(0.1)},
        {"F": log(0.5), "Part": log(0.3), "Un": log(0.2)},
        {"ully Relevant": log(1.0)},
        {"]": 0.0},
    ]
    weights, complete = reported_weights(find_tokens(f"r1{FULLY}")[0], logprobs)
    assert weights == pytest.approx({FULLY: 0.5, PARTIALLY: 0.3, NOT: 0.2})
    assert complete


@pytest.mark.parametrize("logprobs", [[], [{}], [{"else": 0.0}], [{NOT: 0.0}], [{FULLY: -10_000.0}]])
def test_without_reported_alternatives_the_written_token_gets_all_weight(logprobs: list[dict[str, float]]) -> None:
    (token,) = find_tokens(FULLY)
    assert reported_weights(token, logprobs) == ({FULLY: 1.0, PARTIALLY: 0.0, NOT: 0.0}, False)


def test_hard_scores_come_from_the_written_token_alone() -> None:
    assert [graded_score(hard_weights(find_tokens(token)[0])) for token in (FULLY, PARTIALLY, NOT)] == [1, 0.5, 0]
    assert [graded_score(hard_weights(find_tokens(token)[0])) for token in CLASSES["rationality"]] == [1, 0.5, 0]
    levels = [utility(hard_weights(find_tokens(token)[0]), "linear") for token in CLASSES["utility"]]
    assert levels == pytest.approx([0.2, 0.4, 0.6, 0.8, 1.0])
    assert (graded_score(None), utility(None, "shifted")) == (0, 0)


def test_relevance_and_utility_are_expected_values() -> None:
    assert graded_score({FULLY: 0.6, PARTIALLY: 0.3, NOT: 0.1}) == pytest.approx(0.75)
    by_level = dict(zip(CLASSES["utility"], (0.1, 0.2, 0.3, 0.0, 0.4), strict=True))
    u = -1 * 0.1 - 0.5 * 0.2 + 0.5 * 0.0 + 1 * 0.4
    assert utility(by_level, "shifted") == pytest.approx(1 + u)
    assert utility(by_level, (0, 0, 0, 0, 10)) == pytest.approx(4)


def test_the_sequence_score_is_the_mean_log_probability_or_its_exponential() -> None:
    logprobs = [{"a": -1.0, "b": -0.5}, {"c": -3.0}]
    assert sequence(logprobs, "exp_mean") == pytest.approx(exp(-2))
    assert sequence(logprobs, "mean_logprob") == -2
    assert [sequence(logprobs, "none"), sequence([], "exp_mean"), sequence(None, "exp_mean")] == [0, 0, 0]


def test_hop_scores_are_aggregated_to_a_path_score() -> None:
    assert aggregate((0.8, 0.4), "mean") == pytest.approx(0.6)
    assert aggregate((0.8, 0.4), "sum") == pytest.approx(1.2)
    assert aggregate((0.8, 0.4), "code") == pytest.approx((0.4 + 0.8 / 2) / 3)
    assert [aggregate((), how) for how in ("mean", "sum", "code")] == [0, 0, 0]  # type: ignore[arg-type]
