"""Encodes texts by hashed words and character trigrams. The default encoder, which needs no neural model."""

from __future__ import annotations

import asyncio
import re
import zlib
from collections.abc import Sequence
from functools import lru_cache

import numpy as np

from pipeline.retrieval.interface import Vectors

DIMENSIONS = 512

_MAX_CHARACTERS = 2000
"""Characters of a text that are used, so that no input is slow."""
_MAX_INLINE = 500
"""Largest number of texts that are encoded on the event loop (about 10 ms if none is cached). More use a thread."""
_STOP_WEIGHT = 0.05
"""The weight of a stop word; not zero, so that no text has a zero vector."""

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
    """An encoder whose vectors are similar if texts share words or parts of words. Deterministic; cached per text.

    The keys are described in `conf/retrieval/lexical.yaml`.
    """

    name = "lexical"

    def vectors(self, texts: Sequence[str]) -> Vectors:
        """Return unit vectors, shape (texts, DIMENSIONS)."""
        rows = [_text_vector(text[:_MAX_CHARACTERS]) for text in texts]
        return np.concatenate(rows).reshape(-1, DIMENSIONS) if rows else np.empty((0, DIMENSIONS), np.float32)

    def similarities(self, query: str, texts: Sequence[str]) -> list[float]:
        """Return the cosine similarity of each text with the query, rounded to six decimals."""
        scores = self.vectors(texts) @ self.vectors([query])[0]
        return [round(score, 6) for score in scores.tolist()]

    async def encode(self, texts: Sequence[str]) -> Vectors:
        """Return unit vectors, shape (texts, DIMENSIONS)."""
        if len(texts) > _MAX_INLINE:
            return await asyncio.to_thread(self.vectors, texts)
        return self.vectors(texts)


def words(text: str) -> list[str]:
    """Return the lower-case words of a text. Dots, underscores and camel case separate words, as in relation names."""
    return _WORD.findall(_CAMEL_CASE.sub(" ", text).casefold())


def stem(word: str) -> str:
    """Return a word without common English endings, so that `directed`, `directors` and `direction` are equal."""
    stemmed = _DOUBLED.sub(r"\1", _ENDING.sub("", word))
    return f"{stemmed[:-1]}i" if len(stemmed) > 3 and stemmed.endswith("y") else stemmed


@lru_cache(maxsize=16384)
def _text_vector(text: str) -> Vectors:
    """Return the unit vector of a text: the sum over its distinct stems, with a low weight for stop words."""
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
    """Return the vector of a stem: the stem and its trigrams, with equal total weights."""
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
