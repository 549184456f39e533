"""Texts that no model should write and some model will, and what every parser must do with them (methods.md §2.4)."""

from __future__ import annotations

import ast
import builtins
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from random import Random
from typing import Any

import pytest
from hypothesis import strategies as st

from pipeline.errors import ParseError
from pipeline.llm.oracle import Truth, damage
from pipeline.llm.prompt import Prompt

COMMON = (
    *"{}[]()\"'`\\,:-\n",
    *("```\n", "\\u12", "1.", "2)", "1e999", "9" * 60, "١٢", "null", "True", "NaN"),
    *("\x00", "\u2028", "\u202e", "😀", "“", "’"),
    *("Amélie", "AMÉLIE", "O’Hara", "Jeunet", "film.directed_by", "{{question}}", "电影", "فيلم"),
    *("__import__('os').system('x')", "lambda: 0", "{'a': exit()}", " " * 30, "{" * 30, "[" * 30),
)
"""Pieces of text that are as bad for one format as for another."""


def texts(pieces: Iterable[str]) -> st.SearchStrategy[str]:
    """Any text at all, and heaps of the pieces with a little of any text between them."""
    piece = st.sampled_from(list(pieces)) | st.text(max_size=5)
    return st.text() | st.lists(piece, max_size=40).map("".join)


@st.composite
def damaged_replies(draw: st.DrawFn, prompt: Prompt[Any], known: Truth, pieces: Sequence[str]) -> tuple[str, str]:
    """What the oracle writes, damaged; and the same with a piece put into it."""
    rng = Random(draw(st.integers(0, 2**32)))
    text = damage(prompt.write_as_oracle(known, rng if draw(st.booleans()) else None), rng)
    at = draw(st.integers(0, len(text)))
    return text, text[:at] + draw(st.sampled_from(pieces)) + text[at:]


def read(prompt: Prompt[Any], text: str) -> bool:
    """Parse as the model port does; whether that gave a value.

    Anything but a one-line complaint is a failure, and so is it to evaluate anything.
    """
    complaint = None
    with nothing_evaluated():
        try:
            prompt.parse(text)
        except ParseError as error:
            complaint = str(error)
        prompt.fallback(text)
    assert complaint is None or len(complaint.splitlines()) == 1
    return complaint is None


@contextmanager
def nothing_evaluated() -> Iterator[None]:
    """Make it a failure to evaluate text."""
    with pytest.MonkeyPatch.context() as patched:
        for place, name in ((builtins, "eval"), (builtins, "exec"), (ast, "literal_eval")):
            patched.setattr(place, name, _refuse)
        yield


def _refuse(*arguments: object, **options: object) -> None:
    raise AssertionError("model text was evaluated")
