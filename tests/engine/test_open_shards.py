"""A worker runs as many shards as fill its slots: slow questions leave no slot empty."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest
from rich.console import Console

from pipeline import config
from pipeline.engine.configuration import Configuration
from pipeline.engine.open_shards import OpenShards, most_open_shards, shards_that_fit
from pipeline.engine.run import execute
from pipeline.traces.folder import RunFolder
from tests.engine.methods import FirstOfShardWaits

ENGINE = {"concurrency": 8, "shard_size": 4}


async def has_room(shards: OpenShards) -> bool:
    try:
        await asyncio.wait_for(shards.wait_for_room(), 0.01)
    except TimeoutError:
        return False
    return True


async def test_there_is_room_until_the_questions_fill_the_slots_and_one_more_shard() -> None:
    shards = OpenShards(ENGINE)
    with shards.shard(4), shards.shard(4) as answer:
        assert await has_room(shards), "the slots are full, and no shard waits"
        with shards.shard(4):
            assert not await has_room(shards)
            answer()
            assert await has_room(shards), "one slot will be empty soon"
        for _ in range(3):
            answer()
        assert await has_room(shards)


async def test_shards_that_fit_have_room_before_any_question_is_answered() -> None:
    shards = OpenShards(ENGINE)
    assert shards_that_fit(ENGINE) == 3
    with shards.shard(4), shards.shard(4):
        assert await has_room(shards)
        with shards.shard(4):
            assert not await has_room(shards)


async def test_a_shard_that_ends_early_counts_no_more() -> None:
    shards = OpenShards(ENGINE)
    for left in range(4):
        with shards.shard(4), shards.shard(4), shards.shard(4) as answer:
            for _ in range(4 - left):
                answer()
    with shards.shard(4), shards.shard(4):
        assert await has_room(shards)


async def test_shards_that_keep_rows_in_memory_are_limited() -> None:
    shards = OpenShards(ENGINE)
    assert most_open_shards(**ENGINE) == 16
    opened = [shards.shard(4) for _ in range(16)]
    for number, each in enumerate(opened):
        assert await has_room(shards), number
        answer = each.__enter__()
        for _ in range(3 + (number % 2)):
            answer()
    assert not await has_room(shards), "eight questions are unanswered, but sixteen shards are open"


def test_a_slow_question_in_each_shard_holds_up_no_other(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(FirstOfShardWaits, "begun", set(), raising=False)
    monkeypatch.setattr(FirstOfShardWaits, "all_begun", asyncio.Event(), raising=False)
    words = ["llm=oracle", "dataset.triples=2000", "run.limit=24", f"run.dir={tmp_path / 'run'}"]
    words += ["engine.concurrency=8", "engine.shard_size=4"]
    method = {"_target_": "tests.engine.methods.FirstOfShardWaits", "questions": 24, "shard_size": 4}
    execute([Configuration(words, config.compose(words) | {"method": method})], Console(quiet=True))
    summary = RunFolder(tmp_path / "run").read_summary() or {}
    (point,) = summary["points"]
    assert (point["questions"], point["failed"]) == (24, 0)
