"""One file of `traces/`, with the rows of a finished shard. What it holds is checked when it is read.

Each page of data has a checksum, and so has the description of the pages at the end of the file: no bit changes
unnoticed. The file names its run and its number, so a copy, or a file of another run, is noticed, too.
"""

from __future__ import annotations

import hashlib
import io
import re
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import BinaryIO

import orjson
import polars as pl
import pyarrow as pa
import pyarrow.parquet as pq

from pipeline.errors import UserError
from pipeline.traces.origin import KEY, ShardOrigin, parse_origin
from pipeline.traces.schema import ADDED, SCHEMA, SCHEMA_VERSION, WIDE_SCHEMA
from pipeline.traces.shard_values import check_values
from pipeline.traces.storage import StoragePath, opened, write_whole

_TAIL = 8
"""Bytes at the end: the length of the description, and the name of the format."""
_DIGEST = re.compile(rb"kgqa_digest..([0-9a-f]{32})", re.DOTALL)
"""The checksum inside the description, after the two bytes that encode its length."""
_NO_DIGEST = b"0" * 32


class ShardFile:
    """A shard that is open for reading."""

    def __init__(self, path: StoragePath, source: Path | bytes) -> None:
        """Open `source`, the local file or the contents of `path`.

        Raises FileNotFoundError, or UserError if it is no shard or is damaged.
        """
        self.path = path
        with self._checked():
            _check_description(source)
            self._file = pq.ParquetFile(
                source if isinstance(source, Path) else io.BytesIO(source), page_checksum_verification=True
            )
            stored = (self._file.metadata.metadata or {}).get(KEY)
            self.origin: ShardOrigin | None = stored and parse_origin(stored)
        self.columns: Sequence[str] = self._file.schema_arrow.names

    def check_origin(self, run: str | None, index: int) -> None:
        """Raise UserError unless the file is shard `index` of the run with this id; None is a run without an id."""
        if run is None or (self.origin and (self.origin.run, self.origin.index) == (run, index)):
            return
        is_copy = self.origin and self.origin.run == run
        whose = f"is a copy of shard {self.origin.index}" if self.origin and is_copy else "belongs to another run"
        raise UserError(f"{self.path} {whose}: remove the file, and the same command answers its questions again")

    def table(self, columns: Sequence[str], row: int | None = None) -> pa.Table:
        """Return some columns of all rows or of one, with the types of `SCHEMA`.

        Columns that were added after the first version are null where the file lacks them. Raises UserError if a column
        is damaged, or if another one is missing.
        """
        present = [name for name in columns if name in self.columns]
        if missing := set(columns) - {*present, *ADDED}:
            raise UserError(
                f"{self.path} was written by another version of this project, without the column {min(missing)}: run "
                "its questions again in another run.dir"
            )
        with self._checked():
            table = self._file.read(present)
            table = table if row is None else table.slice(row, 1)
            table.validate(full=True)
            wanted = pa.schema([SCHEMA.field(name) for name in columns])
            held = table.cast(pa.schema([SCHEMA.field(name) for name in present]))
            added = {name: pa.nulls(table.num_rows, SCHEMA.field(name).type) for name in columns if name not in present}
            return pa.table({name: added[name] if name in added else held[name] for name in columns}, schema=wanted)

    def frame(self, columns: Sequence[str], row: int | None = None) -> pl.DataFrame:
        """Return some columns as a dataframe. Raises UserError like `table`, and for values that no run writes.

        Numbers have 64 bits: the mean of a column of 32 bits has 32, and may round to another percentage.
        The trail tells what happened to the gold answers of the time of the replies: it is null while a question has
        others.
        """
        frame = pl.from_arrow(self.table(columns, row).cast(pa.schema([WIDE_SCHEMA.field(name) for name in columns])))
        assert isinstance(frame, pl.DataFrame)
        with self._checked():
            check_values(frame)
        regraded = [each.id for each in self.origin.questions if each.replied] if self.origin else []
        if "trail" not in columns or not regraded:
            return frame
        ids = self.table(["question_id"], row)["question_id"].to_pylist()
        is_valid = pl.Series([id not in regraded for id in ids], dtype=pl.Boolean)
        return frame.with_columns(pl.when(is_valid).then("trail").alias("trail"))

    def find(self, configuration: int, question_id: str) -> int | None:
        """Return the number of the row of a question in a configuration; None if there is none. Raises UserError."""
        keys = self.frame(["point", "question_id"])
        rows = ((keys["point"] == configuration) & (keys["question_id"] == question_id)).arg_true()
        return int(rows[0]) if len(rows) else None

    @contextmanager
    def _checked(self) -> Iterator[None]:
        """Turn all errors about a damaged file into one sentence."""
        try:
            yield
        except FileNotFoundError:
            raise
        except PermissionError as error:
            raise UserError(
                f"{self.path} cannot be read: {error.strerror or error}; get permission to read it"
            ) from None
        except (OSError, pa.ArrowException, ValueError, LookupError, TypeError, MemoryError) as error:
            reason = (str(error) or type(error).__name__).splitlines()[0].rstrip(".")
            raise UserError(
                f"{self.path} cannot be read as a shard ({reason}): restore it from a copy, or remove it, and the "
                "command of the run answers its questions again"
            ) from None


def write_table(path: StoragePath, table: pa.Table, origin: ShardOrigin) -> None:
    """Write the rows of a shard: the file is complete or absent. Raises StorageError."""
    contents = io.BytesIO()
    # A shard is small: dictionaries, statistics and a second copy of the schema would be a third of the file.
    # Level 9 takes twice the time of level 5 for a file that is 3 % smaller.
    options = {"compression": "zstd", "compression_level": 5, "use_dictionary": False}
    options |= {"write_statistics": False, "store_schema": False, "write_page_checksum": True}
    with pq.ParquetWriter(contents, SCHEMA, **options) as writer:
        writer.write_table(table)
        metadata = {b"kgqa_schema_version": SCHEMA_VERSION.encode(), b"kgqa_digest": _NO_DIGEST}
        writer.add_key_value_metadata({**metadata, KEY: orjson.dumps(origin)})
    written = contents.getvalue()
    length = int.from_bytes(written[-_TAIL:-4], "little")
    pages, description = written[: -length - _TAIL], written[-length - _TAIL :]
    write_whole(path, pages + description.replace(_NO_DIGEST, _digest(description), 1))


def shard_digest(path: StoragePath) -> str:
    """Return a digest of the description at the end of a shard, which names its run, its number and its pages.

    It is fast, and notices a shard that was written anew unless that has the same sizes. Raises OSError.
    """
    with opened(path) as file:
        length = int.from_bytes(_end_of(file, min(_TAIL, file.seek(0, io.SEEK_END)))[:4], "little")
        size = file.seek(0, io.SEEK_END)
        return _digest(_end_of(file, min(length + _TAIL, size))).decode()


def results_digest(shards: Sequence[StoragePath]) -> str:
    """Return one digest of several shards, in their order. A copy of the files has the same. Raises OSError."""
    return hashlib.blake2b("".join(map(shard_digest, shards)).encode(), digest_size=16).hexdigest()


def _check_description(source: Path | bytes) -> None:
    """Raise ValueError if the description of the pages has changed; nothing is known of a file of an older version."""
    with source.open("rb") if isinstance(source, Path) else io.BytesIO(source) as file:
        length = int.from_bytes(_end_of(file, _TAIL)[:4], "little")
        description = _end_of(file, length + _TAIL)
    if found := _DIGEST.search(description):
        start, end = found.span(1)
        if _digest(description[:start] + _NO_DIGEST + description[end:]) != found[1]:
            raise ValueError("its description has changed since it was written")


def _end_of(file: BinaryIO, length: int) -> bytes:
    size = file.seek(0, io.SEEK_END)
    if length > size:
        raise ValueError("it is not complete")
    file.seek(size - length)
    return file.read()


def _digest(description: bytes) -> bytes:
    return hashlib.blake2b(description, digest_size=16).hexdigest().encode()
