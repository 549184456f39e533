"""Means over configurations that differ in `run.seed` alone (specification §9.2)."""

from __future__ import annotations

from typing import Any

import pytest

from pipeline import config
from pipeline.analysis.seeds import OverSeeds, SeedMean, over_seeds, seed_groups, seed_means
from pipeline.evaluation.statistics import mean_over_seeds


def composed(*words: str) -> tuple[dict[str, Any], list[str]]:
    return dict(config.compose(list(words))), list(words)


def averaged(runs: dict[tuple[str, ...], float | None]) -> list[SeedMean]:
    configs, words = zip(*(composed(*each) for each in runs), strict=True)
    methods = [each["choices"]["method"] for each in configs]
    groups = seed_groups(configs, [{}] * len(configs))
    models, shared = ["llama"] * len(methods), [False] * len(groups)
    return seed_means(groups, methods, words, list(runs.values()), models=models, are_shared=shared)


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
    (line,) = OverSeeds("f1", averaged(runs)).lines()
    assert line.endswith("; and 2 more")
    elsewhere = {(f"run.seed={seed}", f"run.dir=runs/{seed}"): 0.5 for seed in (0, 1)}
    assert means(elsewhere) == ["srp 50.0 with each of 2 seeds"], "a word of one seed is not the name of all"


def test_the_folder_and_the_servers_of_a_run_are_no_part_of_its_name() -> None:
    runs = [("method=srp", "run.dir=runs/a", "run.tags=[one]"), ("method=cot", "run.dir=runs/b", "run.reuse=[x]")]
    configs, words = zip(*(composed(*each, f"run.seed={seed}") for each in runs for seed in (0, 1)), strict=True)
    names = ["srp", "srp", "cot", "cot"]
    means = over_seeds("f1", configs, [{}] * 4, names, words, scores=[0.5] * 4, costs=[{}] * 4).means
    assert {each.words for each in means} == {"method=srp", "method=cot"}
    role = "llm.roles={parog.plan: {error_rate: 0.4}}"
    words = [
        ["method=parog", "llm=oracle", roles, f"run.seed={n}"] for roles in ("llm.roles=null", role) for n in (0, 1)
    ]
    configs = tuple(dict(config.compose(each)) for each in words)
    means = over_seeds("f1", configs, [{}] * 4, ["parog"] * 4, words, scores=[0.5] * 4, costs=[{}] * 4).means
    assert {each.words for each in means} == {"llm.roles=null", role}


def test_seeds_of_several_models_with_equal_keys_are_averaged_apart() -> None:
    """Without llm.model, a server answers with whatever it serves at the time."""
    configs, words = zip(*(composed("method=cot", f"run.seed={seed}") for seed in (0, 1, 0, 1)), strict=True)
    served = [{"model": name} for name in ("small", "small", "large", "large")]
    scores = [0.5, 0.7, 0.8, 1.0]
    means = over_seeds("f1", configs, served, ["cot"] * 4, words, scores=scores, costs=[{}] * 4).means
    assert [(each.words, round(each.score.mean, 3)) for each in means] == [("cot (large)", 0.9), ("cot (small)", 0.6)]


def test_only_seeds_with_equal_calls_are_said_to_share_them() -> None:
    runs = [(limit, seed) for limit in (5, 6) for seed in (0, 1)]
    configs, words = zip(
        *(composed("method=cot", f"run.limit={limit}", f"run.seed={seed}") for limit, seed in runs), strict=True
    )

    def line(scores: list[float | None], own: list[int], tokens: int = 9) -> str:
        costs = [{"llm_calls": 5, "llm_calls_shared": 5 - each, "prompt_tokens": 9} for each in own]
        costs[-1]["prompt_tokens"] = tokens
        return "".join(over_seeds("f1", configs, [{}] * 4, ["cot"] * 4, words, scores=scores, costs=costs).lines())

    said = "; at temperature 0, seeds share their calls"
    assert line([0.5, 0.5, 0.6, 0.6], [5, 0, 5, 0]).endswith(f"with each of 2 seeds{said}")
    assert line([0.5, 0.5, 0.6, 0.6], [5, 0, 5, 2]).endswith(f"with each of 2 seeds{said} (run.limit=5)")
    assert line([0.5, 0.5, 0.6, 0.6], [5, 0, 0, 0], tokens=8).endswith(f"with each of 2 seeds{said} (run.limit=5)")
    assert said not in line([0.5, 0.5, 0.6, 0.6], [5, 5, 5, 1])
    assert said not in line([0.5, 0.5, None, None], [5, 1, 5, 0])
    for each in configs:
        each["run"]["reuse"] = ["earlier"]
    assert said not in line([0.5, 0.5, 0.6, 0.6], [0, 0, 0, 0]), "all replies are of an earlier run"


def test_the_means_are_a_table_of_a_file_and_figures_of_json() -> None:
    runs: dict[tuple[str, ...], float | None] = {("run.seed=0",): 0.5, ("run.seed=1",): 0.6}
    means = OverSeeds("f1", averaged(runs))
    (figures,) = means.to_list()
    assert (figures["configuration"], figures["seeds"], figures["mean"]) == ("srp", 2, pytest.approx(0.55))
    assert figures["margin"] == pytest.approx(1.96 * 0.1 / 2)
    (table,) = means.tables()
    assert [list(map(str, column.cells)) for column in table.columns] == [["srp"], ["2"], ["55.0"], ["9.8"]]
    assert (str(table.caption), figures["shares_calls"]) == ("±: 1.96·s/√n", False)


def test_a_file_says_of_which_seeds_the_margin_is_no_spread() -> None:
    alike = SeedMean("r3", mean_over_seeds([0.5, 0.5]), is_shared=True)
    means = OverSeeds("f1", [SeedMean("srp", mean_over_seeds([0.5, 0.6])), alike])
    (table,) = means.tables()
    assert str(table.caption) == "±: 1.96·s/√n; at temperature 0, seeds share their calls"
    assert [figures["shares_calls"] for figures in means.to_list()] == [False, True]
    assert OverSeeds("f1", []).tables() == []
