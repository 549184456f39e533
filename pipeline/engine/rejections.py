"""Input rows that could not be read: kept apart, counted, and never swallowed."""

from __future__ import annotations

from typing import Self

import orjson

from pipeline.errors import UserError
from pipeline.traces.place import Place, write_whole
from pipeline.types import Rejected


class Rejections:
    """Collects rejected rows and writes them to `rejected.jsonl`, which is absent when there are none."""

    def __init__(self, path: Place, *, strict: bool) -> None:
        """`strict` stops at the first one."""
        self._path = path
        self._strict = strict
        self._rows: list[Rejected] = []

    @property
    def count(self) -> int:
        """How many rows so far."""
        return len(self._rows)

    def add(self, row: Rejected) -> None:
        """Note one row. Raises UserError when the run is strict."""
        if self._strict:
            raise UserError(f"{row.file}, line {row.line}: {row.reason} (dataset.strict=false goes on without it)")
        self._rows.append(row)

    def remarks(self) -> list[str]:
        """The line that a command ends with when there are any."""
        return remarks(self.count, self._path)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exc: object) -> None:
        if self._rows:
            write_whole(self._path, b"".join(orjson.dumps(row) + b"\n" for row in self._rows))
        elif self._path.exists():
            self._path.unlink()  # an earlier attempt's, whose input has been mended since


def remarks(count: int, path: Place) -> list[str]:
    """The line that a command ends with when `count` rows, listed in `path`, could not be read."""
    what = "row" if count == 1 else "rows"
    return [f"{count:,} {what} could not be read: {path} says which and why"] if count else []
