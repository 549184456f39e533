"""Reading runs into blocks."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import numpy as np
import polars as pl
import pytest

from pipeline.errors import UserError
from pipeline.report.data import read_blocks
from pipeline.traces.folder import RunFolder
from tests.report.conftest import Sweep

OLD_SUMMARY = '{"points": [{"questions": 1}], "rejected": 0, "physical_llm_calls": 0}'


def test_a_run_is_read_with_summaries_and_parameters(grid: Path) -> None:
    (block,) = read_blocks([grid])
    saved = json.loads((grid / "summary.json").read_text())["points"]
    assert [each.summary.to_dict() for each in block.configurations] == saved
    assert [each.parameters["method.depth"] for each in block.configurations] == [1, 1, 2, 2]
    assert {(each.family, each.summary.label, each.served["label"]) for each in block.configurations} == {
        ("srp", "oracle", "oracle")
    }
    assert "run.dir" not in block.configurations[0].parameters, "the run folder does not affect answers"
    assert block.comparable == [0, 1, 2, 3]
    assert block.charted == ["hits_at_1", "f1", "exact_match", "compat_readi_hit"]
    assert not block.rescored


def test_scores_are_aligned_by_question(grid: Path) -> None:
    (block,) = read_blocks([grid])
    values = block.scores("f1").values
    assert values.shape == (24, 4)
    rows = pl.read_parquet(grid / "traces" / "*.parquet", columns=["point", "question_id", "f1"])
    wide = rows.pivot("point", index="question_id", values="f1").select("0", "1", "2", "3").to_numpy()
    assert sorted(map(tuple, values)) == sorted(map(tuple, wide.astype(np.float64)))


def test_runs_over_the_same_questions_share_a_block(grid: Path, sweep: Sweep) -> None:
    same, fewer = sweep("run.limit=24", "method=cot"), sweep("run.limit=12")
    other_world = sweep("run.limit=24", "dataset.seed=8")
    blocks = read_blocks([grid, same, fewer, other_world])
    assert [len(block.configurations) for block in blocks] == [5, 1, 1]
    assert [each.family for each in blocks[0].configurations] == ["srp"] * 4 + ["cot"]


def test_a_run_in_progress_is_read_from_its_finished_shards(grid: Path, tmp_path: Path) -> None:
    half = tmp_path / "half"
    shutil.copytree(grid, half)
    (half / "summary.json").unlink()
    (half / "traces" / "shard-00001.parquet").unlink()
    (block,) = read_blocks([half])
    assert [each.summary.questions for each in block.configurations] == [16] * 4
    assert {each.summary.label for each in block.configurations} == {"oracle"}
    assert block.configurations[0].run.totals is None


def test_configurations_of_one_run_with_different_questions_have_their_own_blocks(sweep: Sweep) -> None:
    mixed = sweep("run.limit=10", **{"dataset.seed": [7, 8], "method.depth": [1, 2]})
    blocks = read_blocks([mixed])
    assert [[each.parameters["dataset.seed"] for each in block.configurations] for block in blocks] == [[7, 7], [8, 8]]
    assert [block.comparable for block in blocks] == [[0, 1], [0, 1]]


@pytest.mark.exhaustive
def test_configurations_that_were_stopped_early_are_not_compared(sweep: Sweep) -> None:
    dropped = sweep("run.limit=240", "run.early_stopping=40", depth=[1, 2, 4])
    (block,) = read_blocks([dropped])
    heights = [each.rows.height for each in block.configurations]
    assert heights[0] < heights[2] == 240
    assert block.comparable == [index for index, height in enumerate(heights) if height == 240]


def test_a_rescored_run_is_detected(grid: Path, tmp_path: Path) -> None:
    copy = tmp_path / "copy"
    shutil.copytree(grid, copy)
    summary = RunFolder(copy).read_summary()
    assert summary
    summary["points"][2]["hits_at_1"] += 0.1
    RunFolder(copy).write_summary(summary)
    (block,) = read_blocks([copy])
    assert block.rescored


@pytest.mark.parametrize(
    ("broken", "sentence"),
    [
        (lambda run: (run / "run.yaml").unlink(), "is not a run folder: it has no run.yaml"),
        (lambda run: (run / "summary.json").write_text("{"), "summary.json is damaged"),
        (lambda run: (run / "summary.json").write_text(OLD_SUMMARY), "was written by another version"),
        (lambda run: [file.unlink() for file in (run / "traces").iterdir()], "holds no finished shard"),
    ],
    ids=["no run", "torn", "old", "empty"],
)
def test_a_folder_without_a_readable_run_is_an_error(broken: object, sentence: str, grid: Path, tmp_path: Path) -> None:
    copy = tmp_path / "copy"
    shutil.copytree(grid, copy)
    broken(copy)  # type: ignore[operator]
    with pytest.raises(UserError, match=sentence):
        read_blocks([copy])
