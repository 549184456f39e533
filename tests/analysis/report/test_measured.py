"""Reading runs: what belongs together, what is left out, and what a run lacks."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import numpy as np
import polars as pl
import pytest

from pipeline.analysis.report.measured import read_blocks
from pipeline.errors import UserError
from tests.analysis.report.conftest import Sweep


def test_the_points_of_a_run_with_what_tells_them_apart(grid: Path) -> None:
    (block,) = read_blocks([grid])
    saved = json.loads((grid / "summary.json").read_text())["points"]
    assert [point.summary.to_dict() for point in block.points] == saved
    assert [point.settings["method.depth"] for point in block.points] == [1, 1, 2, 2]
    assert {(point.family, point.summary.label, point.served["label"]) for point in block.points} == {
        ("srp", "oracle", "oracle")
    }
    assert "run.dir" not in block.points[0].settings, "where a run is decides nothing"
    assert block.comparable == [0, 1, 2, 3]
    assert block.charted == ["hits_at_1", "f1", "exact_match", "compat_readi_hit"]
    assert not block.rescored


def test_the_rows_are_aligned_by_question(grid: Path) -> None:
    (block,) = read_blocks([grid])
    values = block.answers("f1").values
    assert values.shape == (24, 4)
    rows = pl.read_parquet(grid / "traces" / "*.parquet", columns=["point", "question_id", "f1"])
    wide = rows.pivot("point", index="question_id", values="f1").select("0", "1", "2", "3").to_numpy()
    assert sorted(map(tuple, values)) == sorted(map(tuple, wide.astype(np.float64)))


def test_runs_of_the_same_questions_are_compared_and_others_are_not(grid: Path, sweep: Sweep) -> None:
    same, fewer = sweep("run.limit=24", "method=cot"), sweep("run.limit=12")
    other_world = sweep("run.limit=24", "dataset.seed=8")
    blocks = read_blocks([grid, same, fewer, other_world])
    assert [len(block.points) for block in blocks] == [5, 1, 1]
    assert [point.family for point in blocks[0].points] == ["srp"] * 4 + ["cot"]


def test_a_run_that_is_not_complete_is_read_so_far(grid: Path, tmp_path: Path) -> None:
    half = tmp_path / "half"
    shutil.copytree(grid, half)
    (half / "summary.json").unlink()
    (half / "traces" / "shard-00001.parquet").unlink()
    (block,) = read_blocks([half])
    assert [point.summary.questions for point in block.points] == [16] * 4
    assert {point.summary.label for point in block.points} == {"oracle"}
    assert block.points[0].run.totals is None


def test_points_of_one_run_with_other_questions_are_not_compared_with_each_other(sweep: Sweep) -> None:
    mixed = sweep("run.limit=10", **{"dataset.seed": [7, 8], "method.depth": [1, 2]})
    blocks = read_blocks([mixed])
    assert [[point.settings["dataset.seed"] for point in block.points] for block in blocks] == [[7, 7], [8, 8]]
    assert [block.comparable for block in blocks] == [[0, 1], [0, 1]]


def test_points_that_were_dropped_early_are_not_compared(sweep: Sweep) -> None:
    dropped = sweep("run.limit=240", "run.halving=40", depth=[1, 2, 4])
    (block,) = read_blocks([dropped])
    heights = [point.rows.height for point in block.points]
    assert heights[0] < heights[2] == 240
    assert block.comparable == [index for index, height in enumerate(heights) if height == 240]


def test_a_run_that_was_scored_anew_is_noticed(grid: Path, tmp_path: Path) -> None:
    copy = tmp_path / "copy"
    shutil.copytree(grid, copy)
    summary = json.loads((copy / "summary.json").read_text())
    summary["points"][2]["hits_at_1"] += 0.1
    (copy / "summary.json").write_text(json.dumps(summary))
    (block,) = read_blocks([copy])
    assert block.rescored


@pytest.mark.parametrize(
    ("broken", "sentence"),
    [
        (lambda run: (run / "run.yaml").unlink(), "is not a run folder: it has no run.yaml"),
        (lambda run: (run / "summary.json").write_text("{"), "summary.json cannot be read: kgqa score"),
        (lambda run: (run / "summary.json").write_text('{"points": [{}]}'), "was written by another version"),
        (lambda run: [file.unlink() for file in (run / "traces").iterdir()], "holds no finished shard"),
    ],
    ids=["no run", "torn", "old", "empty"],
)
def test_what_is_no_run_is_said(broken: object, sentence: str, grid: Path, tmp_path: Path) -> None:
    copy = tmp_path / "copy"
    shutil.copytree(grid, copy)
    broken(copy)  # type: ignore[operator]
    with pytest.raises(UserError, match=sentence):
        read_blocks([copy])
