"""BM25 over short texts, with the parameters of the papers' index (specification §8.7)."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from pipeline.retrieval.lexical import STOP_WORDS, stem, words


class Bm25:
    """A BM25 index. Words are stemmed and stop words dropped."""

    def __init__(self, texts: Sequence[str]) -> None:
        """Index the texts."""
        import bm25s  # here, because it needs 0.3 s, and most commands need no index

        self._size = len(texts)
        self._index = bm25s.BM25(method="lucene", k1=0.9, b=0.4)
        documents = [_terms(text) for text in texts]
        if any(documents):
            self._index.index(documents, show_progress=False)
            self._known: frozenset[str] = frozenset().union(*documents)
        else:
            self._known = frozenset()

    def scores(self, query: str) -> npt.NDArray[np.floating[Any]]:
        """Return the score of each text, 0 if it shares no word with the query; shape (texts,)."""
        terms = [term for term in _terms(query) if term in self._known]
        if not terms:
            return np.zeros(self._size, np.float32)
        scores: npt.NDArray[np.floating[Any]] = self._index.get_scores(terms)
        return scores


def _terms(text: str) -> list[str]:
    return [stem(word) for word in words(text) if word not in STOP_WORDS]
