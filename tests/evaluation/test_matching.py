"""Gold groups, duplicate predictions and one-to-one matching (specification §9.2)."""

from __future__ import annotations

from itertools import permutations

from hypothesis import given
from hypothesis import strategies as st

from pipeline.evaluation.matching import AnswerCandidate, distinct, group_gold, matching_size
from pipeline.types import Gold, GoldAnswer, Prediction


def gold(*answers: GoldAnswer) -> Gold:
    return Gold(answers=answers)


def test_duplicates_and_empty_texts_are_dropped() -> None:
    predictions = [Prediction("The Beatles"), Prediction(" "), Prediction("beatles!", "m.1"), Prediction("Queen")]
    assert distinct(predictions) == (AnswerCandidate("beatles", ("m.1",)), AnswerCandidate("queen", ()))


def test_a_name_an_alias_and_an_id_match() -> None:
    groups = group_gold(gold(GoldAnswer("New York City", "m.02_286", ("NYC", "Big Apple"))))
    for candidate in (
        AnswerCandidate("new york city", ()),
        AnswerCandidate("nyc", ()),
        AnswerCandidate("x", ("m.0", "m.02_286")),
    ):
        assert groups.matched_by(candidate) == {0}
    assert not groups.matched_by(AnswerCandidate("york", ()))
    assert not groups.matched_by(AnswerCandidate("x", ("m.0",)))


def test_gold_answers_with_one_name_are_one_group() -> None:
    groups = group_gold(
        gold(GoldAnswer("Tempest", "m.1"), GoldAnswer("The Tempest", "m.2"), GoldAnswer("Hamlet", "m.3"))
    )
    assert groups.count == 2
    assert groups.matched_by(AnswerCandidate("x", ("m.2",))) == groups.matched_by(AnswerCandidate("tempest", ())) == {0}


def test_an_unnamed_gold_answer_is_matched_by_its_id() -> None:
    assert group_gold(gold(GoldAnswer("", "m.0abc"), GoldAnswer(" "))).count == 1


def test_a_shared_alias_matches_one_gold_answer_at_a_time() -> None:
    groups = group_gold(gold(GoldAnswer("Georgia (state)", aliases=("Georgia",)), GoldAnswer("Georgia")))
    georgia, state = (
        groups.matched_by(AnswerCandidate("georgia", ())),
        groups.matched_by(AnswerCandidate("georgia state", ())),
    )
    assert georgia == {0, 1}
    assert matching_size([georgia]) == 1
    assert matching_size([georgia, state]) == 2


def test_the_matching_is_better_than_greedy() -> None:
    assert matching_size([{0, 1}, {0}, set(), {1, 2}]) == 3


@given(st.lists(st.sets(st.integers(0, 4), max_size=5), max_size=5))
def test_the_matching_is_maximum(matches: list[set[int]]) -> None:
    padded = [*matches, *([set()] * (5 - len(matches)))]
    best = max(sum(group in row for group, row in zip(order, padded, strict=True)) for order in permutations(range(5)))
    assert matching_size(matches) == best
