"""Which key a misspelled word is taken for."""

from __future__ import annotations

import pytest

from pipeline.suggestions import closest, did_you_mean_key

KEYS = ["method.beam_width", "method.frontier_per_layer", "run.limit"]


@pytest.mark.parametrize(
    ("word", "found"),
    [("runs:1", None), ("runs", "runs:13"), ("rums:13", "runs:13"), ("1-3", None), ("rums:013", "runs:13")],
)
def test_a_word_is_not_taken_for_one_with_another_number(word: str, found: str | None) -> None:
    assert closest(word, ["runs:13"]) == found


@pytest.mark.parametrize(
    ("word", "key"),
    [
        ("widht", "method.beam_width"),
        ("beam_widht", "method.beam_width"),
        ("limt", "run.limit"),
        ("paper", None),
        ("x", None),
    ],
)
def test_a_short_word_must_be_much_like_the_end_of_a_key(word: str, key: str | None) -> None:
    assert did_you_mean_key(word, KEYS) == (f" Did you mean '{key}'?" if key else "")
