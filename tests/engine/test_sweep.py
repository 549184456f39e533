"""A sweep makes each distinct call once, and each configuration has the results of a run alone."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import polars as pl
import pytest
from rich.console import Console

from pipeline import config
from pipeline.engine.configuration import Configuration
from pipeline.engine.run import execute
from pipeline.engine.sweep import Sweep
from pipeline.errors import UserError
from pipeline.traces.folder import RunFolder
from tests.support import AS_RUN, LARGE, each_method

WORLD = (
    *("dataset.triples=2000", "run.limit=8", "evaluation.bootstrap_resamples=100"),
    *("llm=oracle", "llm.error_rate=0.2", "llm.malformed_rate=0.05"),
)
GRID = [
    (f"method.beam_width={beam}", f"method.depth={depth}", f"method.retries={retries}")
    for beam in (1, 3, 5)
    for depth in (1, 2, 3, 4)
    for retries in (0, 1, 2)
]


def run(folder: Path, *points: tuple[str, ...]) -> dict[str, Any]:
    words = [(*WORLD, *point, f"run.dir={folder}") for point in points]
    execute([Configuration(each, config.compose(each)) for each in words], Console(quiet=True))
    return summary(folder)


def summary(folder: Path) -> dict[str, Any]:
    import json

    loaded: dict[str, Any] = json.loads((folder / "summary.json").read_text())
    return loaded


def rows(folder: Path, point: int = 0) -> pl.DataFrame:
    frame = pl.read_parquet(folder / "traces/*.parquet").filter(point=point).sort("question_id")
    return frame.drop(*AS_RUN, "point")


def calls(folder: Path) -> pl.DataFrame:
    """`point`, `question_id`, `key`, `shared` and all else of each model call."""
    frame = pl.scan_parquet(folder / "traces/*.parquet").select("point", "question_id", "steps", "texts")
    return frame.explode("steps", "texts").unnest("steps", "texts").filter(kind="llm").collect()


def is_accepted(point: tuple[str, ...]) -> bool:
    """Return whether the method has these values: RAG looks no further than two hops."""
    try:
        config.build("method", config.compose(point))
    except UserError:
        return False
    return True


@pytest.mark.parametrize(
    ("grid", "step"),
    [
        pytest.param(GRID[::4], 1, marks=pytest.mark.smaller, id="small"),
        pytest.param(GRID[::5], 3, marks=pytest.mark.exhaustive, id="every third alone"),
        pytest.param(GRID, 1, marks=LARGE, id="each alone"),
    ],
)
@pytest.mark.parametrize("method", each_method("arg"))
def test_a_sweep_makes_each_distinct_call_once_and_answers_as_each_configuration_alone(
    method: str, grid: Sequence[tuple[str, ...]], step: int, tmp_path: Path
) -> None:
    points = [point for axes in grid if is_accepted(point := (f"method={method}", *axes))]
    assert 2 * len(points) >= len(grid)
    fused = run(tmp_path / "fused", *points)
    assert len(fused["points"]) == len(points)
    made = calls(tmp_path / "fused")
    assert fused["physical_llm_calls"] == made.select("question_id", "key").n_unique()
    assert fused["physical_llm_calls"] == made.filter(~pl.col("shared")).height == fused["distinct_call_keys"]
    assert fused["logical_llm_calls"] == made.height
    for index, point in list(enumerate(points))[::step]:
        alone = run(tmp_path / f"alone-{index}", point)
        assert rows(tmp_path / "fused", index).equals(rows(tmp_path / f"alone-{index}")), point
        assert fused["points"][index]["llm_calls"] == alone["physical_llm_calls"]


def test_equal_configurations_are_computed_once_and_reported_under_each_name(tmp_path: Path) -> None:
    fused = run(tmp_path, ("method=cot",), ("method=cot", "method.depth=4"), ("method=cot", "method.name=other"))
    assert [point["method"] for point in fused["points"]] == ["cot", "cot", "other"]
    assert [point["llm_calls"] - point["llm_calls_shared"] for point in fused["points"]] == [8 + _again(tmp_path), 0, 0]
    first, second, third = (rows(tmp_path, point) for point in range(3))
    assert first.equals(second)
    assert set(third["method"]) == {"other"}
    assert first.drop("method").equals(third.drop("method"))
    assert calls(tmp_path).filter(point=2)["shared"].all()


def _again(folder: Path) -> int:
    """Count the calls that were repeated because a reply could not be parsed."""
    return calls(folder).filter(pl.col("point") == 0, pl.col("parent").is_not_null()).height


def test_without_deduplication_every_call_is_made(tmp_path: Path) -> None:
    points = [
        ("method=srp", "method.retries=1"),
        ("method=srp", "method.retries=2"),
        ("method=srp", "method.retries=2"),
    ]
    alike = [(*point, "engine.dedupe_calls=false") for point in points]
    apart, fused = run(tmp_path / "apart", *alike), run(tmp_path / "fused", *points)
    assert apart["physical_llm_calls"] == apart["logical_llm_calls"] == fused["logical_llm_calls"]
    assert apart["distinct_call_keys"] == fused["physical_llm_calls"] < apart["physical_llm_calls"]
    for index in range(3):
        assert rows(tmp_path / "apart", index).equals(rows(tmp_path / "fused", index))


def test_configurations_may_ask_different_questions_about_different_graphs(tmp_path: Path) -> None:
    points = [
        ("method=srp", "run.limit=5"),
        ("method=cot", "run.limit=9", "dataset.seed=3", "engine.shard_size=4"),
        ("method=srp", "run.limit=5", "method.retries=1"),
        ("method=srp", "run.limit=9", "dataset.seed=3", "llm.error_rate=0"),
    ]
    points = [(*point, "engine.shard_size=4") for point in points]
    fused = run(tmp_path / "fused", *points)
    assert [point["questions"] for point in fused["points"]] == [5, 9, 5, 9]
    assert (fused["questions"], fused["complete"]) == (9, True)
    assert len(list((tmp_path / "fused/traces").iterdir())) == 2 + 3
    for index, point in enumerate(points):
        run(tmp_path / f"alone-{index}", point)
        assert rows(tmp_path / "fused", index).equals(rows(tmp_path / f"alone-{index}"))
    (tmp_path / "fused/traces/shard-00003.parquet").unlink()
    before = rows(tmp_path / "fused", 0)
    assert run(tmp_path / "fused", *points)["complete"] is True
    assert rows(tmp_path / "fused", 0).equals(before)
    assert rows(tmp_path / "fused", 3).height == 9


def test_seeds_share_the_calls_that_are_not_drawn(tmp_path: Path) -> None:
    points = [(f"method={method}", f"run.seed={seed}") for method in ("srp", "cot") for seed in (0, 1)]
    run(tmp_path / "fused", *points)
    keys = {
        (method, seed): set(
            calls(tmp_path / "fused").filter(point=2 * place + seed).select("question_id", "key").rows()
        )
        for place, method in enumerate(("srp", "cot"))
        for seed in (0, 1)
    }
    assert keys["cot", 0] == keys["cot", 1], "at temperature 0 nothing is drawn"
    assert not keys["srp", 0] & keys["srp", 1]
    run(tmp_path / "alone", points[1])
    assert rows(tmp_path / "fused", 1).equals(rows(tmp_path / "alone"))


def test_a_key_of_the_whole_run_has_one_value(tmp_path: Path) -> None:
    with pytest.raises(UserError, match=r"engine\.concurrency has one value for the whole run, .* have 1, 2"):
        run(tmp_path, ("engine.concurrency=1",), ("engine.concurrency=2",))


@pytest.mark.exhaustive
def test_an_extended_sweep_makes_only_the_new_calls(tmp_path: Path) -> None:
    def points(depths: range) -> list[tuple[str, ...]]:
        return [(f"method={method}", f"method.depth={depth}") for method in ("srp", "r3") for depth in depths]

    first = run(tmp_path / "first", *points(range(1, 5)))
    reuse = f"run.reuse=[{tmp_path / 'first'}]"
    again = run(tmp_path / "again", *((*point, reuse) for point in points(range(1, 5))))
    assert again["physical_llm_calls"] == 0
    assert again["logical_llm_calls"] == first["logical_llm_calls"]
    deeper = run(tmp_path / "deeper", *((*point, reuse) for point in points(range(1, 6))))
    known = set(calls(tmp_path / "first").select("question_id", "key").rows())
    needed = set(calls(tmp_path / "deeper").select("question_id", "key").rows())
    assert deeper["physical_llm_calls"] == len(needed - known) > 0
    seed = run(tmp_path / "seed", ("method=srp", "method.depth=2", reuse, "run.seed=1"))
    assert seed["physical_llm_calls"] == seed["distinct_call_keys"], "everything that is drawn is drawn again"


def test_batches_of_a_searching_sweeper_share_their_calls(tmp_path: Path) -> None:
    sweep = Sweep(Console(quiet=True))
    words = [*WORLD, f"run.dir={tmp_path / 'sweep'}", "method=r3"]
    for depths in ((2, 3), (3, 4)):
        sweep.run([[*words, f"method.depth={depth}"] for depth in depths])
    assert [folder.path for folder, _ in sweep.batches] == [tmp_path / "sweep", tmp_path / "sweep/batch-001"]
    together = run(tmp_path / "together", *(("method=r3", f"method.depth={depth}") for depth in (2, 3, 4)))
    made = [summary(folder.path)["physical_llm_calls"] for folder, _ in sweep.batches]
    assert sum(made) == together["physical_llm_calls"]
    assert made[1] > 0


def test_a_search_that_asks_for_other_configurations_says_how_to_begin_again(tmp_path: Path) -> None:
    """As after `run.retry_failed` or new gold answers, which change the scores that the sampler sees."""

    def search(*batches: tuple[int, ...], restart: bool = False) -> Sweep:
        sweep = Sweep(Console(quiet=True))
        words = [*WORLD, f"run.dir={tmp_path / 'sweep'}", "method=r3", *(["run.restart=true"] if restart else [])]
        for depths in batches:
            sweep.run([[*words, f"method.depth={depth}"] for depth in depths])
        return sweep

    search((2, 3), (3, 4), (5, 6))
    with pytest.raises(UserError) as refused:
        search((2, 3), (4, 5))
    folders = [tmp_path / "sweep", *(tmp_path / "sweep" / f"batch-00{number}" for number in (1, 2))]
    said = "if its scores have changed, as by new gold answers: run.restart=true deletes all batches of the search in "
    assert f"{said}{folders[0]} and starts again" in str(refused.value)
    assert f"run.reuse=[{','.join(map(str, folders))}]" in str(refused.value)
    own = folders[0] / "batch-007"
    run(own, ("method=cot", f"run.reuse=[{folders[0]}]"))
    assert [RunFolder(each).is_batch for each in (*folders[1:], own)] == [True, True, False]
    with RunFolder(folders[2]).held(), pytest.raises(UserError, match=r"batch-002 is in use by another process"):
        search((2, 3), (4, 5), restart=True)
    assert RunFolder(folders[1]).finished(), "nothing is deleted while a batch is running"
    search((2, 3), (4, 5), restart=True)
    assert RunFolder(folders[0]).batches() == [folders[1], own], "the third batch belongs to the earlier search"
    assert RunFolder(own).finished(), "a run of its own, though it reuses the calls of the search"


def test_a_new_run_leaves_other_runs_in_its_folder_alone(tmp_path: Path) -> None:
    for inner in ("batch-001", "batch-small"):
        run(tmp_path / "outer" / inner, ("method=cot",))
    run(tmp_path / "outer", ("method=cot", "run.seed=3", "run.restart=true"))
    assert all(RunFolder(tmp_path / "outer" / inner).finished() for inner in ("batch-001", "batch-small"))


def test_a_shared_or_reused_call_counts_as_long_as_the_model_took(tmp_path: Path) -> None:
    points = [("method=srp", f"method.depth={depth}") for depth in (1, 2)]
    run(tmp_path / "sweep", *((*point, "llm.latency_s=0.0625") for point in points))
    run(tmp_path / "later", (*points[0], f"run.reuse=[{tmp_path}/sweep]"))
    for folder in (tmp_path / "sweep", tmp_path / "later"):
        assert calls(folder)["shared"].any()
        assert calls(folder)["own_s"].unique().to_list() == [0.0625]
        assert pl.read_parquet(folder / "traces/*.parquet")["critical_s"].min() >= 0.0625
