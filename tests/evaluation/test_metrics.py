"""Every score of one question, with known answers (specification §9.2–9.5)."""

from __future__ import annotations

from dataclasses import astuple, replace
from functools import partial
from typing import Literal

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pipeline.config import default
from pipeline.evaluation.config import ScoringConfig
from pipeline.evaluation.metrics import score_question
from pipeline.types import Answer, Gold, GoldAnswer, LiteralNode, Prediction, Scores, Triple

score = partial(score_question, scoring=default(ScoringConfig))


def answer(*texts: str, raw: str = "") -> Answer:
    return Answer(tuple(map(Prediction, texts)), raw=raw)


def gold(*names: str) -> Gold:
    return Gold(answers=tuple(map(GoldAnswer, names)))


def test_the_standard_metrics_of_a_partly_right_answer() -> None:
    scores = score(answer("Paris", "Lyon", "the lyon", "Nice"), gold("Lyon", "Nice", "Lille", "Brest"))
    assert scores.hits_at_1 == 0
    assert scores.hits_any == 1
    assert scores.precision == pytest.approx(2 / 3)
    assert scores.recall == pytest.approx(2 / 4)
    assert scores.f1 == pytest.approx(4 / 7)
    assert scores.exact_match == 0


def test_exact_match_ignores_the_order() -> None:
    scores = score(answer("NICE", "lyon."), gold("Lyon", "Nice"))
    assert (scores.hits_at_1, scores.f1, scores.exact_match) == (1, 1, 1)


def test_an_empty_answer_scores_zero() -> None:
    scores = score(answer("", "  "), gold("Lyon"))
    assert (scores.hits_at_1, scores.hits_any, scores.precision, scores.recall, scores.f1) == (0, 0, 0, 0, 0)
    assert scores.compat_tog_em == scores.compat_rog_f1 == scores.compat_arg_f1 == 0
    assert scores.faithfulness is None


def test_a_failed_question_is_wrong_even_with_partial_answers() -> None:
    left = Answer((Prediction("Lyon"),), raw="{Lyon}", status="failed")
    scores = score(left, gold("Lyon"))
    assert scores.hits_at_1 == scores.f1 == scores.compat_tog_em == scores.answer_in_evidence == 0
    assert score(Answer((Prediction("Lyon"),), status="budget_exhausted"), gold("Lyon")).hits_at_1 == 1


def test_one_prediction_matches_one_gold_answer() -> None:
    shared = Gold(answers=(GoldAnswer("Georgia (state)", aliases=("Georgia",)), GoldAnswer("Georgia")))
    assert score(answer("Georgia"), shared).recall == 0.5


def test_an_id_matches_without_a_name() -> None:
    by_id = Answer((Prediction("Big Apple", "m.02_286"),))
    assert score(by_id, Gold(answers=(GoldAnswer("New York City", "m.02_286"),))).exact_match == 1


def test_a_question_without_gold_has_no_scores() -> None:
    assert set(astuple(score(answer("Lyon"), gold()))) == {None}


def test_with_strict_empty_an_empty_answer_is_correct_without_gold() -> None:
    strict = default(ScoringConfig, empty_gold="strict_empty")
    silent, loud = (
        score(answer(), gold(), scoring=strict),
        score(answer("x"), gold(), scoring=strict),
    )
    assert (silent.hits_at_1, silent.f1, silent.exact_match, silent.compat_tog_em) == (1, 1, 1, None)
    assert (loud.hits_at_1, loud.f1, loud.exact_match) == (0, 0, 0)
    failed = score(Answer(status="failed"), gold(), scoring=strict)
    assert (failed.hits_at_1, failed.f1, failed.exact_match) == (0, 0, 0), "a failed question is wrong"


def test_accents_count_if_they_are_not_stripped() -> None:
    strict = default(ScoringConfig, strip_accents=False)
    assert score(answer("Beyonce"), gold("Beyoncé")).hits_at_1 == 1
    assert score(answer("Beyonce"), gold("Beyoncé"), scoring=strict).hits_at_1 == 0


def test_paper_metrics_read_the_text_that_the_papers_read() -> None:
    scores = score(answer("Lyon", "Paris", raw="{Yes} so it is {Lyon; Paris}."), gold("Lyon"))
    assert (scores.compat_tog_em, scores.compat_readi_hit) == (1, 1)
    assert (scores.compat_rog_hit, scores.compat_rog_f1) == (1, pytest.approx(2 / 3))
    assert (scores.compat_rog_precision, scores.compat_rog_recall) == (0.5, 1)
    assert (scores.compat_arg_hit3, scores.compat_arg_f1) == (1, pytest.approx(2 / 3))
    lower = score(answer("lyon"), gold("Lyon"))
    assert (lower.hits_at_1, lower.compat_arg_hit3) == (1, 0)


def test_only_grbench_has_grbench_scores() -> None:
    reply, expected = answer("C. Mayer", "B. Lee", "A. Smith"), gold("A. Smith, B. Lee, C. Mayer")
    assert score(reply, expected, dataset="webqsp").rouge_l is None
    scores = score(reply, expected, dataset="grbench")
    assert scores.rouge_l == pytest.approx(1 / 3)
    assert (scores.grbench_em, scores.grbench_f1) == (0, 1)


def with_evidence(*texts: str) -> Answer:
    chain = (
        Triple("m.f", "film.film.directed_by", "m.d"),
        Triple("m.d", "people.person.date_of_birth", LiteralNode("1950-03-07T00:00:00Z", "xsd:dateTime")),
    )
    predictions = tuple(Prediction(text, "m.d" if text == "the director" else None) for text in texts)
    return Answer(predictions, evidence=(chain,), names={"m.f": "Some Film", "m.d": "Ann Director"})


@pytest.mark.parametrize(
    ("texts", "expected", "in_evidence", "supported", "faithful"),
    [
        (["Ann Director"], "Ann Director", 1, 1, 1),
        (["the director"], "Somebody Else", 0, None, 1),
        (["1950-03-07"], "1950-03-07", 1, 1, 1),
        (["Somebody", "Some Film"], "Somebody", 0, 0, 0.5),
        (["Nobody"], "Ann Director", 1, None, 0),
        ([], "Ann Director", 1, None, None),
    ],
)
def test_evidence_scores(
    texts: list[str], expected: str, in_evidence: float, supported: float | None, faithful: float | None
) -> None:
    scores = score(with_evidence(*texts), gold(expected))
    assert scores.answer_in_evidence == in_evidence
    assert scores.answer_supported == supported
    assert scores.faithfulness == faithful


def test_support_is_counted_by_the_rule_of_the_papers_number_too() -> None:
    """The first answer contains the gold answer, which Readi's rule counts as correct, and strict Hits@1 does not."""
    lenient = score(with_evidence("the director Ann"), gold("Ann"))
    assert (lenient.compat_readi_hit, lenient.answer_supported, lenient.supported_readi_hit) == (1, None, 0)
    assert score(with_evidence("Ann Director"), gold("Ann")).supported_readi_hit == 1
    assert score(with_evidence("Nobody"), gold("Ann")).supported_readi_hit is None


@pytest.mark.parametrize(
    ("followed", "expected", "recall"),
    [
        (["r.a", "r.b", "r.c"], ["r.a", "r.d"], 0.5),
        ([], ["r.a"], 0),
        (None, ["r.a"], None),
        (["r.a"], None, None),
    ],
)
def test_relation_recall(followed: list[str] | None, expected: list[str] | None, recall: float | None) -> None:
    assert score(answer("Lyon"), gold("Lyon"), followed=followed, gold_relations=expected).relation_recall == recall
    failed = replace(answer("Lyon"), status="failed")
    missed = None if recall is None else 0
    assert score(failed, gold("Lyon"), followed=followed, gold_relations=expected).relation_recall == missed


@pytest.mark.parametrize(
    ("initial", "final", "initial_hits", "corrected", "damaged"),
    [
        (["Nice"], ["Lyon"], 0, 1, None),
        (["Nice"], ["Nice", "Lyon"], 0, 0, None),
        (["Nice", "Lyon"], ["Lyon"], 0, 1, None),
        ([], ["lyon"], 0, 1, None),
        (["  "], [], 0, 0, None),
        (["LYON", "Nice"], ["Lyon"], 1, None, 0),
        (["Lyon"], ["Nice", "Lyon"], 1, None, 1),
        (["Lyon"], [], 1, None, 1),
    ],
)
def test_reflection_scores(
    initial: list[str], final: list[str], initial_hits: float, corrected: float | None, damaged: float | None
) -> None:
    scores = score(replace(answer(*final), initial=answer(*initial).predictions), gold("Lyon"))
    assert (scores.initial_hits_at_1, scores.corrected, scores.damaged) == (initial_hits, corrected, damaged)


@pytest.mark.parametrize(
    ("ended", "initial", "final", "halted", "incorrect"),
    [
        ("halted", [], ["Lyon"], 1, None),
        ("halted", [], ["Nice"], 0, None),
        ("halted", [], [], 0, None),
        ("finished", ["Nice"], ["Lyon"], None, 1),
        ("finished", ["Nice"], ["Paris"], None, 0),
        ("finished", [], ["Lyon"], None, 1),
        ("finished", ["Lyon"], ["Nice"], None, None),
        (None, ["Nice"], ["Lyon"], None, None),
    ],
)
def test_recovery_is_split_by_the_failure_of_the_first_attempt(
    ended: Literal["halted", "finished"] | None,
    initial: list[str],
    final: list[str],
    halted: float | None,
    incorrect: float | None,
) -> None:
    retried = replace(answer(*final), initial=answer(*initial).predictions, first_attempt=ended)
    scores = score(retried, gold("Lyon"))
    assert (scores.recovered_halted, scores.recovered_incorrect) == (halted, incorrect)


def test_the_name_of_a_method_says_which_text_the_metrics_of_papers_read() -> None:
    replied = replace(answer("Lyon"), raw="{Yes} Lyon")
    scored = {
        method: score_question(replied, gold("Lyon"), method=method, scoring=default(ScoringConfig)).compat_readi_hit
        for method in ("dog", "dog (oracle)", "tog")
    }
    assert scored == {"dog": 1, "dog (oracle)": 1, "tog": 0}


def test_recovery_on_grbench_is_a_higher_rouge_l() -> None:
    """A part of the words is found after the retry: no hit, but a better answer."""
    retried = replace(answer("Ilka Venn"), initial=answer("Bo").predictions, first_attempt="finished")
    assert score(retried, gold("Ilka Venn, Joss Marlo")).recovered_incorrect == 0
    on_grbench = score_question(
        retried, gold("Ilka Venn, Joss Marlo"), dataset="grbench_dblp", scoring=default(ScoringConfig)
    )
    assert on_grbench.recovered_incorrect == 1


def test_initial_answers_match_like_final_ones() -> None:
    by_id = Answer((Prediction("Big Apple", "m.02_286"),), initial=(Prediction("Big Apple", "m.02_286"),))
    scores = score(by_id, Gold(answers=(GoldAnswer("New York City", "m.02_286"),)))
    assert (scores.initial_hits_at_1, scores.damaged) == (1, 0)
    accented = replace(answer("Beyoncé"), initial=(Prediction("Beyonce"),))
    assert score(accented, gold("Beyoncé")).initial_hits_at_1 == 1
    assert score(accented, gold("Beyoncé"), scoring=default(ScoringConfig, strip_accents=False)).corrected == 1


def test_correction_is_counted_by_the_rule_of_the_paper_too() -> None:
    """By ToG's rule, "Lyon in France" is correct; strictly it is wrong (§9.5)."""
    answer = Answer((Prediction("Lyon"),), initial=(Prediction("Lyon in France"),))
    scores = score(answer, gold("Lyon"))
    assert (scores.corrected, scores.damaged) == (1, None)
    assert (scores.corrected_tog_em, scores.damaged_tog_em) == (None, 0)
    scores = score(Answer((Prediction("Paris"),), initial=(Prediction("Nice"),)), gold("Lyon"))
    assert (scores.corrected_tog_em, scores.damaged_tog_em) == (0, None)
    assert score(Answer((Prediction("Lyon"),)), gold("Lyon")).corrected_tog_em is None


def test_without_initial_answers_or_gold_nothing_is_corrected_or_damaged() -> None:
    failed = Answer((Prediction("Lyon"),), status="failed", initial=(Prediction("Lyon"),))
    reflected = replace(answer("Lyon"), initial=())
    for scores in (
        score(answer("Lyon"), gold("Lyon")),
        score(failed, gold("Lyon")),
        score(reflected, gold()),
    ):
        assert (scores.initial_hits_at_1, scores.corrected, scores.damaged) == (None, None, None)
    strict = score(reflected, gold(), scoring=default(ScoringConfig, empty_gold="strict_empty"))
    assert (strict.initial_hits_at_1, strict.corrected, strict.damaged) == (1, None, 1)


NAMES = st.sampled_from(["Ann", "ann", "The Ann", "Bob", "Bob B.", "Cy", "", "5", "5.0", "-5", "{Dan}", "Yes"])
PREDICTIONS = st.lists(st.builds(Prediction, NAMES, st.sampled_from([None, "m.1", "m.2"])), max_size=5).map(tuple)
ANSWERS = st.builds(
    Answer,
    PREDICTIONS,
    raw=st.text(st.sampled_from("{}AnBob yes"), max_size=12),
    initial=st.none() | PREDICTIONS,
)
GOLDS = st.builds(
    Gold,
    st.lists(
        st.builds(GoldAnswer, NAMES, st.sampled_from([None, "m.1", "m.3"]), st.lists(NAMES, max_size=2).map(tuple)),
        max_size=4,
    ).map(tuple),
)


@given(ANSWERS, GOLDS)
def test_standard_scores_are_between_zero_and_one(answer: Answer, gold: Gold) -> None:
    scores = score(answer, gold, dataset="grbench")
    values = {name: getattr(scores, name) for name in Scores.__dataclass_fields__}
    if scores.hits_at_1 is None:
        assert set(values.values()) == {None}
        return
    assert all(value >= 0 for value in values.values() if value is not None)
    limited = values.keys() - {"compat_rog_f1", "compat_rog_precision"}
    assert all(values[name] <= 1 for name in limited if values[name] is not None)
    assert scores.hits_at_1 <= scores.hits_any
    assert scores.exact_match <= scores.f1
    assert min(scores.precision, scores.recall) <= scores.f1 <= max(scores.precision, scores.recall)
    assert (scores.f1 > 0) == (scores.hits_any == 1)
    assert scores.compat_readi_hit <= scores.compat_tog_em
    reflection = [scores.initial_hits_at_1, scores.corrected, scores.damaged]
    assert reflection.count(None) == (3 if answer.initial is None else 1)


@given(ANSWERS, GOLDS)
def test_unchanged_answers_are_neither_corrected_nor_damaged(answer: Answer, gold: Gold) -> None:
    scores = score(replace(answer, initial=answer.predictions), gold)
    assert not scores.corrected
    assert not scores.damaged


@given(ANSWERS, GOLDS)
def test_only_hits_at_1_depends_on_the_order(answer: Answer, gold: Gold) -> None:
    reversed_answer = Answer(answer.predictions[::-1], raw=answer.raw)
    one, other = score(answer, gold), score(reversed_answer, Gold(answers=gold.answers[::-1]))
    for name in ("hits_any", "precision", "recall", "f1", "exact_match"):
        assert getattr(one, name) == getattr(other, name)


@given(st.lists(NAMES, max_size=5), st.lists(NAMES, max_size=5))
def test_f1_is_symmetric(first: list[str], second: list[str]) -> None:
    one = score(answer(*first), gold(*second)).f1
    other = score(answer(*second), gold(*first)).f1
    assert one is None or other is None or one == other
