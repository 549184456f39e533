"""Means over configurations that differ in `run.seed` alone (specification §9.2)."""

from __future__ import annotations

from typing import Any

import pytest

from pipeline import config
from pipeline.analysis.seeds import SeedMean, named, seed_groups, seed_means
from pipeline.evaluation.statistics import mean_over_seeds


def composed(*words: str) -> tuple[dict[str, Any], list[str]]:
    return dict(config.compose(list(words))), list(words)


def averaged(runs: dict[tuple[str, ...], float | None]) -> list[SeedMean]:
    configs, words = zip(*(composed(*each) for each in runs), strict=True)
    methods = [each["choices"]["method"] for each in configs]
    return seed_means(seed_groups(configs), methods, words, list(runs.values()))


def means(runs: dict[tuple[str, ...], float | None]) -> list[str]:
    return list(map(str, averaged(runs)))


def test_seeds_of_one_configuration_are_averaged_and_the_highest_mean_comes_first() -> None:
    scores = [0.84, 0.82, 0.74]
    runs: dict[tuple[str, ...], float | None] = {
        **{(f"run.seed={seed}", "method=tog", "run.limit=9"): score - 0.1 for seed, score in enumerate(scores)},
        **{(f"run.seed={seed}", "method=srp", "run.limit=9"): score for seed, score in enumerate(scores)},
        ("method=cot", "run.limit=9"): 0.9,
    }
    margin = 100 * (mean_over_seeds(scores).high - mean_over_seeds(scores).mean)
    assert margin == pytest.approx(5.99, abs=0.01)
    assert means(runs) == ["method=srp 80.0 ± 6.0 (3 seeds)", "method=tog 70.0 ± 6.0 (3 seeds)"]


def test_other_keys_and_missing_scores_make_no_group() -> None:
    assert means({("run.seed=0", "method.depth=2"): 0.5, ("run.seed=1", "method.depth=3"): 0.5}) == []
    assert means({("run.seed=0",): 0.5, ("run.seed=1",): None}) == []
    assert means({("run.seed=0",): 0.5, ("run.seed=0", "run.dir=elsewhere"): 0.7}) == [], "one seed, in two folders"


def test_a_method_alone_is_named_and_long_lists_are_cut() -> None:
    assert means({("run.seed=0",): 0.5, ("run.seed=1",): 0.5}) == ["srp 50.0 with each of 2 seeds"]
    runs = {(f"run.seed={seed}", f"method.depth={depth}"): 0.5 for depth in range(1, 13) for seed in (0, 1)}
    assert named(averaged(runs)).endswith("; and 2 more")
    elsewhere = {(f"run.seed={seed}", f"run.dir=runs/{seed}"): 0.5 for seed in (0, 1)}
    assert means(elsewhere) == ["srp 50.0 with each of 2 seeds"], "a word of one seed is not the name of all"
