"""The Parquet files of RoG: WebQSP and CWQ with one graph per question (methods.md §10.5)."""

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

from pipeline.datasets.files import Row, Text, find, read_examples
from pipeline.datasets.port import Reject
from pipeline.errors import UserError
from pipeline.types import Entity, Example, Gold, GoldAnswer, Question, Triple

_KEPT = 32
"""Graphs that random access keeps in memory (about 0.4 MB each), so that questions may be asked out of order."""

_BATCH = 16

_Cells: TypeAlias = Mapping[str, pa.Scalar]


class _Question(Row):
    id: Text
    question: Text
    answer: list[str]
    q_entity: list[str]


@dataclass(frozen=True, kw_only=True, config=ConfigDict(extra="forbid"))
class RoG:
    """Questions whose entities are names, each with its own graph. An answer need not be in the graph.

    Files are streamed row by row: the graphs of CWQ take 11 GB in memory.
    """

    path: Path
    """The folder as distributed (`*{split}*.parquet`, also below `data/`), or one Parquet file."""
    split: str = "test"
    name: str = "rog"

    def examples(self, reject: Reject) -> Iterator[Example]:
        """Read the questions, in file order, without their graphs. Raises UserError for a file of another format."""
        for file in self._files():
            rows = enumerate(_rows(file, tuple(_Question.model_fields)), start=1)
            yield from read_examples(file, rows, self._example, reject, what="RoG questions")

    def count(self) -> int:
        """The rows of the files, as they say themselves."""
        return sum(_open(file).metadata.num_rows for file in self._files())

    def triples(self) -> Iterator[Triple]:
        """The facts of all graphs, streamed; a fact comes once for each graph that holds it. Raises UserError."""
        for file in self._files():
            for number, row in enumerate(_rows(file, ("graph",)), start=1):
                yield from _triples(row["graph"], f"{file}, row {number}")

    def question_triples(self, question_id: str) -> Iterable[Triple]:
        """The graph of one question. Fast in file order; safe to call from several threads. Raises UserError."""
        return _graphs(self._files()).of(question_id)

    def _files(self) -> tuple[Path, ...]:
        if self.path.is_file():
            return (self.path,)
        patterns = (f"*{self.split}*.parquet", f"data/*{self.split}*.parquet")
        return tuple(find(self.path, patterns, what="RoG questions"))

    def _example(self, row: _Cells) -> Example:
        question = _Question.model_validate({name: value.as_py() for name, value in row.items()})
        return Example(
            Question(
                id=question.id,
                dataset=self.name,
                split=self.split,
                text=question.question,
                topic_entities=tuple(Entity(name, name) for name in dict.fromkeys(question.q_entity)),
            ),
            Gold(answers=tuple(GoldAnswer(name, id=name) for name in dict.fromkeys(question.answer))),
        )


class _Place(NamedTuple):
    file: int
    group: int
    row: int
    """0-based, inside the row group."""


class _Graphs:
    """The graphs by question id.

    Parquet can only be read from the start of a row group: a cursor runs ahead of the questions, and what it passed
    is kept for those that come late.
    """

    def __init__(self, files: Sequence[Path]) -> None:
        self._files = files
        self._places = _index(files)
        self._recent: OrderedDict[_Place, pa.Scalar] = OrderedDict()
        self._cursor: Iterator[tuple[_Place, pa.Scalar]] = iter(())
        self._at: _Place | None = None
        self._lock = Lock()

    def of(self, question_id: str) -> Iterator[Triple]:
        place = self._places.get(question_id)
        if place is None:
            raise UserError(f"there is no graph for question '{question_id}' in {self._files[0].parent}")
        with self._lock:
            if place not in self._recent:
                self._read_until(place)
            graph = self._recent[place]
        return _triples(graph, f"{self._files[place.file]}, question '{question_id}'")

    def _read_until(self, place: _Place) -> None:
        if self._at is None or self._at[:2] != place[:2] or self._at > place:
            self._cursor = self._from(place.file, place.group)
        for at, graph in self._cursor:
            self._at = at
            self._recent[at] = graph
            if len(self._recent) > _KEPT:
                self._recent.popitem(last=False)
            if at == place:
                return

    def _from(self, file: int, group: int) -> Iterator[tuple[_Place, pa.Scalar]]:
        for row, cells in enumerate(_rows(self._files[file], ("graph",), group)):
            yield _Place(file, group, row), cells["graph"]


@lru_cache(maxsize=4)
def _graphs(files: tuple[Path, ...]) -> _Graphs:
    """One index per process, however often the dataset is copied into it."""
    return _Graphs(files)


def _index(files: Sequence[Path]) -> dict[str, _Place]:
    places: dict[str, _Place] = {}
    for file, path in enumerate(files):
        for group in range(_open(path).num_row_groups):
            for row, cells in enumerate(_rows(path, ("id",), group)):
                with suppress(UnicodeDecodeError):
                    places.setdefault(cells["id"].as_py(), _Place(file, group, row))
    return places


def _rows(file: Path, columns: Sequence[str], group: int | None = None) -> Iterator[_Cells]:
    """The rows of a file, or of one of its row groups, a few at a time."""
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


def _open(file: Path) -> pq.ParquetFile:
    try:
        return pq.ParquetFile(file)
    except (pa.ArrowException, OSError) as error:
        raise UserError(f"{file} is not a Parquet file: {error}") from None


def _triples(graph: pa.Scalar, place: str) -> Iterator[Triple]:
    try:
        facts = graph.as_py()
    except UnicodeDecodeError:
        raise UserError(f"{place}: the graph is not valid UTF-8") from None
    for fact in facts or ():
        match fact:
            case [str(head), str(relation), str(tail)]:
                yield Triple(head, relation, tail)
            case _:
                raise UserError(f"{place}: {fact!r} is not a triple of head, relation and tail")
