"""A stream of items that can be stored in a file: generated once, then read back."""

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
"""Version in every file name. Increase it when the generator changes, so that old files are not reused."""


@dataclass(frozen=True, slots=True)
class Stream(Generic[T]):
    """Items determined by `name`. The file is complete or absent, so readers need no lock."""

    name: str
    """File name; it contains every key that determines the items."""
    adapter: TypeAdapter[T]
    items: Callable[[], Iterator[T]]

    def read(self, folder: Path) -> Iterator[T]:
        """Yield the items from the file, which has one JSON value per line. Write it first if it is missing."""
        file = folder / f"v{FORMAT}-{self.name}"
        if not file.exists():
            try:
                folder.mkdir(parents=True, exist_ok=True)
                self._write(file)
            except OSError as error:
                raise UserError(f"dataset.path={folder} cannot be written: {error.strerror}") from None
        with file.open("rb") as lines:
            for line in lines:
                yield self.adapter.validate_json(line)

    def _write(self, file: Path) -> None:
        temporary = file.with_name(f"{file.name}.{os.getpid()}")
        try:
            with temporary.open("wb") as out:
                for item in self.items():
                    out.write(self.adapter.dump_json(item, exclude_none=True) + b"\n")
            temporary.replace(file)
        finally:
            temporary.unlink(missing_ok=True)
