"""The paper-compatible scores of methods.md §9.3."""

from __future__ import annotations

import pytest

from pipeline.evaluation import compat


@pytest.mark.parametrize(
    ("raw", "text"),
    [
        ("{Yes}. The answer is {Lyon}.", "Lyon"),
        ("{ no } {Lyon; Nice} {Paris}", "Lyon; Nice"),
        ("{Yes} and that is all", "Yes"),
        ("{} {Lyon}", ""),
        ("The answer is Lyon.", "The answer is Lyon."),
        ("{Lyon", "{Lyon"),
        ('Thus: {"answers": ["Lyon", "Nice"]}', '"answers": ["Lyon", "Nice"]'),
        ("  ", "Paris, Lyon"),
    ],
)
def test_the_text_that_is_matched(raw: str, text: str) -> None:
    assert compat.answer_text(raw, ["Paris", "Lyon"]) == text


@pytest.mark.parametrize(
    ("text", "golds", "tog", "readi"),
    [
        ("New York", ["new york"], True, True),
        ("in New York City", ["New York"], True, True),
        ("York", ["New York"], True, False),
        ("Paris", ["New York", "NYC"], False, False),
        ("", ["New York"], False, False),
        (" ", ["New York"], False, False),
        ("Paris", [""], False, False),
        ("a", ["Bahamas"], True, False),
    ],
)
def test_substrings(text: str, golds: list[str], tog: bool, readi: bool) -> None:
    assert compat.tog_em(text, golds) is tog
    assert compat.readi_hit(text, golds) is readi


def test_rog_looks_for_golds_in_the_joined_lines() -> None:
    assert compat.rog_hit_and_f1(["The U.S.A."], ["USA"]) == (True, 1.0)
    assert compat.rog_hit_and_f1(["New", "York"], ["New York"]) == (True, pytest.approx(2 / 3))
    assert compat.rog_hit_and_f1(["Lyon"], ["Nice"]) == (False, 0.0)
    assert compat.rog_hit_and_f1([], ["Nice"]) == (False, 0.0)


def test_rog_f1_may_exceed_one() -> None:
    hit, f1 = compat.rog_hit_and_f1(["Ann, Bob and Cy"], ["Ann", "Bob", "Cy"])
    assert hit
    assert f1 == pytest.approx(1.5)  # precision 3 / 1, recall 3 / 3


def test_arg_matches_labels_to_the_letter() -> None:
    assert compat.arg_hit3(["Lyon"], ["Nice", "Lyon"])
    assert not compat.arg_hit3(["lyon"], ["Lyon"])
    assert compat.arg_f1(["Lyon", "Lyon", "Paris"], ["Lyon"]) == pytest.approx(2 / 3)
    assert compat.arg_f1([], ["Lyon"]) == 0


@pytest.mark.parametrize(
    ("method", "scores"),
    [
        ("srp", ("compat_readi_hit",)),
        ("srp (readi)", ("compat_readi_hit",)),
        ("ArG-prompted", ("compat_arg_hit3", "compat_arg_f1")),
        ("parog", ("compat_tog_em",)),
        ("R3-Cycle", ("rouge_l",)),
        ("Graph-CoT", ("rouge_l",)),
        ("gnn-rag", ("compat_rog_hit", "compat_rog_f1")),
        ("cot", ("compat_readi_hit",)),
        ("something", ()),
        ("", ()),
    ],
)
def test_what_is_printed_beside_a_method(method: str, scores: tuple[str, ...]) -> None:
    assert compat.printed_beside(method) == scores
