"""Scores of one-string answers, with the facts that specification §9.4 states."""

from __future__ import annotations

import gzip
import json
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pipeline.evaluation.grbench import exact_match, join_answers, rouge_l, set_f1

# F-measures printed by Google's rouge_score 0.1.2 (rougeL, no stemmer) for prediction and reference.
REFERENCE_VALUES = [
    ("A. Clark, B. Baker, C. Adams", "A. Clark, B. Baker, C. Adams", 1.0),
    ("the cat sat on the mat", "the cat was on a mat", 2 / 3),
    ("police killed the gunman", "the gunman police killed", 0.5),
    ("1,234.50 USD", "1234.50", 0.3333333333333333),
    ("", "Dolica", 0.0),
    ("O'Neill's book", "O Neill s Book!", 1.0),
    ("naïve café", "naive cafe", 0.0),
    ("a b c d e f g", "g f e d c b a", 0.14285714285714285),
]


@pytest.mark.parametrize(("prediction", "reference", "f_measure"), REFERENCE_VALUES)
def test_rouge_l_equals_the_reference_implementation(prediction: str, reference: str, f_measure: float) -> None:
    assert rouge_l(prediction, reference) == pytest.approx(f_measure)


def test_order_matters() -> None:
    assert rouge_l(join_answers(["Cy", "Bob", "Ann"]), join_answers(["Ann", "Bob", "Cy"])) == pytest.approx(1 / 3)


def test_an_iso_date_differs_from_a_written_one() -> None:
    assert rouge_l("March 7, 1950", "1950-03-07") == pytest.approx(1 / 3)


def test_text_without_latin_letters_scores_zero() -> None:
    assert rouge_l("王小明", "王小明") == 0


@given(st.lists(st.sampled_from("abcd")), st.lists(st.sampled_from("abcd")))
def test_the_longest_common_subsequence_equals_the_textbook_table(first: list[str], second: list[str]) -> None:
    table = [[0] * (len(second) + 1) for _ in range(len(first) + 1)]
    for i, left in enumerate(first):
        for j, right in enumerate(second):
            table[i + 1][j + 1] = table[i][j] + 1 if left == right else max(table[i][j + 1], table[i + 1][j])
    expected = 2 * table[-1][-1] / (len(first) + len(second)) if table[-1][-1] else 0
    assert rouge_l(" ".join(first), " ".join(second)) == expected


@pytest.mark.parametrize(
    ("prediction", "reference", "equal"),
    [
        ("The Dolica.", "dolica", True),
        ("33", "33.0", True),
        ("32.85", "3285", False),
        ("$1,234.50 USD", "1234.5", True),
        ("-5", "5", False),
        ("there are 33", "33", False),
        ("USD", "", True),
        ("nan", "nan", True),
        ("5.", "5", True),
        ("USD 5", "5", True),
        ("$ 5", "5", True),
        ("the (5)", "5", True),
        ("1,200.", "1200", True),
        ("(-5)", "5", False),
        (".5!", "0.5", True),
        ("", "The", False),
        ("the", "The", True),
    ],
)
def test_exact_match_compares_numbers_as_numbers(prediction: str, reference: str, equal: bool) -> None:
    assert exact_match(prediction, reference) is equal


def test_set_f1_ignores_the_order() -> None:
    assert set_f1("C. Mayer, A. Smith", "A. Smith, B. Lee, C. Mayer") == pytest.approx(4 / 5)
    assert set_f1("1,234", "1234.0") == 1
    assert set_f1("7", "7.0, 8") == pytest.approx(2 / 3)
    assert set_f1("", "x") == 0
    assert set_f1("12, 13.", "12, 13") == 1


def test_every_real_answer_scores_one_against_itself(shared_data: Path) -> None:
    files = sorted((shared_data / "grbench").rglob("data.json.gz"))
    answers = [json.loads(line)["answer"] for file in files for line in gzip.decompress(file.read_bytes()).splitlines()]
    assert len(answers) == 1470
    latin = [answer for answer in answers if rouge_l(answer, answer)]
    assert all(rouge_l(answer, answer) == set_f1(answer, answer) == 1 for answer in latin)
    assert len(latin) > 1460
