"""Reads each format of triples, by the end of the name of the file, in constant memory: tables, and N-Triples.

| name | holds |
| --- | --- |
| `….csv`, `….csv.gz` | rows of values separated by commas, with double quotes where needed |
| `….parquet` | columns of texts |
| `….nt`, `….nt.gz` | N-Triples with the graph's own IRIs: read them with kg/vocabulary=wikidata or rdfs |
| any other, plain or gzipped | lines of tab-separated values, without quoting |

The columns are `head`, `relation` and `tail`: in CSV and Parquet by their names, among any others. Without these names
there must be exactly three columns, in this order. The first line of a text file with other names is then a fact: a
warning says so if each of its texts is a usual name of a column.
"""

from __future__ import annotations

import csv
import io
import logging
import re
from collections.abc import Iterator, Mapping, Sequence
from functools import cache
from typing import IO, cast

import pyarrow as pa
import pyarrow.csv
import pyarrow.parquet as pq
import pyoxigraph as ox

from pipeline.datasets.files import lines, open_file
from pipeline.datasets.remote import AnyPath, local_copy
from pipeline.errors import UserError
from pipeline.rdf_terms import literal_node
from pipeline.types import Node, Triple

_log = logging.getLogger(__name__)

_COLUMNS = ("head", "relation", "tail")
_USUAL_NAMES = frozenset(
    {"head", "h", "subject", "subj", "s", "source", "src"}
    | {"relation", "rel", "r", "predicate", "pred", "p", "property", "edge"}
    | {"tail", "t", "object", "obj", "o", "target", "dst"}
)
"""What other programs call these columns."""
_OTHER_SEPARATORS = {";": "semicolons", "\t": "tabs", "|": "vertical bars"}
_SHOWN = 200
"""Characters of a first line that a message quotes."""
_BATCH = 20_000
"""Rows of a Parquet file that are in memory at a time."""
_BLOCK = 1 << 19
"""Bytes of CSV that are parsed at a time, and the longest row. Up to 32 blocks are read ahead."""
_CSV_ERROR = re.compile(r"CSV parse error: Row #(\d+): (.*)", re.DOTALL)
_LINE_BREAK = "the relation contains a line break, but prompts and replies name one relation in a line"


def read_triples(file: AnyPath) -> Iterator[Triple]:
    """Yield the triples of a file. Raises UserError for a missing file, and naming a bad row."""
    if file.name.endswith((".csv", ".csv.gz")):
        return _in_columns(file, _csv_batches(file))
    if file.name.endswith((".nt", ".nt.gz")):
        return _n_triples(file)
    if file.name.endswith(".parquet"):
        return _in_columns(file, _parquet_batches(file))
    return delimited_triples(file, "\t", header="\t".join(_COLUMNS))


def delimited_triples(file: AnyPath, separator: str, *, header: str | None = None) -> Iterator[Triple]:
    """Yield one triple per line of `head`, `relation`, `tail`, without quoting. Raises UserError naming a bad line.

    A first line equal to `header`, in upper or lower case, is skipped.
    """
    for number, line in lines(file):
        try:
            text = line.decode()
        except UnicodeDecodeError:
            raise UserError(f"{file}, line {number}: not valid UTF-8") from None
        if not text.strip(" "):
            raise UserError(f"{file}, line {number}: the line is empty")
        parts = text.split(separator)
        if len(parts) != 3 or not all(parts):
            raise UserError(f"{file}, line {number}: expected head, relation and tail separated by {separator!r}")
        if not _is_one_line(parts[1]):
            raise UserError(f"{file}, line {number}: {_LINE_BREAK}")
        if number > 1 or text.lower() != header:
            if number == 1 and header:
                _warn_of_header(file, tuple(parts))
            yield Triple(*parts)


def header_doubt(file: AnyPath, first: Sequence[object]) -> str | None:
    """Return a sentence about a first fact that looks like a header with other names; None for any other fact."""
    if not all(str(part).lower() in _USUAL_NAMES for part in first):
        return None
    return f"{file}: the first line ({', '.join(map(str, first))}) is read as a fact, but looks like a header"


@cache  # once per process, though some commands read the file several times
def _warn_of_header(file: AnyPath, first: tuple[str, ...]) -> None:
    if doubt := header_doubt(file, first):
        _log.warning("%s: if it is one, name its columns head, relation and tail", doubt)


def _is_one_line(relation: str) -> bool:
    return len(relation.splitlines()) == 1


def _n_triples(file: AnyPath) -> Iterator[Triple]:
    """Yield the triples of N-Triples, IRIs as they are. A blank node is `_:` and its label, which no store takes."""
    with open_file(file) as stream:
        try:
            for quad in ox.parse(cast("IO[bytes]", stream), format=ox.RdfFormat.N_TRIPLES):
                yield Triple(_node(quad.subject), quad.predicate.value, _node(quad.object))
        except SyntaxError as error:
            raise UserError(f"{file} is not N-Triples: {error}") from None


def _node(term: object) -> Node:
    if isinstance(term, ox.Literal):
        return literal_node(term.value, term.datatype.value, term.language)
    return term.value if isinstance(term, ox.NamedNode) else str(term)


def _in_columns(file: AnyPath, batches: Iterator[pa.RecordBatch]) -> Iterator[Triple]:
    number = 0
    try:
        for batch in batches:
            names = _chosen(file, batch.schema.names)
            columns = [batch.column(name).to_pylist() for name in names]
            for values in zip(*columns, strict=True):
                number += 1
                if not all(isinstance(value, str) and value for value in values):
                    why = _no_text(batch.schema, dict(zip(names, values, strict=True)))
                    raise UserError(f"{file}, row {number}: {why}")
                if not _is_one_line(values[1]):
                    raise UserError(f"{file}, row {number}: {_LINE_BREAK}")
                yield Triple(*values)
    except (pa.ArrowException, OSError, UnicodeDecodeError) as error:
        if found := _CSV_ERROR.match(str(error)):
            raise UserError(f"{file}, row {found[1]} (the first line is row 1): {found[2]}") from None
        raise UserError(f"{file}, after row {number}, cannot be read: {error}") from None


def _no_text(schema: pa.Schema, values: Mapping[str, object]) -> str:
    """Say what a triple needs, and which column has another type."""
    needed = "head, relation and tail must be texts that are not empty"
    others = (name for name, value in values.items() if not isinstance(value, str | None))
    return next((f"the column {name} has the type {schema.field(name).type}, but {needed}" for name in others), needed)


def _chosen(file: AnyPath, names: Sequence[str]) -> Sequence[str]:
    if set(_COLUMNS) <= set(names):
        return _COLUMNS
    if len(names) == len(_COLUMNS):
        return names
    alone = names[0] if len(names) == 1 else ""
    guess = next((f": is it separated by {each}?" for sign, each in _OTHER_SEPARATORS.items() if sign in alone), "")
    raise UserError(
        f"{file} has neither the columns head, relation and tail nor exactly three, but "
        f"{', '.join(names)[:_SHOWN] or 'none'}{guess}"
    )


def _csv_batches(file: AnyPath) -> Iterator[pa.RecordBatch]:
    with open_file(file) as stream:
        first = next(csv.reader(io.TextIOWrapper(stream, encoding="utf-8", newline="")), [])
    names = [name.lower() for name in first]
    named = set(_COLUMNS) <= set(names)
    if not named:
        names = [str(number) for number, _ in enumerate(_chosen(file, first), start=1)]
        _warn_of_header(file, tuple(first))
    with open_file(file) as stream:
        yield from pa.csv.open_csv(
            stream,
            # A parser with threads does not know the number of a wrong row, and is not faster here.
            pa.csv.ReadOptions(column_names=names, skip_rows=int(named), block_size=_BLOCK, use_threads=False),
            pa.csv.ParseOptions(newlines_in_values=True),
            pa.csv.ConvertOptions(column_types=dict.fromkeys(names, pa.string()), include_columns=_chosen(file, names)),
        )


def _parquet_batches(file: AnyPath) -> Iterator[pa.RecordBatch]:
    parquet = pq.ParquetFile(local_copy(file))
    yield from parquet.iter_batches(_BATCH, columns=list(_chosen(file, parquet.schema_arrow.names)))
