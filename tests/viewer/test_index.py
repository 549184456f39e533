"""The table of questions: it says what the traces say, is kept, and notices shards that are new, changed or damaged."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any

import polars as pl
import pytest
from polars.testing import assert_frame_equal

from pipeline.analysis.runs import open_run
from pipeline.errors import UserError
from pipeline.traces.folder import RunFolder
from pipeline.viewer import index as module
from pipeline.viewer.index import COLUMNS, RunIndex
from tests.support import rewrite_shard
from tests.viewer.support import METHODS, QUESTIONS

KEY = ["configuration", "question_id"]


@pytest.fixture
def copy(run: Path, tmp_path: Path) -> Path:
    shutil.copytree(run, tmp_path / "run")
    return tmp_path / "run"


def opened(run: Path, tmp_path: Path) -> RunIndex:
    index = RunIndex(RunFolder(run), "run", tmp_path / "cache")
    index.update()
    return index


def test_the_table_says_what_the_traces_and_their_losses_say(run: Path, index: RunIndex) -> None:
    table = index.scan().collect().sort(KEY)
    assert tuple(table.columns) == ("row", *COLUMNS)
    assert table.height == len(METHODS) * QUESTIONS
    traces = open_run(run).questions.collect().sort(KEY)
    losses = open_run(run).losses().collect().sort(KEY)
    assert table["question"].equals(traces["question"])
    assert table["calls"].equals(traces["llm_calls"])
    assert table["tokens"].equals(traces["prompt_tokens"] + traces["completion_tokens"])
    assert (table["outcome"] == "right").equals(losses["right"])
    assert table["stage"].cast(pl.String).equals(losses["stage"].cast(pl.String))
    assert table["reason"].cast(pl.String).equals(losses["reason"])
    assert table["stage"].n_unique() > 3
    assert table["answers"].equals(traces["answers"].list.head(8).list.join("; ").str.slice(0, 300))


def test_a_kept_table_is_read_and_not_computed(run: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    first = opened(run, tmp_path).scan().collect()

    def refuse(*_: object) -> Any:
        pytest.fail("a shard was read")

    monkeypatch.setattr(module, "read_shards", refuse)
    assert_frame_equal(opened(run, tmp_path).scan().collect(), first)


def test_a_shard_that_is_finished_later_is_added(copy: Path, tmp_path: Path) -> None:
    last = sorted((copy / "traces").iterdir())[-1]
    last.rename(tmp_path / "later")
    (copy / "summary.json").unlink()
    index = opened(copy, tmp_path)
    assert index.state.rows == len(METHODS) * (QUESTIONS - 4)
    assert index.state.is_growing
    (tmp_path / "later").rename(last)
    index.update()
    assert index.state.rows == len(METHODS) * QUESTIONS
    assert index.state.is_growing, "the run may have more shards"


def test_a_run_that_was_stopped_is_not_still_running(copy: Path, tmp_path: Path) -> None:
    index = opened(copy, tmp_path)
    assert index.state.run == "complete"
    (copy / "summary.json").unlink()
    index.update()
    assert index.state.run == "not complete"
    with RunFolder(copy).held():
        index.update()
    assert index.state.run == "still running"
    index.update()
    assert index.state.run == "not complete"


def test_a_run_without_shards_is_empty_and_grows(copy: Path, tmp_path: Path) -> None:
    shutil.rmtree(copy / "traces")
    (copy / "summary.json").unlink()
    index = opened(copy, tmp_path)
    assert index.scan().collect().height == 0
    assert index.state.is_growing


def test_the_rows_of_a_changed_shard_are_computed_again(copy: Path, tmp_path: Path) -> None:
    index = opened(copy, tmp_path)
    shard = min((copy / "traces").iterdir())
    rewrite_shard(shard, pl.read_parquet(shard).with_columns(pl.lit("changed").alias("question")))
    for each in (index, opened(copy, tmp_path)):
        each.update()
        table = each.scan().collect()
        assert table.height == len(METHODS) * QUESTIONS
        assert table.filter(question="changed").height == len(METHODS) * 4


def test_a_damaged_shard_is_named_and_the_others_are_shown(copy: Path, tmp_path: Path) -> None:
    shard = min((copy / "traces").iterdir())
    shard.write_bytes(shard.read_bytes()[:-100])
    index = opened(copy, tmp_path)
    assert index.state.rows == len(METHODS) * (QUESTIONS - 4)
    (problem,) = index.state.problems
    assert str(shard) in problem


@pytest.mark.parametrize("damage", [b"", b"{}", b'{"version": 1, "slices": [{"file": "../../x", "rows": 1}]}', b"\xff"])
def test_a_damaged_cache_counts_as_none(damage: bytes, run: Path, tmp_path: Path) -> None:
    rows = opened(run, tmp_path).state.rows
    (manifest,) = (tmp_path / "cache").glob("*/index.json")
    manifest.write_bytes(damage)
    assert opened(run, tmp_path).state.rows == rows
    for file in (tmp_path / "cache").glob("*/*.parquet"):
        file.write_bytes(b"PAR1")
    assert opened(run, tmp_path).state.rows == rows


def test_many_small_slices_are_joined(copy: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "_MOST_SLICES", 1)
    shards = sorted((copy / "traces").iterdir())
    for shard in shards:
        shard.rename(tmp_path / shard.name)
    index = opened(copy, tmp_path)
    for shard in shards:
        (tmp_path / shard.name).rename(shard)
        index.update()
    assert len(index._slices) == 1
    expected = opened(copy, tmp_path / "another").scan().drop("row").collect()
    assert_frame_equal(index.scan().drop("row").collect().sort(KEY), expected.sort(KEY))


def test_a_question_is_read_with_its_steps(run: Path, index: RunIndex) -> None:
    id = index.scan().filter(configuration=1).select("question_id").collect().item(3, 0)
    assert index.question(id, 1) == open_run(run).question(id, 1)


def test_a_question_that_is_not_there_is_one_sentence(index: RunIndex) -> None:
    with pytest.raises(UserError, match="configuration 0 of run has no finished question 'x'"):
        index.question("x", 0)
    with pytest.raises(UserError, match="run has no configuration 99"):
        index.question("x", 99)
