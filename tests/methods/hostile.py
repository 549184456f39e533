"""Hostile model text, and the check that a parser handles it (specification §2.4)."""

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
from pipeline.llm.prompt import Prompt
from pipeline.simulation.gold_context import GoldContext
from pipeline.simulation.oracle import damage
from pipeline.simulation.registry import write_as_oracle

COMMON = (
    *"{}[]()\"'`\\,:-\n",
    *("```\n", "\\u12", "1.", "2)", "1e999", "9" * 60, "١٢", "null", "True", "NaN"),
    *("\x00", "\u2028", "\u202e", "😀", "“", "’"),
    *("Amélie", "AMÉLIE", "O’Hara", "Jeunet", "film.directed_by", "{{question}}", "电影", "فيلم"),
    *("__import__('os').system('x')", "lambda: 0", "{'a': exit()}", " " * 30, "{" * 30, "[" * 30),
)
"""Pieces of text that are hostile to any format."""


def texts(pieces: Iterable[str]) -> st.SearchStrategy[str]:
    """Generate arbitrary text, and sequences of the pieces mixed with arbitrary text."""
    piece = st.sampled_from(list(pieces)) | st.text(max_size=5)
    return st.text() | st.lists(piece, max_size=40).map("".join)


@st.composite
def damaged_replies(draw: st.DrawFn, prompt: Prompt[Any], known: GoldContext, pieces: Sequence[str]) -> tuple[str, str]:
    """Generate a damaged reply of the oracle, and the same reply with a piece inserted."""
    rng = Random(draw(st.integers(0, 2**32)))
    text = damage(write_as_oracle(prompt, known, rng if draw(st.booleans()) else None), rng)
    at = draw(st.integers(0, len(text)))
    return text, text[:at] + draw(st.sampled_from(pieces)) + text[at:]


def read(prompt: Prompt[Any], text: str) -> bool:
    """Parse as the engine does, and return whether that gave a value.

    Fails if parsing raises anything but a one-line ParseError, or evaluates text.
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
    """Fail the test if any text is evaluated."""
    with pytest.MonkeyPatch.context() as patched:
        for module, name in ((builtins, "eval"), (builtins, "exec"), (ast, "literal_eval")):
            patched.setattr(module, name, _refuse)
        yield


def _refuse(*arguments: object, **options: object) -> None:
    raise AssertionError("model text was evaluated")
