"""Helpers of the dataset readers: find files, read them plain or gzipped, and reject bad rows."""

from __future__ import annotations

import codecs
import gzip
import json
import zlib
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from io import BufferedReader
from types import MappingProxyType
from typing import Annotated, Any, TypeVar

from pydantic import BaseModel, BeforeValidator, ConfigDict, StringConstraints, ValidationError
from pydantic.dataclasses import dataclass

from pipeline.datasets.interface import Reject
from pipeline.datasets.remote import AnyPath, DataPath, glob, is_file, local_copy
from pipeline.errors import UserError, row_defect
from pipeline.types import DatasetKind, Entity, Example, Question, Rejected, Scalar, Triple

R = TypeVar("R")

Text = Annotated[str, StringConstraints(min_length=1)]
"""A string that must not be empty."""

_GZIP = b"\x1f\x8b"
_MAX_LEADING_BAD_ROWS = 100
"""After this many unreadable rows at its start, a file is considered to have another format."""


class BadRow(Exception):
    """Raised for a row that cannot be read; the message is the reason."""


@dataclass(frozen=True, kw_only=True, config=ConfigDict(extra="forbid"))
class FileDataset:
    """Base of the datasets in files. All questions of one have its name, its kind and its split."""

    split: str
    name: str
    kind: DatasetKind | None

    def question(
        self, id: str, text: str, *, topics: Iterable[Entity] = (), meta: Mapping[str, Scalar] = MappingProxyType({})
    ) -> Question:
        """Return a question of this dataset."""
        return Question(id, self.name, self.split, text, tuple(topics), dict(meta), self.kind)


@dataclass(frozen=True, kw_only=True, config=ConfigDict(extra="forbid"))
class FreebaseDataset(FileDataset):
    """Base of the datasets over Freebase, which have no graph of their own."""

    path: DataPath
    """The distributed folder, or one of its files."""

    def triples(self) -> Iterator[Triple]:
        """Raise UserError."""
        raise UserError(f"{type(self).__name__} has no graph of its own: use kg=sparql with a Freebase server")


class Row(BaseModel):
    """Base class of row schemas. Unknown fields are ignored; a number is accepted where a text is expected."""

    model_config = ConfigDict(frozen=True, coerce_numbers_to_str=True)


def named_by(field: str) -> BeforeValidator:
    """Accept a text in place of an object: it is the value of this field."""
    return BeforeValidator(lambda value: value if isinstance(value, dict) else {field: value})


def find_file(path: AnyPath, patterns: Sequence[str], *, what: str) -> AnyPath:
    """Return `path` if it is a file, else the first match in that folder. Raises UserError if there is none."""
    return path if is_file(path) else find_files(path, patterns, what=what)[0]


def find_files(folder: AnyPath, patterns: Sequence[str], *, what: str) -> list[AnyPath]:
    """Return the files that match the first matching pattern, sorted. Raises UserError if no pattern matches."""
    if files := files_matching(folder, patterns):
        return files
    state = "holds no" if folder.is_dir() else "is not a folder with"
    raise UserError(f"dataset.path={folder} {state} {what}: looked for {' or '.join(patterns)}, plain or .gz")


def files_matching(folder: AnyPath, patterns: Sequence[str]) -> list[AnyPath]:
    """Return the files that match the first matching glob pattern (plain before `.gz`), sorted; empty if none."""
    globs = (pattern + suffix for pattern in patterns for suffix in ("", ".gz"))
    return next(filter(None, (glob(folder, each) for each in globs)), [])


def read_examples(
    file: AnyPath, rows: Iterable[tuple[int, R]], parse: Callable[[R], Example], reject: Reject, *, what: str
) -> Iterator[Example]:
    """Yield the examples of numbered rows.

    A row that `parse` cannot read, or whose id occurred earlier, is passed to `reject`, and reading continues. Raises
    UserError if the file has another format, that is, if no row, or none of the first hundred, can be read.
    """
    seen: set[str] = set()
    refused = 0
    refusal = ""
    for number, row in rows:
        try:
            if isinstance(row, bytes):
                refuse_nan(row)
            example = parse(row)
            if example.question.id in seen:
                raise BadRow(f"the id '{example.question.id}' occurs earlier in this file")
        except (BadRow, ValidationError, UnicodeDecodeError) as error:
            rejected = Rejected(str(file), number, reason_of(error), "line" if isinstance(row, bytes) else "row")
            reject(rejected)
            refusal = refusal or f"{rejected.unit} {number}: {rejected.reason}{json_lines_advice(row, rejected.reason)}"
            refused += 1
            if refused == _MAX_LEADING_BAD_ROWS and not seen:
                break
        else:
            seen.add(example.question.id)
            yield example
    if not seen:
        raise UserError(f"{file} is not a file of {what}: {refusal or 'it has no rows'}")


def refuse_nan(line: bytes) -> None:
    """Raise BadRow for a NaN or Infinity, which Python writes into JSON, as for a missing value of a table."""
    if b"NaN" in line or b"Infinity" in line:
        with suppress(ValueError):
            json.loads(line, parse_constant=_refuse_constant)


def _refuse_constant(name: str) -> None:
    raise BadRow(f"it is not valid JSON ({name} is no number there: write null, or leave it out)")


def json_lines_advice(row: object, reason: str) -> str:
    """Return what to do if a line that is refused for this reason shows that its file is no JSON Lines."""
    start = row.lstrip()[:1] if isinstance(row, str | bytes) else ""
    if start in ("[", b"["):
        return ". The file is a JSON array: write each of its objects on a line of its own (JSON Lines)"
    is_other = start not in ("{", b"{") and reason.startswith("it is not valid JSON")
    return ". The file must be JSON Lines: a JSON object on each line, and no CSV or other table" if is_other else ""


def lines(file: AnyPath) -> Iterator[tuple[int, bytes]]:
    """Yield the lines of a plain or gzipped file with their 1-based numbers, without line ends."""
    with open_file(file) as stream:
        for number, line in enumerate(stream, start=1):
            yield number, line.rstrip(b"\r\n")


def json_lines(file: AnyPath) -> Iterator[tuple[int, bytes]]:
    """Yield the non-blank lines of a JSON Lines file, undecoded, with their 1-based numbers."""
    return ((number, line) for number, line in lines(file) if line.strip())


def json_array(file: AnyPath, *, key: str | None = None) -> Iterator[tuple[int, object]]:
    """Return the numbered (1-based) elements of a JSON array, or of the array under `key` if the file is an object.

    Raises UserError if the file holds no such array.
    """
    content = read_json(file)
    if isinstance(content, dict):
        content = content.get(key)
    if not isinstance(content, list):
        raise UserError(f"{file} holds no JSON array{f' and none under {key!r}' if key else ''}")
    return enumerate(content, start=1)


def read_json(file: AnyPath) -> Any:
    """Return the content of a plain or gzipped JSON file. Raises UserError for another file.

    A NaN or Infinity, which Python writes for a missing value of a table, is None: JSON has no such number.
    """
    with open_file(file) as stream:
        try:
            return json.loads(stream.read(), parse_constant=lambda _: None)
        except (ValueError, RecursionError) as error:
            raise UserError(f"{file} is not a JSON file: {error}") from None


@contextmanager
def open_file(file: AnyPath) -> Iterator[gzip.GzipFile | BufferedReader]:
    """Open a plain or gzipped file, after its byte-order mark if it has one, as files from Windows programs do.

    Raises UserError for what goes wrong also while it is read.
    """
    try:
        with local_copy(file).open("rb") as raw:
            zipped = raw.read(len(_GZIP)) == _GZIP
            raw.seek(0)
            stream = gzip.GzipFile(fileobj=raw) if zipped else raw
            if stream.read(len(codecs.BOM_UTF8)) != codecs.BOM_UTF8:
                stream.seek(0)
            yield stream
    except (OSError, EOFError, zlib.error) as error:
        raise UserError(f"{file} cannot be read: {error}") from None


def reason_of(error: BadRow | ValidationError | UnicodeDecodeError) -> str:
    """Return why a row cannot be read, as it is written to `rejected.jsonl`."""
    if isinstance(error, UnicodeDecodeError):
        return "not valid UTF-8"
    if isinstance(error, BadRow):
        return str(error)
    return row_defect(error)
