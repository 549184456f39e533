"""What the readers share: finding files as they are distributed, reading them plain or gzipped, rejecting bad rows."""

from __future__ import annotations

import gzip
import json
import zlib
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from io import BufferedIOBase
from pathlib import Path
from typing import Annotated, TypeVar

from pydantic import BaseModel, ConfigDict, StringConstraints, ValidationError

from pipeline.datasets.port import Reject
from pipeline.errors import UserError
from pipeline.types import Example, Rejected, Triple

R = TypeVar("R")

Text = Annotated[str, StringConstraints(min_length=1)]
"""A string that must not be empty."""

_GZIP = b"\x1f\x8b"
_PATIENCE = 100
"""Unreadable rows at the start of a file after which it is taken for one of another format."""


class BadRow(Exception):
    """A row that cannot be read; the message is the reason."""


class Row(BaseModel):
    """Base of the declared rows: what a format says a row holds. Unknown fields are ignored, numbers may be text."""

    model_config = ConfigDict(frozen=True, coerce_numbers_to_str=True)


def locate(path: Path, patterns: Sequence[str], *, what: str) -> Path:
    """`path` itself when it is a file, else the first file in that folder that matches. Raises UserError for none."""
    return path if path.is_file() else find(path, patterns, what=what)[0]


def find(folder: Path, patterns: Sequence[str], *, what: str) -> list[Path]:
    """The files of the first pattern that matches any, sorted. Raises UserError when none does."""
    if files := matching(folder, patterns):
        return files
    state = "holds no" if folder.is_dir() else "is not a folder with"
    raise UserError(f"dataset.path={folder} {state} {what}: looked for {' or '.join(patterns)}, plain or .gz")


def matching(folder: Path, patterns: Sequence[str]) -> list[Path]:
    """The files of the first glob pattern that matches any, plain before `.gz`, sorted; empty for none."""
    candidates = (pattern + suffix for pattern in patterns for suffix in ("", ".gz"))
    found = (sorted(file for file in folder.glob(candidate) if file.is_file()) for candidate in candidates)
    return next(filter(None, found), [])


def read_examples(
    file: Path, rows: Iterable[tuple[int, R]], parse: Callable[[R], Example], reject: Reject, *, what: str
) -> Iterator[Example]:
    """Parse numbered rows; one that `parse` refuses, or whose id came before, is rejected and reading goes on.

    Raises UserError when the file is of another format: no row of it, or none of its first hundred, can be read.
    """
    seen: set[str] = set()
    refusal, refused = "it has no rows", 0
    for number, row in rows:
        try:
            example = parse(row)
            if example.question.id in seen:
                raise BadRow(f"the id '{example.question.id}' came before in this file")
        except (BadRow, ValidationError, UnicodeDecodeError) as error:
            rejected = Rejected(str(file), number, _reason(error))
            reject(rejected)
            refusal, refused = f"row {number}: {rejected.reason}", refused + 1
            if refused == _PATIENCE and not seen:
                break
        else:
            seen.add(example.question.id)
            yield example
    if not seen:
        raise UserError(f"{file} is not a file of {what}: {refusal}")


def lines(file: Path) -> Iterator[tuple[int, bytes]]:
    """The lines of a plain or gzipped file with their 1-based numbers, without line ends."""
    with _opened(file) as stream:
        for number, line in enumerate(stream, start=1):
            yield number, line.rstrip(b"\r\n")


def json_lines(file: Path) -> Iterator[tuple[int, bytes]]:
    """The lines of a JSON Lines file, undecoded; blank ones are passed over."""
    return ((number, line) for number, line in lines(file) if line.strip())


def json_array(file: Path, *, key: str | None = None) -> Iterator[tuple[int, object]]:
    """The elements of a JSON array, 1-based; of the array under `key` when the file holds an object."""
    with _opened(file) as stream:
        try:
            content = json.loads(stream.read())
        except (ValueError, RecursionError) as error:
            raise UserError(f"{file} is not a JSON file: {error}") from None
    if isinstance(content, dict):
        content = content.get(key)
    if not isinstance(content, list):
        raise UserError(f"{file} holds no JSON array{f' and none under {key!r}' if key else ''}")
    return enumerate(content, start=1)


def delimited_triples(file: Path, separator: str, *, header: str | None = None) -> Iterator[Triple]:
    """One `head`, `relation`, `tail` per line, without quoting. Raises UserError naming the first bad line."""
    for number, line in lines(file):
        try:
            text = line.decode()
        except UnicodeDecodeError:
            raise UserError(f"{file}, line {number}: not valid UTF-8") from None
        parts = text.split(separator)
        if len(parts) != 3 or not all(parts):
            raise UserError(f"{file}, line {number}: expected head, relation and tail separated by {separator!r}")
        if number > 1 or text != header:
            yield Triple(*parts)


@contextmanager
def _opened(file: Path) -> Iterator[BufferedIOBase]:
    try:
        with file.open("rb") as raw:
            zipped = raw.read(len(_GZIP)) == _GZIP
            raw.seek(0)
            yield gzip.GzipFile(fileobj=raw) if zipped else raw
    except (OSError, EOFError, zlib.error) as error:
        raise UserError(f"{file} cannot be read: {error}") from None


def _reason(error: BadRow | ValidationError | UnicodeDecodeError) -> str:
    if isinstance(error, UnicodeDecodeError):
        return "not valid UTF-8"
    if isinstance(error, BadRow):
        return str(error)
    first = error.errors(include_url=False, include_context=False, include_input=False)[0]
    place = ".".join(map(str, first["loc"]))
    return f"{place}: {first['msg']}" if place else str(first["msg"])
