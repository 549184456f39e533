"""Means over configurations that differ in `run.seed` alone, as PARoG's paper reports them (specification §9.2)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from pipeline.config.identity import canonical, deciding_keys
from pipeline.config.keys import flatten
from pipeline.evaluation.configuration_summary import differing_overrides
from pipeline.evaluation.statistics import Estimate, mean_over_seeds
from pipeline.grouping import grouped

_SEED = "run.seed"
_SHOWN = 10
"""Means that are named in a text."""


@dataclass(frozen=True, slots=True)
class SeedMean:
    """The mean score of configurations that differ in `run.seed` alone."""

    words: str
    """The overrides that all of them have, and not all other configurations; the method if there is none."""
    score: Estimate
    """Over the seeds: ± 1.96·s/√n."""
    is_shared: bool = False
    """Whether the seeds have made the same calls, as a method at temperature 0 does."""

    @property
    def is_equal(self) -> bool:
        """Whether all seeds have the same score."""
        return not round(self._margin, 6)

    @property
    def _margin(self) -> float:
        return 100 * (self.score.high - self.score.mean)

    def __str__(self) -> str:
        mean = f"{self.words} {100 * self.score.mean:.1f}"
        if self.is_equal:
            return f"{mean} with each of {self.score.questions} seeds"
        return f"{mean} ± {self._margin:.1f} ({self.score.questions} seeds)"


def seed_groups(configs: Sequence[Mapping[str, Any]]) -> list[list[int]]:
    """Return the positions of resolved configurations that differ in `run.seed` alone, one for each seed.

    A configuration with a single seed is in no group.
    """
    seeds = [each.get("run", {}).get("seed") for each in configs]
    if len(set(seeds)) < 2:
        return []
    alike = grouped(range(len(configs)), lambda position: _without_seed(configs[position])).values()
    groups = [sorted({seeds[position]: position for position in reversed(each)}.values()) for each in alike]
    return [each for each in groups if len(each) > 1]


def seed_line(
    score: str,
    configs: Sequence[Mapping[str, Any]],
    methods: Sequence[str],
    overrides: Sequence[Sequence[str]],
    scores: Sequence[float | None],
    *,
    costs: Sequence[object],
) -> list[str]:
    """Return a line with the `seed_means` of a score, which it names; nothing without seeds.

    Seeds with equal scores and equal `costs` have shared their calls, if the method has a temperature of 0.
    """
    groups = seed_groups(configs)
    are_shared = [
        len({costs[position] for position in group}) == 1
        and any(_may_have_temperature_0(configs[position]) for position in group)
        for group in groups
    ]
    means = seed_means(groups, methods, overrides, scores, are_shared=are_shared)
    equal = [each for each in means if each.is_equal]
    sharing = [each for each in equal if each.is_shared]
    more = f", and {len(sharing) - _SHOWN:,} more" if len(sharing) > _SHOWN else ""
    of_some = "" if sharing == equal else f" ({', '.join(each.words for each in sharing[:_SHOWN])}{more})"
    shared = f"; at temperature 0, seeds share their calls{of_some}" if sharing else ""
    return [f"{score} over seeds, mean ± 1.96·s/√n: {named(means)}{shared}"] if means else []


def seed_means(
    groups: Sequence[Sequence[int]],
    methods: Sequence[str],
    overrides: Sequence[Sequence[str]],
    scores: Sequence[float | None],
    *,
    are_shared: Sequence[bool],
) -> list[SeedMean]:
    """Return the mean of each of the `seed_groups`, the highest first.

    `methods`, `overrides` and `scores` are those of all configurations, and `are_shared` is of the groups. A score of
    None is left out.
    """
    own = differing_overrides(overrides) if groups else []
    means = []
    for group, is_shared in zip(groups, are_shared, strict=True):
        known = [score for position in group if (score := scores[position]) is not None]
        if len(known) > 1:
            common = [word for word in own[group[0]] if all(word in own[position] for position in group)]
            means.append(SeedMean(" ".join(common) or methods[group[0]], mean_over_seeds(known), is_shared))
    return sorted(means, key=lambda each: -each.score.mean)


def named(means: Sequence[SeedMean]) -> str:
    """Name the highest means on one line."""
    more = f"; and {len(means) - _SHOWN:,} more" if len(means) > _SHOWN else ""
    return f"{'; '.join(map(str, means[:_SHOWN]))}{more}"


def _may_have_temperature_0(config: Mapping[str, Any]) -> bool:
    """Whether a key of the method sets a temperature of 0, or none sets any, as in a method of the user."""
    temperatures = [value for key, value in flatten(config.get("method", {})) if "temperature" in key]
    return not (temperatures and all(temperatures))


def _without_seed(config: Mapping[str, Any]) -> str:
    return canonical({key: value for key, value in deciding_keys(config).items() if key != _SEED})
