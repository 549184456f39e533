"""Selects configurations that are worth their cost: the Pareto front, and the recommended configuration."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from pipeline.evaluation.statistics import Estimate, holm, not_worse_p_value, questions_to_show_not_worse
from pipeline.report.data import ScoreMatrix

MARGIN = 0.02
"""A score may be lower than the best one by this much to be recommended for its cost: two percentage points."""
_DECIMALS = 9
"""Means are compared after rounding to this many decimals, because summation order changes the last digits."""


@dataclass(frozen=True, slots=True)
class Recommendation:
    """The recommended configuration and the best one, by index."""

    best: int
    """The highest score; the cheapest of equal ones."""
    recommended: int | None
    """The cheapest of `not_worse`; None if there are too few questions, or no configuration answers one."""
    candidates: int
    """Number of configurations to choose from."""
    not_worse: Mapping[int, Estimate]
    """The configurations of the Pareto front that are shown to be worse than the best by less than `MARGIN`, with the
    mean difference of their score from the best one over the same questions."""
    questions: int
    independent: int
    """The questions, where those with the same source count as one."""
    needed: int
    """The fewest independent questions with which a configuration can be shown not to be worse than another one."""
    is_cheapest: bool = False
    """Whether no configuration is cheaper than the best one."""
    is_tied: bool = False
    """Whether one with as many calls may be cheaper, as tokens are not known: then none is recommended."""
    draws: Sequence[int] = ()
    """The seeds of the best or of the recommended configuration, if there are several: then none is recommended."""

    @property
    def shown(self) -> int:
        """The recommended configuration, or else the best one."""
        return self.best if self.recommended is None else self.recommended


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


def recommend(scores: ScoreMatrix, costs: Mapping[int, tuple[float, float]], *, among: Sequence[int]) -> Recommendation:
    """Find the cheapest configuration `among` these that is hardly worse than the best of them.

    `costs` are the model calls and the tokens per question. Only configurations that no other one beats in score and
    both costs are recommended. But all that are cheaper than the best one are tested, and corrected for by Holm's
    procedure, as in `kgqa compare`: which of them is on the front depends on the same scores.
    """
    means = {index: round(float(scores.values[:, index].mean()), _DECIMALS) for index in among}
    front = [index for index in among if not any(_beats(other, index, means, costs) for other in among)]
    best = min(front, key=lambda index: (-means[index], costs[index]))
    cheaper = [index for index in among if costs[index] < costs[best]]
    independent = len(scores.values) if scores.sources is None else len(np.unique(scores.sources))
    confidence = scores.evaluation.confidence
    # If the best one is the cheapest, no test chooses it. With a few questions, this is luck.
    tests = max(len(cheaper), 1) if len(among) > 1 else 0
    needed = questions_to_show_not_worse(MARGIN, comparisons=tests, confidence=confidence) if tests else 0
    p_values = [
        not_worse_p_value(scores.values[:, each] - scores.values[:, best], MARGIN, clusters=scores.sources)
        for each in cheaper
    ]
    shown = [index for index, p in zip(cheaper, holm(p_values), strict=True) if p <= 1 - confidence]
    not_worse = [best, *(index for index in shown if index in front)]
    differences = scores.means(scores.values[:, not_worse] - scores.values[:, [best]])
    is_sound = means[best] > 0 and independent >= needed
    return Recommendation(
        best=best,
        recommended=min(not_worse, key=lambda index: costs[index]) if is_sound else None,
        candidates=len(among),
        not_worse=dict(zip(not_worse, differences, strict=True)),
        questions=len(scores.values),
        independent=independent,
        needed=needed,
        is_cheapest=not cheaper,
    )


def _beats(one: int, other: int, means: Mapping[int, float], costs: Mapping[int, tuple[float, float]]) -> bool:
    """Whether a configuration is at least as good as another one in score and both costs, and better in one."""
    first, second = ((means[index], *(-cost for cost in costs[index])) for index in (one, other))
    return first != second and all(a >= b for a, b in zip(first, second, strict=True))
