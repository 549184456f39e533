"""Reads the Parquet files of RoG: WebQSP and CWQ with one graph per question (specification §10.5).

Layout: `*{split}*.parquet`, also in `data/`, with the columns `id`, `question`, `answer` (list of names), `q_entity`
(list of names) and `graph` (list of `[head, relation, tail]`). Other columns are ignored.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from functools import lru_cache
from pathlib import Path
from threading import Lock
from typing import NamedTuple, TypeAlias

import pyarrow as pa
import pyarrow.parquet as pq
from pydantic import ConfigDict
from pydantic.dataclasses import dataclass

from pipeline.datasets.files import FileDataset, Row, Text, find_files, read_examples
from pipeline.datasets.interface import Reject
from pipeline.datasets.remote import AnyPath, DataPath, is_file, local_copy
from pipeline.errors import UserError
from pipeline.types import Entity, Example, Gold, GoldAnswer, Triple

_CACHED_GRAPHS = 32
"""Graphs kept in memory (about 0.4 MB each), so that questions may be asked out of order."""

_BATCH = 16

_Cells: TypeAlias = Mapping[str, pa.Scalar]


class _Question(Row):
    id: Text
    question: Text
    answer: list[str]
    q_entity: list[str]


@dataclass(frozen=True, kw_only=True, config=ConfigDict(extra="forbid"))
class RoG(FileDataset):
    """Questions whose entities are names, each with its own graph. An answer may be missing from the graph.

    The keys are described in `conf/dataset/rog.yaml`.

    Files are streamed row by row, because the graphs of CWQ take 11 GB in memory.
    """

    path: DataPath
    """The distributed folder, or one Parquet file."""

    def examples(self, reject: Reject) -> Iterator[Example]:
        """Yield the questions in file order, without their graphs. Raises UserError for a file of another format."""
        for file in self._files():
            rows = enumerate(_rows(file, tuple(_Question.model_fields)), start=1)
            yield from read_examples(file, rows, self._example, reject, what="RoG questions")

    def count(self) -> int:
        """Return the number of rows, from the files' metadata."""
        return sum(_open(file).metadata.num_rows for file in self._files())

    def triples(self) -> Iterator[Triple]:
        """Yield the facts of all graphs. A fact is repeated for each graph that holds it. Raises UserError."""
        for file in self._files():
            for number, row in enumerate(_rows(file, ("graph",)), start=1):
                yield from _triples(row["graph"], f"{file}, row {number}")

    def question_triples(self, question_id: str) -> Iterable[Triple]:
        """Return the graph of one question. Fast in file order; thread-safe. Raises UserError for an unknown id."""
        return _graphs(self._files()).of(question_id)

    def _files(self) -> tuple[AnyPath, ...]:
        # The files at a URL are listed once: they are asked for at every question.
        return _files(self.path, self.split) if isinstance(self.path, Path) else _listed(self.path, self.split)

    def _example(self, row: _Cells) -> Example:
        question = _Question.model_validate({name: value.as_py() for name, value in row.items()})
        return Example(
            self.question(
                question.id,
                question.question,
                topics=(Entity(name, name) for name in dict.fromkeys(question.q_entity)),
            ),
            Gold(answers=tuple(GoldAnswer(name, id=name) for name in dict.fromkeys(question.answer))),
        )


def _files(path: AnyPath, split: str) -> tuple[AnyPath, ...]:
    if is_file(path):
        return (path,)
    return tuple(find_files(path, (f"*{split}*.parquet", f"data/*{split}*.parquet"), what="RoG questions"))


_listed = lru_cache(maxsize=4)(_files)
_local_copy = lru_cache(maxsize=256)(local_copy)


class _RowAddress(NamedTuple):
    file: int
    group: int
    row: int
    """0-based, inside the row group."""


class _Graphs:
    """The graphs by question id.

    A row group of a Parquet file can only be read from its start, so a cursor reads ahead of the questions. Graphs that
    the cursor has passed are cached for questions that come later.
    """

    def __init__(self, files: Sequence[AnyPath]) -> None:
        self._files = files
        self._addresses = _index(files)
        self._recent: OrderedDict[_RowAddress, pa.Scalar] = OrderedDict()
        self._cursor: Iterator[tuple[_RowAddress, pa.Scalar]] = iter(())
        self._position: _RowAddress | None = None
        self._lock = Lock()

    def of(self, question_id: str) -> Iterator[Triple]:
        address = self._addresses.get(question_id)
        if address is None:
            raise UserError(f"there is no graph for question '{question_id}' in {self._files[0].parent}")
        with self._lock:
            if address not in self._recent:
                self._read_until(address)
            graph = self._recent[address]
        return _triples(graph, f"{self._files[address.file]}, question '{question_id}'")

    def _read_until(self, address: _RowAddress) -> None:
        if self._position is None or self._position[:2] != address[:2] or self._position > address:
            self._cursor = self._from(address.file, address.group)
        for position, graph in self._cursor:
            self._position = position
            self._recent[position] = graph
            if len(self._recent) > _CACHED_GRAPHS:
                self._recent.popitem(last=False)
            if position == address:
                return

    def _from(self, file: int, group: int) -> Iterator[tuple[_RowAddress, pa.Scalar]]:
        for row, cells in enumerate(_rows(self._files[file], ("graph",), group)):
            yield _RowAddress(file, group, row), cells["graph"]


@lru_cache(maxsize=4)
def _graphs(files: tuple[AnyPath, ...]) -> _Graphs:
    """Return the process-wide index of some files, shared by all copies of the dataset."""
    return _Graphs(files)


def _index(files: Sequence[AnyPath]) -> dict[str, _RowAddress]:
    addresses: dict[str, _RowAddress] = {}
    for file, path in enumerate(files):
        for group in range(_open(path).num_row_groups):
            for row, cells in enumerate(_rows(path, ("id",), group)):
                with suppress(UnicodeDecodeError):
                    addresses.setdefault(cells["id"].as_py(), _RowAddress(file, group, row))
    return addresses


def _rows(file: AnyPath, columns: Sequence[str], group: int | None = None) -> Iterator[_Cells]:
    """Yield the rows of a file, or of one of its row groups, reading a few at a time."""
    parquet = _open(file)
    if absent := [name for name in columns if name not in parquet.schema_arrow.names]:
        raise UserError(f"{file} is not a file of RoG questions: it has no column {', '.join(absent)}")
    groups = None if group is None else [group]
    try:
        for batch in parquet.iter_batches(_BATCH, row_groups=groups, columns=list(columns)):
            for index in range(batch.num_rows):
                yield {name: batch.column(name)[index] for name in columns}
    except (pa.ArrowException, OSError) as error:
        raise UserError(f"{file} cannot be read: {error}") from None


def _open(file: AnyPath) -> pq.ParquetFile:
    try:
        return pq.ParquetFile(_local_copy(file))
    except (pa.ArrowException, OSError) as error:
        raise UserError(f"{file} is not a Parquet file: {error}") from None


def _triples(graph: pa.Scalar, location: str) -> Iterator[Triple]:
    try:
        facts = graph.as_py()
    except UnicodeDecodeError:
        raise UserError(f"{location}: the graph is not valid UTF-8") from None
    for fact in facts or ():
        match fact:
            case [str(head), str(relation), str(tail)]:
                yield Triple(head, relation, tail)
            case _:
                raise UserError(f"{location}: {fact!r} is not a triple of head, relation and tail")
