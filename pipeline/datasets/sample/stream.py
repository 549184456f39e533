"""A stream that can be kept in a file: generated once, read back afterwards."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Generic, TypeVar

from pydantic import TypeAdapter

from pipeline.errors import UserError

T = TypeVar("T")

FORMAT = 1
"""Part of every file name; raise it when the generator changes, so that old files are not taken for new ones."""


@dataclass(frozen=True, slots=True)
class Stream(Generic[T]):
    """Items that follow from `name` alone. The file exists complete or not at all, so readers need no lock."""

    name: str
    """File name, holding every key that decides the items."""
    adapter: TypeAdapter[T]
    items: Callable[[], Iterator[T]]

    def write(self, folder: Path) -> Path:
        """Write the items, one JSON value per line, unless they are there; return the file."""
        file = folder / f"v{FORMAT}-{self.name}"
        if not file.exists():
            try:
                folder.mkdir(parents=True, exist_ok=True)
                self._write(file)
            except OSError as error:
                raise UserError(f"dataset.path={folder} cannot be written: {error.strerror}") from None
        return file

    def read(self, folder: Path) -> Iterator[T]:
        """Read the items back, writing them first when they are not there."""
        with self.write(folder).open("rb") as lines:
            for line in lines:
                yield self.adapter.validate_json(line)

    def _write(self, file: Path) -> None:
        draft = file.with_name(f"{file.name}.{os.getpid()}")
        try:
            with draft.open("wb") as out:
                for item in self.items():
                    out.write(self.adapter.dump_json(item, exclude_none=True) + b"\n")
            draft.replace(file)
        finally:
            draft.unlink(missing_ok=True)
