"""Means over configurations that differ in `run.seed` alone, as PARoG's paper reports them (specification §9.2)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from pipeline.config.identity import canonical, deciding_keys
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
    """The overrides that other configurations do not have, or the method."""
    score: Estimate
    """Over the seeds: ± 1.96·s/√n."""

    def __str__(self) -> str:
        margin = self.score.high - self.score.mean
        return f"{self.words} {100 * self.score.mean:.1f} ± {100 * margin:.1f} ({self.score.questions} seeds)"


def seed_means(
    configs: Sequence[Mapping[str, Any]], overrides: Sequence[Sequence[str]], scores: Sequence[float | None]
) -> list[SeedMean]:
    """Return the means over seeds, the highest first; nothing where each configuration has one seed.

    Args:
        configs: The resolved configurations.
        overrides: The words of each of them.
        scores: The score of each of them; None leaves it out.
    """
    known = {position: score for position, score in enumerate(scores) if score is not None}
    own = differing_overrides(overrides) if overrides else []
    means = []
    for positions in grouped(known, lambda position: _without_seed(configs[position])).values():
        of_seed = {configs[position].get("run", {}).get("seed"): known[position] for position in reversed(positions)}
        if len(of_seed) > 1:
            words = [word for word in own[positions[0]] if not word.startswith(f"{_SEED}=")]
            name = " ".join(words) or configs[positions[0]]["choices"]["method"]
            means.append(SeedMean(name, mean_over_seeds(list(of_seed.values()))))
    return sorted(means, key=lambda each: -each.score.mean)


def named(means: Sequence[SeedMean]) -> str:
    """Name the highest means on one line."""
    more = f"; and {len(means) - _SHOWN:,} more" if len(means) > _SHOWN else ""
    return f"{'; '.join(map(str, means[:_SHOWN]))}{more}"


def _without_seed(config: Mapping[str, Any]) -> str:
    return canonical({key: value for key, value in deciding_keys(config).items() if key != _SEED})
