"""Selects configurations that are worth their cost: the Pareto front, and the recommended configuration."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from pipeline.evaluation.statistics import Estimate
from pipeline.report.data import ScoreMatrix

_DECIMALS = 9
"""Means are compared after rounding to this many decimals, because summation order changes the last digits."""


@dataclass(frozen=True, slots=True)
class Recommendation:
    """The recommended configuration and the best one, by index."""

    best: int
    """The configuration with the highest score; of several, the cheapest."""
    recommended: int
    """The cheapest configuration of `not_worse`."""
    candidates: int
    """Number of configurations to choose from."""
    not_worse: Mapping[int, Estimate]
    """The configurations not shown to be worse than the best, with the mean difference of their score from the best one
    over the same questions; its paired interval reaches 0."""


def pareto_front(costs: Mapping[int, float], scores: Mapping[int, float]) -> dict[int, list[int]]:
    """Return the configurations that no other one dominates in cost and score, cheapest first.

    The first of configurations with equal cost and score is the key; the others are its value.
    """
    front: dict[int, list[int]] = {}
    last = None
    for index in sorted(scores, key=lambda i: (costs[i], -scores[i], i)):
        if last is not None and (costs[index], scores[index]) == (costs[last], scores[last]):
            front[last].append(index)
        elif last is None or scores[index] > scores[last]:
            last, front[index] = index, []
    return front


def recommend(
    scores: ScoreMatrix, cost_keys: Mapping[int, tuple[float, float]], *, among: Sequence[int]
) -> Recommendation:
    """Find the cheapest configuration `among` these that is not shown to be worse than the best of them."""
    means = scores.values.mean(axis=0).round(_DECIMALS)
    best = min(among, key=lambda index: (-means[index], cost_keys[index]))
    differences = scores.means(scores.values[:, among] - scores.values[:, [best]])
    not_worse = {index: each for index, each in zip(among, differences, strict=True) if each.high >= 0}
    cheapest = min(not_worse, key=lambda index: cost_keys[index])
    return Recommendation(best, cheapest, len(among), not_worse)
