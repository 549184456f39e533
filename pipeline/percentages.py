"""Percentages with one decimal: the same score is printed alike by every command and page."""

from __future__ import annotations

import math

_NOISE = 1e-9
"""More than the error of some additions and a division, in tenths of a percent."""


def one_decimal(percent: float) -> float:
    """Round to one decimal, halves away from zero. Zero has no sign.

    251 of 400 are 62.8 %, also where 1 − 149/400 is computed, which is a little less than 62.75 % in binary.
    """
    rounded = math.floor(10 * abs(percent) + 0.5 + _NOISE) / 10
    return -rounded if percent < 0 and rounded else rounded


def percentage(share: float) -> str:
    """Format a share in percent."""
    return f"{one_decimal(100 * share):.1f}"


def signed_points(difference: float) -> str:
    """Format a difference of shares in percentage points, with its sign."""
    return f"{one_decimal(100 * difference):+.1f}"
