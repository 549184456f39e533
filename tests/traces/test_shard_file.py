"""No bit of a finished shard changes unnoticed."""

from __future__ import annotations

import errno
import random
from pathlib import Path

import polars as pl
import pyarrow.parquet as pq
import pytest

from pipeline.analysis.runs import open_run
from pipeline.errors import UserError
from pipeline.traces.folder import RunFolder
from pipeline.traces.origin import QuestionDigest, ShardOrigin
from pipeline.traces.schema import ADDED, SCHEMA
from pipeline.traces.shard_file import ShardFile
from pipeline.traces.writer import replace_columns, write_shard
from tests.support import ORIGIN, rewrite_shard, run_file
from tests.traces.test_roundtrip import llm_step, row

ORIGIN_OF_TWO = ShardOrigin("run", 0, tuple(QuestionDigest(f"q{n}", "0" * 16, "1" * 16) for n in range(2)))


@pytest.fixture
def shard(tmp_path: Path) -> Path:
    path = tmp_path / "shard-00000.parquet"
    write_shard(path, [row("q0", steps=[llm_step("k1")]), row("q1")], ORIGIN_OF_TWO)
    return path


@pytest.mark.parametrize("name", SCHEMA.names)
def test_only_a_column_that_was_added_later_may_be_missing(name: str, shard: Path) -> None:
    rewrite_shard(shard, pl.read_parquet(shard).drop(name))
    opened = ShardFile(shard, shard)
    if name in ADDED:
        assert opened.frame(SCHEMA.names)[name].to_list() == [None, None]
        return
    with pytest.raises(UserError, match=f"without the column {name}"):
        opened.frame(SCHEMA.names, 0)


def read(path: Path, contents: bytes) -> tuple[pl.DataFrame, ShardOrigin | None]:
    opened = ShardFile(path, contents)
    return opened.frame(SCHEMA.names), opened.origin


@pytest.mark.parametrize(
    "count", [pytest.param(300, marks=pytest.mark.smaller), pytest.param(3000, marks=pytest.mark.exhaustive)]
)
def test_a_flipped_bit_is_an_error_or_changes_nothing(count: int, shard: Path) -> None:
    contents = shard.read_bytes()
    rows, origin = read(shard, contents)
    chance, errors = random.Random(count), 0
    for bit in chance.sample(range(8 * len(contents)), count):
        flipped = bytearray(contents)
        flipped[bit // 8] ^= 1 << bit % 8
        try:
            rows_now, origin_now = read(shard, bytes(flipped))
        except UserError:
            errors += 1
            continue
        assert rows_now.equals(rows)
        assert origin_now == origin
    assert errors > count / 2


def test_a_shard_of_an_older_version_has_no_checksums_and_is_read(shard: Path) -> None:
    rows, _ = read(shard, shard.read_bytes())
    rows.write_parquet(shard)
    again, origin = read(shard, shard.read_bytes())
    assert again.equals(rows)
    assert origin is None


def test_replaced_columns_keep_the_checksums(shard: Path) -> None:
    replace_columns(shard, {"method": ["other", "other"]}, ORIGIN_OF_TWO)
    contents = shard.read_bytes()
    assert read(shard, contents)[0]["method"].to_list() == ["other", "other"]
    with pytest.raises(UserError, match="its description has changed"):
        read(shard, contents.replace(b"1111111111111111", b"1111111111111110", 1))


def test_collecting_a_dataframe_of_a_run_names_the_damaged_file(tmp_path: Path) -> None:
    folder = RunFolder(tmp_path / "run")
    folder.create()
    folder.write_run(run_file())
    write_shard(folder.shard(0), [row("q0")], ORIGIN)
    run = open_run(tmp_path / "run")
    assert run.questions.select("question_id").collect()["question_id"].to_list() == ["q0"]
    shard = tmp_path / "run/traces/shard-00000.parquet"
    contents = bytearray(shard.read_bytes())
    contents[len(contents) // 4] ^= 1
    shard.write_bytes(contents)
    with pytest.raises(UserError, match=r"shard-00000.parquet cannot be read as a shard"):
        open_run(run).questions.collect()


def test_a_file_that_may_not_be_read_is_not_called_damaged(shard: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The advice to remove it would cost answers."""

    def refused(*_: object, **__: object) -> None:
        raise PermissionError(errno.EACCES, "Permission denied")

    monkeypatch.setattr(pq, "ParquetFile", refused)
    with pytest.raises(UserError) as raised:
        ShardFile(shard, shard)
    assert str(raised.value) == f"{shard} cannot be read: Permission denied; get permission to read it"
