"""The metrics of the papers (specification §9.3)."""

from __future__ import annotations

import pytest

from pipeline.evaluation import paper_metrics


@pytest.mark.parametrize(
    ("raw", "text"),
    [
        ("{Yes}. The answer is {Lyon}.", "Lyon"),
        ("{ no } {Lyon; Nice} {Paris}", "Lyon; Nice"),
        ("{Yes} and that is all", "Yes"),
        ("{Yes.} So it is {Lyon}.", "Lyon"),
        ("{Yes, the facts suffice} So it is {Lyon}.", "Lyon"),
        ("{No Man's Land} {Lyon}", "No Man's Land"),
        ("{Yes} The film is {No, No, Nanette}.", "No, No, Nanette"),
        ("{yes} {No} {Lyon}", "Lyon"),
        ("{} {Lyon}", ""),
        ("The answer is Lyon.", "The answer is Lyon."),
        ("{Lyon", "{Lyon"),
        ('Thus: {"answers": ["Lyon", "Nice"]}', "Paris, Lyon"),
        ("```json\n{'aligned': true, 'final': []}", "Paris, Lyon"),
        ("{Lyon: the city}", "Lyon: the city"),
        ("  ", "Paris, Lyon"),
    ],
)
def test_answer_text(raw: str, text: str) -> None:
    assert paper_metrics.answer_text(raw, ["Paris", "Lyon"], method="tog") == text


@pytest.mark.parametrize("method", ["dog", "dog (gold)", "pog", "PARoG"])
@pytest.mark.parametrize("raw", ["{Yes} Lyon", "{Yes, it is} {Rome}", "{“answers”: [“Lyon”], “reason”: “Ali”}"])
def test_some_papers_score_the_parsed_answers(raw: str, method: str) -> None:
    assert paper_metrics.answer_text(raw, ["Lyon", "Nice"], method=method) == "Lyon, Nice"


@pytest.mark.parametrize(("answer", "gold"), [("Bob", "Ali"), ("Cleo", "Ed"), ("Dina", "Fin")])
def test_the_keys_of_a_json_reply_are_no_answer(answer: str, gold: str) -> None:
    """Each gold answer is a part of the reply, as in "aligned", "needed" and "final", but not of its answers."""
    raw = f'{{"aligned": true, "needed": [], "answers": ["{answer}"], "final": ["{answer}"]}}'
    text = paper_metrics.answer_text(raw, [answer], method="mine")
    assert not paper_metrics.tog_em(text, [gold])
    assert not paper_metrics.readi_hit(text, [gold])
    assert paper_metrics.tog_em(text, [answer])


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
def test_tog_and_readi_match_substrings(text: str, golds: list[str], tog: bool, readi: bool) -> None:
    assert paper_metrics.tog_em(text, golds) is tog
    assert paper_metrics.readi_hit(text, golds) is readi


def test_rog_searches_golds_in_the_joined_lines() -> None:
    assert paper_metrics.rog_scores(["The U.S.A."], ["USA"]) == (True, 1.0, 1.0, 1.0)
    assert paper_metrics.rog_scores(["New", "York"], ["New York"]) == (True, 0.5, 1.0, pytest.approx(2 / 3))
    assert paper_metrics.rog_scores(["Lyon"], ["Nice"]) == (False, 0.0, 0.0, 0.0)
    assert paper_metrics.rog_scores([], ["Nice"]) == (False, 0.0, 0.0, 0.0)


def test_rog_f1_may_exceed_one() -> None:
    hit, precision, recall, f1 = paper_metrics.rog_scores(["Ann, Bob and Cy"], ["Ann", "Bob", "Cy"])
    assert hit
    assert (precision, recall) == (3, 1)
    assert f1 == pytest.approx(1.5)


def test_arg_matches_exact_labels() -> None:
    assert paper_metrics.arg_hit3(["Lyon"], ["Nice", "Lyon"])
    assert not paper_metrics.arg_hit3(["lyon"], ["Lyon"])
    assert paper_metrics.arg_f1(["Lyon", "Lyon", "Paris"], ["Lyon"]) == pytest.approx(2 / 3)
    assert paper_metrics.arg_f1([], ["Lyon"]) == 0


@pytest.mark.parametrize(
    ("method", "scores"),
    [
        ("srp", ("compat_readi_hit",)),
        ("srp (readi)", ("compat_readi_hit",)),
        ("ArG-prompted", ("compat_arg_hit3", "compat_arg_f1")),
        ("parog", ("compat_tog_em",)),
        ("dog (oracle)", ("compat_readi_hit",)),
        ("R3-Cycle", ("rouge_l",)),
        ("Graph-CoT", ("rouge_l",)),
        ("gnn-rag", ("compat_rog_hit", "compat_rog_f1")),
        ("cot", ("compat_readi_hit",)),
        ("something", ()),
        ("", ()),
    ],
)
def test_the_paper_metrics_of_a_method(method: str, scores: tuple[str, ...]) -> None:
    assert paper_metrics.paper_metrics_of(method) == scores
