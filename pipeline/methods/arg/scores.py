"""Process rewards: hop and path scores computed from the probabilities of reflection tokens (specification §4.6)."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Annotated, Literal, TypeAlias

from pydantic import ConfigDict, Field
from pydantic.dataclasses import dataclass

from pipeline.methods.arg.tokens import CLASSES, Logprobs, Weights

UtilityWeights: TypeAlias = (
    Literal["shifted", "linear"] | Annotated[tuple[float, ...], Field(min_length=5, max_length=5)]
)
SeqScore: TypeAlias = Literal["exp_mean", "cumulative", "mean_logprob", "none"]
ScoreAt: TypeAlias = Literal["every_hop", "leaf"]
Aggregate: TypeAlias = Literal["mean", "code", "sum"]

_UTILITY_WEIGHTS: dict[str, tuple[float, ...]] = {
    "shifted": (0.0, 0.5, 1.0, 1.5, 2.0),  # 1 + u with u weighted from -1 to 1
    "linear": (0.2, 0.4, 0.6, 0.8, 1.0),
}


@dataclass(frozen=True, kw_only=True, config=ConfigDict(extra="forbid"))
class Terms:
    """Which terms the score includes. An excluded term is 1 in a product and 0 in a sum."""

    relevance: bool
    rationality: bool
    utility: bool
    sequence: bool


_PARTIALLY = 0.5
"""What `[Partially Relevant]` and `[Partially Reasonable]` count beside the best token of their class."""


def graded_score(weights: Weights | None) -> float:
    """Return the score of a relevance or rationality token; 0 without weights.

    It is the weight of the best token of the class (`[Fully Relevant]`), plus half the weight of the second one.
    """
    if weights is None:
        return 0.0
    fully, partially, _ = weights.values()
    return fully + _PARTIALLY * partially


def utility(weights: Weights | None, worth: UtilityWeights) -> float:
    """Return the expected worth of the five utility levels, or 0 without a utility token."""
    if weights is None:
        return 0.0
    levels = _UTILITY_WEIGHTS[worth] if isinstance(worth, str) else worth
    return sum(level * weights[token] for level, token in zip(levels, CLASSES["utility"], strict=True))


def sequence(logprobs: Logprobs | None, how: SeqScore) -> float:
    """Return the model's confidence in the text it wrote, or 0 without log-probabilities."""
    if not logprobs or how == "none":
        return 0.0
    mean = mean_logprob(logprobs)
    if how == "mean_logprob":
        return mean
    return math.exp(mean if how == "exp_mean" else mean * len(logprobs))


def mean_logprob(logprobs: Logprobs | None) -> float:
    """Return the mean log-probability of the tokens that were written, or 0 without log-probabilities."""
    if not logprobs:
        return 0.0
    return sum(next(iter(position.values())) for position in logprobs) / len(logprobs)


def aggregate(hops: Sequence[float], how: Aggregate) -> float:
    """Combine the hop scores of a path into its score. `code` does it as the authors' published code."""
    if how == "code":
        score = 0.0
        for level, hop in enumerate(hops, start=1):
            score = (hop + score) / (level + 1)
        return score
    return sum(hops) / (max(1, len(hops)) if how == "mean" else 1)
