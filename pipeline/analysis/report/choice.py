"""Which points are worth their cost: the front that no other point beats, and the one to take."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from pipeline.analysis.report.measured import Answers
from pipeline.evaluation.statistics import Estimate

_NOISE = 9
"""Decimals to which means are compared: equal ones may differ beyond, where they were added up in another order."""


@dataclass(frozen=True, slots=True)
class Choice:
    """The point to take, by index."""

    best: int
    """The highest score; of equal ones the cheapest."""
    chosen: int
    """The cheapest of `equals`."""
    among: int
    """Points to choose from."""
    equals: Mapping[int, Estimate]
    """The points not shown to be worse than the best: the mean of their score less the best one's, over the same
    questions, with a paired interval that reaches 0."""


def pareto_front(costs: Mapping[int, float], scores: Mapping[int, float]) -> dict[int, list[int]]:
    """The points, cheapest first, than which no other is better in one and no worse in the other.

    Of points that are equal in both it is the first; the others are its value.
    """
    front: dict[int, list[int]] = {}
    last = None
    for index in sorted(scores, key=lambda i: (costs[i], -scores[i], i)):
        if last is not None and (costs[index], scores[index]) == (costs[last], scores[last]):
            front[last].append(index)
        elif last is None or scores[index] > scores[last]:
            last, front[index] = index, []
    return front


def choose(answers: Answers, prices: Mapping[int, tuple[float, float]], *, among: Sequence[int]) -> Choice:
    """Find the cheapest of the points `among`, by `prices`, that is not shown to be worse than the best of them."""
    means = answers.values.mean(axis=0).round(_NOISE)
    best = min(among, key=lambda index: (-means[index], prices[index]))
    differences = answers.means(answers.values[:, among] - answers.values[:, [best]])
    equals = {index: each for index, each in zip(among, differences, strict=True) if each.high >= 0}
    return Choice(best, min(equals, key=lambda index: prices[index]), len(among), equals)
