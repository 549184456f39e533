"""A full disk: the error is one sentence, and no incomplete file looks complete."""

from __future__ import annotations

import resource
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from pipeline.errors import StorageError
from pipeline.llm.prompt import Completion
from pipeline.traces.folder import RunFolder
from pipeline.traces.journal import Journal
from pipeline.traces.storage import write_whole
from pipeline.traces.writer import write_shard
from tests.support import ORIGIN
from tests.traces.test_roundtrip import row

ROOM = 2000


@pytest.fixture
def run(tmp_path: Path) -> RunFolder:
    run = RunFolder(tmp_path / "run")
    run.create()
    return run


@contextmanager
def full() -> Iterator[None]:
    """Limit files to `ROOM` bytes: as on a full disk, the last write is cut short.

    The limit holds for the whole process, including the output of pytest, so keep the block small.
    """
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (ROOM, before[1]))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)


async def test_a_call_is_stored_completely_or_the_run_ends(run: RunFolder) -> None:
    kept = 0
    async with Journal(run, 0) as journal:
        while run.journals(0)[0].stat().st_size < ROOM - 200:
            await journal.append("q", f"k{kept}", Completion("an answer of some length"))
            kept += 1
        with full(), pytest.raises(StorageError, match=r"shard-00000\.\w+\.jsonl cannot be written: \w"):
            await journal.append("q", "too much", Completion("x" * ROOM))
    assert run.journals(0)[0].stat().st_size == ROOM, "the last line is torn"
    async with Journal(run, 0) as taken_over:
        assert set(taken_over.calls("q")) == {f"k{index}" for index in range(kept)}


def test_a_shard_that_does_not_fit_leaves_nothing(run: RunFolder) -> None:
    with (
        full(),
        pytest.raises(StorageError, match=r"shard-00003\.parquet cannot be written: File too large"),
    ):
        write_shard(run.shard(3), [row(str(number)) for number in range(500)], ORIGIN)
    assert list((run.path / "traces").iterdir()) == []


def test_a_text_that_does_not_fit_leaves_the_old_one(tmp_path: Path) -> None:
    write_whole(tmp_path / "summary.json", b"old")
    with full(), pytest.raises(StorageError, match=r"summary\.json cannot be written"):
        write_whole(tmp_path / "summary.json", b"new" * ROOM)
    assert [(path.name, path.read_text()) for path in tmp_path.glob("summary*")] == [("summary.json", "old")]
