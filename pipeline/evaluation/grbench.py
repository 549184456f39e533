"""Scores of GRBench answers, each of which is one string (specification §9.4).

ROUGE-L equals Graph-CoT's, without the random resampling of its wrapper. It depends on word order (three authors in
reverse order score 1/3) and on the form of dates (an ISO date against a written one scores 1/3). An answer without
ASCII letters or digits scores 0.
"""

from __future__ import annotations

import re
import string
from collections.abc import Iterable

_TOKEN = re.compile(r"[a-z0-9]+")
_DROPPED_WORD = re.compile(r"\b(?:a|an|the|usd)\b")
_NO_PUNCTUATION = str.maketrans("", "", string.punctuation)
_CLOSING = string.punctuation + string.whitespace
_OPENING = "".join(set(_CLOSING) - set("+-.$"))
"""Marks in front of a number that are no part of it."""
_NUMBER = re.compile(r"\$? ?([+-]?(?:[0-9]{1,3}(?:,[0-9]{3})+|[0-9]*)(?:\.[0-9]+|(?<=[0-9])))(?: ?usd)?")


def join_answers(answers: Iterable[str]) -> str:
    """Join answers into one string, in the format of GRBench's lists."""
    return ", ".join(answers)


def rouge_l(prediction: str, reference: str) -> float:
    """Return the F-measure in [0, 1] of the longest common subsequence of tokens.

    Tokens are runs of lower-cased ASCII letters and digits, without stemming.
    """
    predicted, expected = _TOKEN.findall(prediction.lower()), _TOKEN.findall(reference.lower())
    common = _common_subsequence(predicted, expected)
    return 2 * common / (len(predicted) + len(expected)) if common else 0.0


def exact_match(prediction: str, reference: str) -> bool:
    """Return whether two answers are equal: as numbers, or as texts without punctuation and articles.

    No answer is equal to none, also to a gold answer that is an article.
    """
    return bool(prediction.strip()) and _comparable(prediction) == _comparable(reference)


def set_f1(prediction: str, reference: str) -> float:
    """Return F1 of the sets of comma-separated items. Numbers are compared as numbers."""
    predicted, expected = _items(prediction), _items(reference)
    common = len(predicted & expected)
    return 2 * common / (len(predicted) + len(expected)) if common else 0.0


def _items(text: str) -> set[str | float]:
    whole = _comparable(text)
    items = [whole] if isinstance(whole, float) else map(_comparable, text.split(","))
    return {item for item in items if item != ""}


def _comparable(text: str) -> str | float:
    plain = _DROPPED_WORD.sub(" ", text.lower()).strip()
    if number := _NUMBER.fullmatch(plain.lstrip(_OPENING).rstrip(_CLOSING)):
        return float(number[1].replace(",", ""))
    return " ".join(_DROPPED_WORD.sub(" ", text.lower().translate(_NO_PUNCTUATION)).split())


def _common_subsequence(first: list[str], second: list[str]) -> int:
    """Return the length of the longest common subsequence, with each table row as one integer (Hyyrö 2004).

    Bit i of `row` is 0 where the row's value increases between the prefixes of i and i + 1 tokens of `first`.
    """
    positions: dict[str, int] = {}
    for index, token in enumerate(first):
        positions[token] = positions.get(token, 0) | 1 << index
    full = (1 << len(first)) - 1
    row = full
    for token in second:
        matches = row & positions.get(token, 0)
        row = ((row + matches) | (row - matches)) & full
    return len(first) - row.bit_count()
