"""Counts and stores the input rows that could not be read."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from contextlib import nullcontext, suppress
from typing import Self

import orjson

from pipeline.errors import StorageError, UserError
from pipeline.text import counted
from pipeline.traces.storage import StoragePath, exists, remove_all, write_whole
from pipeline.types import Rejected


class Rejections:
    """Collects rejected rows and writes them to `rejected.jsonl`. Without rejected rows there is no file."""

    def __init__(self, path: StoragePath, *, strict: bool) -> None:
        """Take the file to write; `strict` stops at the first rejected row."""
        self._path = path
        self._strict = strict
        self._rows: list[Rejected] = []

    @property
    def count(self) -> int:
        """The number of rows so far."""
        return len(self._rows)

    @property
    def first(self) -> str:
        """A sentence about the first of the rows."""
        return rows_sentence(self._rows)

    def add(self, row: Rejected) -> None:
        """Add one row. Raises UserError if the run is strict."""
        if self._strict:
            raise UserError(f"{row} (dataset.strict=false skips such rows)")
        self._rows.append(row)

    def remarks(self) -> list[str]:
        """Return a sentence about the rejected rows for the end of a command's output; nothing without such rows."""
        of_files = Counter(row.file for row in self._rows)
        return [
            f"{counted(count, 'row')} of {file} could not be read: {self._path} lists them with reasons"
            for file, count in of_files.items()
        ]

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, *exc: object) -> None:
        with suppress(StorageError) if kind else nullcontext():  # what ended the command is said, not what follows
            self.store()

    def store(self) -> None:
        """Write the file, or remove that of an earlier attempt if every row can be read now."""
        if self._rows:
            write_whole(self._path, b"".join(orjson.dumps(row) + b"\n" for row in self._rows))
        elif exists(self._path):
            remove_all([self._path])


def rows_sentence(rows: Sequence[Rejected]) -> str:
    """Say how many rows could not be read, and why the first one could not."""
    return f"{counted(len(rows), 'row')} could not be read; {rows[0]}"


def remarks(count: int, path: StoragePath) -> list[str]:
    """Return a sentence about `count` rows that could not be read, which `path` lists; nothing without such rows."""
    return [f"{counted(count, 'row')} could not be read: {path} lists them with reasons"] if count else []
