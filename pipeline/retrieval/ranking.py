"""Ranks by score, with equal results on every machine (specification §2.7)."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import numpy.typing as npt

_DECIMALS = 5
"""Scores that are equal to this many decimals are ties. Smaller differences are rounding errors of matrix products.
Those grow with the scores: unnormalised vectors have one decimal less for each factor of ten."""


def best(scores: npt.NDArray[np.floating[Any]], k: int) -> list[int]:
    """Return the positions of the k largest scores, largest first, ties by position."""
    if k <= 0:
        return []
    rounded = np.round(scores, _DECIMALS - _magnitude(scores))
    if k < len(rounded):
        threshold = np.partition(rounded, len(rounded) - k)[len(rounded) - k]
        candidates = np.flatnonzero(rounded >= threshold)
    else:
        candidates = np.arange(len(rounded))
    order = candidates[np.argsort(-rounded[candidates], kind="stable")][:k]
    positions: list[int] = order.tolist()
    return positions


def _magnitude(scores: npt.NDArray[np.floating[Any]]) -> int:
    """Return how many digits the largest score has before its decimal point, beyond the first."""
    largest = float(np.abs(scores).max(initial=1.0))
    return math.floor(math.log10(largest))
