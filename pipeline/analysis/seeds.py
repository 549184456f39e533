"""Means over configurations that differ in `run.seed` alone, as PARoG's paper reports them (specification §9.2)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from rich.table import Table

from pipeline.config import key_of, with_sections
from pipeline.config.identity import canonical, deciding_keys
from pipeline.evaluation.configuration_summary import differing_overrides
from pipeline.evaluation.score_tables import percent, plain_table
from pipeline.evaluation.statistics import Estimate, mean_over_seeds
from pipeline.grouping import grouped
from pipeline.percentages import one_decimal, percentage

_SEED = "run.seed"
_EQUAL = ("llm_calls", "prompt_tokens", "completion_tokens")
"""The counters that are equal for seeds with the same calls."""
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
        return not round(self.margin, 6)

    @property
    def margin(self) -> float:
        """1.96·s/√n, in percentage points."""
        return round(100 * (self.score.high - self.score.mean), 9)  # equal scores have no margin, rounding errors aside

    def __str__(self) -> str:
        mean = f"{self.words} {percentage(self.score.mean)}"
        if self.is_equal:
            return f"{mean} with each of {self.score.questions} seeds"
        return f"{mean} ± {one_decimal(self.margin)} ({self.score.questions} seeds)"


def seed_groups(configs: Sequence[Mapping[str, Any]], served: Sequence[Mapping[str, Any]]) -> list[list[int]]:
    """Return the positions of resolved configurations that differ in `run.seed` alone, one for each seed.

    `served` are the models and graphs that answered, as in `run.yaml`: equal keys may name other ones later. A
    configuration with a single seed is in no group.
    """
    seeds = [each.get("run", {}).get("seed") for each in configs]
    if len(set(seeds)) < 2:
        return []
    alike = grouped(range(len(configs)), lambda position: _without_seed(configs[position], served[position])).values()
    groups = [sorted({seeds[position]: position for position in reversed(each)}.values()) for each in alike]
    return [each for each in groups if len(each) > 1]


@dataclass(frozen=True, slots=True)
class OverSeeds:
    """The means of a score over seeds, the highest first."""

    score: str
    """The name of the score."""
    means: Sequence[SeedMean]

    def lines(self) -> list[str]:
        """Return a line with the highest means; nothing without seeds."""
        named = _listed(list(map(str, self.means)), "; ")
        return [f"{self.score} over seeds, mean ± 1.96·s/√n: {named}{self._sharing}"] if self.means else []

    @property
    def _sharing(self) -> str:
        """A clause that names the configurations whose seeds share their calls; empty if none do."""
        equal = [each for each in self.means if each.is_equal]
        sharing = [each for each in equal if each.is_shared]
        of_some = "" if sharing == equal else f" ({_listed([each.words for each in sharing], ', ')})"
        return f"; at temperature 0, seeds share their calls{of_some}" if sharing else ""

    def tables(self) -> list[Table]:
        """Return a table of all means for a file; nothing without seeds."""
        if not self.means:
            return []
        table = plain_table(f"{self.score} over seeds, in percent", f"±: 1.96·s/√n{self._sharing}")
        table.add_column("configuration")
        for heading in ("seeds", "mean", "±"):
            table.add_column(heading, justify="right")
        for each in self.means:
            table.add_row(
                each.words, str(each.score.questions), percent(each.score.mean), str(one_decimal(each.margin))
            )
        return [table]

    def to_list(self) -> list[dict[str, Any]]:
        """Return the means for JSON output, as shares."""
        return [
            {
                "configuration": each.words,
                "score": self.score,
                "seeds": each.score.questions,
                "mean": each.score.mean,
                "margin": each.margin / 100,
                "shares_calls": each.is_shared,
            }
            for each in self.means
        ]


def over_seeds(
    score: str,
    configs: Sequence[Mapping[str, Any]],
    served: Sequence[Mapping[str, Any]],
    methods: Sequence[str],
    overrides: Sequence[Sequence[str]],
    *,
    scores: Sequence[float | None],
    costs: Sequence[Mapping[str, float]],
) -> OverSeeds:
    """Return the `seed_means` of a score, which it names.

    `costs` are the counters of each configuration. Seeds share their calls if these are equal, and at most one of them
    has made calls of its own. If their replies come from earlier runs, nothing tells whether seeds shared them there.
    """
    groups = seed_groups(configs, served)
    own = [each.get("llm_calls", 0) - each.get("llm_calls_shared", 0) for each in costs]
    equal = [tuple(each.get(name, 0) for name in _EQUAL) for each in costs]
    are_shared = [
        sum(bool(own[position]) for position in group) <= 1
        and len({equal[position] for position in group}) == 1
        and not any(configs[position]["run"].get("reuse") for position in group)
        for group in groups
    ]
    models = [str(each.get("model")) for each in served]
    words = list(map(_deciding_words, overrides, configs)) if groups else overrides
    return OverSeeds(score, seed_means(groups, methods, words, scores, models=models, are_shared=are_shared))


def _deciding_words(words: Sequence[str], config: Mapping[str, Any]) -> list[str]:
    """Leave out the overrides of keys that decide no results, such as the folder of the run."""
    known = with_sections(deciding_keys(config))
    return [word for word in words if (key := key_of(word)) in known or "." not in key]


def seed_means(
    groups: Sequence[Sequence[int]],
    methods: Sequence[str],
    overrides: Sequence[Sequence[str]],
    scores: Sequence[float | None],
    *,
    models: Sequence[str],
    are_shared: Sequence[bool],
) -> list[SeedMean]:
    """Return the mean of each of the `seed_groups`, the highest first.

    `methods`, `overrides`, `scores` and `models` are those of all configurations, and `are_shared` is of the groups. A
    score of None is left out.
    """
    own = differing_overrides(overrides) if groups else []
    names = []
    for first, *others in groups:
        common = [word for word in own[first] if all(word in own[position] for position in others)]
        names.append(" ".join(common) or methods[first])
    means = []
    for group, name, is_shared in zip(groups, names, are_shared, strict=True):
        known = [score for position in group if (score := scores[position]) is not None]
        if len(known) > 1:
            answered = f" ({models[group[0]]})" if names.count(name) > 1 else ""
            means.append(SeedMean(f"{name}{answered}", mean_over_seeds(known), is_shared))
    return sorted(means, key=lambda each: -each.score.mean)


def _listed(texts: Sequence[str], separator: str) -> str:
    """Name the first of some texts on one line."""
    more = f"; and {len(texts) - _SHOWN:,} more" if len(texts) > _SHOWN else ""
    return f"{separator.join(texts[:_SHOWN])}{more}"


def _without_seed(config: Mapping[str, Any], served: Mapping[str, Any]) -> str:
    answered = [served.get("model"), served.get("graph"), served.get("roles") or {}]  # an older run has no roles
    return canonical([{key: value for key, value in deciding_keys(config).items() if key != _SEED}, answered])
