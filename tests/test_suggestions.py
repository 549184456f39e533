"""Which key a misspelled word is taken for."""

from __future__ import annotations

import pytest

from pipeline.suggestions import similar_key

KEYS = ["method.beam_width", "method.frontier_per_layer", "run.limit"]


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
    assert similar_key(word, KEYS) == key
