"""A lexical encoder: hashed words and character trigrams. The embedded default where no neural encoder is installed."""

from __future__ import annotations

import asyncio
import re
import zlib
from collections.abc import Sequence
from functools import lru_cache

import numpy as np

from pipeline.retrieval.port import Vectors

DIMENSIONS = 512

_LONGEST = 2000
"""Characters of a text that count, so that no input is slow."""
_BLOCKING = 500
"""Texts from which on encoding moves to a thread (about 10 ms of work when none of them is remembered)."""
_STOP_WEIGHT = 0.05
"""Not zero, so that every text has a direction."""

_STOP_WORDS = """
a about an and are as at be been by did do does for from had has have her his how in into is it its of on or that the
their them there these this those to was were what when where which who whom whose why will with
"""
STOP_WORDS = frozenset(_STOP_WORDS.split())

_CAMEL_CASE = re.compile(r"(?<=[a-z])(?=[A-Z])")
_WORD = re.compile(r"[^\W_]+")
_ENDING = re.compile(r"(?<=...)(?:ions?|ings?|ors?|ers?|ed|en|es|s|e)$")
_DOUBLED = re.compile(r"([b-df-hj-np-tv-z])\1$")


class LexicalEncoder:
    """Texts that share words or parts of words are close. Deterministic everywhere, and remembered per text."""

    name = "lexical"

    def vectors(self, texts: Sequence[str]) -> Vectors:
        """Unit vectors, shape (texts, DIMENSIONS)."""
        rows = [_text_vector(text[:_LONGEST]) for text in texts]
        return np.concatenate(rows).reshape(-1, DIMENSIONS) if rows else np.empty((0, DIMENSIONS), np.float32)

    def similarities(self, query: str, texts: Sequence[str]) -> list[float]:
        """Cosine of each text with the query, to six decimals."""
        scores = self.vectors(texts) @ self.vectors([query])[0]
        return [round(score, 6) for score in scores.tolist()]

    async def encode(self, texts: Sequence[str]) -> Vectors:
        """Unit vectors, shape (texts, DIMENSIONS)."""
        if len(texts) > _BLOCKING:
            return await asyncio.to_thread(self.vectors, texts)
        return self.vectors(texts)


def words(text: str) -> list[str]:
    """The lower-case words of a text; dots, underscores and changes of case divide words, as in relation names."""
    return _WORD.findall(_CAMEL_CASE.sub(" ", text).casefold())


def stem(word: str) -> str:
    """A word without its common English endings, so that `directed`, `directors` and `direction` agree."""
    stemmed = _DOUBLED.sub(r"\1", _ENDING.sub("", word))
    return f"{stemmed[:-1]}i" if len(stemmed) > 3 and stemmed.endswith("y") else stemmed


@lru_cache(maxsize=16384)
def _text_vector(text: str) -> Vectors:
    """The unit vector of a text: the sum of its distinct stems, stop words counting little."""
    total = np.zeros(DIMENSIONS, np.float32)
    weights: dict[str, float] = {}
    for word in words(text) or [""]:
        weights.setdefault(stem(word), _STOP_WEIGHT if word in STOP_WORDS else 1.0)
    for stemmed, weight in weights.items():
        total += _stem_vector(stemmed) if weight == 1.0 else weight * _stem_vector(stemmed)
    unit: Vectors = total / np.linalg.norm(total)
    unit.flags.writeable = False
    return unit


@lru_cache(maxsize=8192)
def _stem_vector(stemmed: str) -> Vectors:
    """A stem as a whole, and its trigrams at the same total weight."""
    framed = f"^{stemmed}$"
    trigrams = sorted({framed[start : start + 3] for start in range(max(1, len(framed) - 2))})
    vector = np.zeros(DIMENSIONS, np.float32)
    _add(vector, f"={stemmed}", 1.0)
    for trigram in trigrams:
        _add(vector, trigram, len(trigrams) ** -0.5)
    return vector


def _add(vector: Vectors, feature: str, weight: float) -> None:
    code = zlib.crc32(feature.encode("utf-8", "surrogatepass"))
    vector[code % DIMENSIONS] += weight if code >> 31 else -weight
