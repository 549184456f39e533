"""Reads each format of triples, by the end of the name of the file, in constant memory: tables, and N-Triples.

| name | holds |
| --- | --- |
| `….csv`, `….csv.gz` | rows of values separated by commas, with double quotes where needed |
| `….parquet` | columns of texts |
| `….nt`, `….nt.gz` | N-Triples with the graph's own IRIs: read them with kg/vocabulary=wikidata or rdfs, |
| | or, of Freebase itself, with kg.vocabulary.percent_encoded=false |
| any other, plain or gzipped | lines of tab-separated values, without quoting |

The columns are `head`, `relation` and `tail`, in capitals or small letters: in CSV and Parquet by their names, among
any others; a text file of other values has these three alone, in any order. Without these names there must be exactly
three columns, in this order. The first line of a text file with other names is then a fact: a warning says so if each
of its texts is a usual name of a column, or stands in quotes.
"""

from __future__ import annotations

import csv
import io
import logging
from collections.abc import Iterable, Iterator, Sequence
from functools import cache
from typing import IO, cast

import pyarrow as pa
import pyarrow.parquet as pq
import pyoxigraph as ox

from pipeline.datasets.files import lines, open_file
from pipeline.datasets.remote import AnyPath, local_copy
from pipeline.errors import UserError
from pipeline.rdf_terms import literal_node
from pipeline.text import counted
from pipeline.types import LiteralNode, Node, Triple

_log = logging.getLogger(__name__)

_COLUMNS = ("head", "relation", "tail")
_USUAL_NAMES = frozenset(
    {"head", "h", "subject", "subj", "s", "source", "src"}
    | {"relation", "rel", "r", "predicate", "pred", "p", "property", "edge"}
    | {"tail", "t", "object", "obj", "o", "target", "dst"}
)
"""What other programs call these columns."""
_OF_NAMES = frozenset({"type.object.name", "common.topic.alias"})
"""Relations of Freebase, as whose graph tables are read, that lead to texts: a table does not mark texts."""
_OTHER_SEPARATORS = {";": "semicolons", "\t": "tabs", "|": "vertical bars"}
_SHOWN = 200
"""Characters of a first line that a message quotes."""
_BATCH = 20_000
"""Rows of a Parquet file that are in memory at a time."""
_TEXTS = "head, relation and tail must be texts that are not empty"
_LINE_BREAK = "the relation contains a line break, but prompts and replies name one relation in a line"


def read_triples(file: AnyPath) -> Iterator[Triple]:
    """Yield the triples of a file. Raises UserError for a missing file, and naming a bad row."""
    name = file.name.lower()
    if name.endswith((".csv", ".csv.gz")):
        return _csv_triples(file)
    if name.endswith((".nt", ".nt.gz")):
        return _n_triples(file)
    if name.endswith(".parquet"):
        return _parquet_triples(file)
    return delimited_triples(file, "\t", may_have_header=True)


def delimited_triples(file: AnyPath, separator: str, *, may_have_header: bool = False) -> Iterator[Triple]:
    """Yield one triple per line of `head`, `relation`, `tail`, without quoting. Raises UserError naming a bad line.

    Blank lines are skipped. A first line with these three names, in upper or lower case, may give another order.
    """
    places: Sequence[int] | None = None
    for number, line in lines(file):
        try:
            text = line.decode()
        except UnicodeDecodeError:
            raise UserError(f"{file}, line {number}: not valid UTF-8") from None
        if not text.strip(" "):
            continue
        parts = text.split(separator)
        if len(parts) != 3:
            raise UserError(f"{file}, line {number}: expected head, relation and tail separated by {separator!r}")
        if number == 1 and may_have_header:
            if _has_names(parts):
                places = _places(file, parts)
                continue
            _warn_of_header(file, tuple(parts))
        yield _triple(file, "line", number, parts if places is None else [parts[place] for place in places])


def header_doubt(file: AnyPath, first: Sequence[object]) -> str | None:
    """Return a sentence about a first fact that looks like a header with other names; None for any other fact."""
    names = [str(part).strip().lower() for part in first]
    if not set(names) <= _USUAL_NAMES and len({*_COLUMNS} & {*names}) < 2:
        return None
    return f"{file}: the first line ({', '.join(map(str, first))}) is read as a fact, but looks like a header"


@cache  # once per process, though some commands read the file several times
def _warn_of_header(file: AnyPath, first: tuple[str, ...]) -> None:
    if all(len(part) > 1 and part[0] == part[-1] == '"' for part in first):
        _log.warning(
            "%s: the values of the first line are in double quotes, which are part of the names: only a file of commas "
            "whose name ends in .csv is read with quotes",
            file,
        )
    elif doubt := header_doubt(file, first):
        _log.warning("%s: if it is one, name its columns head, relation and tail", doubt)


_SPACED: set[AnyPath] = set()
"""Files whose relations with spaces around them were mentioned."""


def _warn_of_space(file: AnyPath, place: str, relation: str) -> None:
    """Mention the first such relation of a file. Facts keep it: a question may name it so."""
    if file not in _SPACED:
        _SPACED.add(file)
        name = relation.strip()
        _log.warning(
            "%s, %s: the relation %r has a space at an end, so it is not the relation %r", file, place, relation, name
        )


def _is_one_line(relation: str) -> bool:
    return len(relation.splitlines()) == 1


def _n_triples(file: AnyPath) -> Iterator[Triple]:
    """Yield the triples of N-Triples, IRIs as they are. A blank node is `_:` and its label, which is no IRI."""
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


def _csv_triples(file: AnyPath) -> Iterator[Triple]:
    """Yield the triples of CSV. Raises UserError naming a bad line."""
    with open_file(file) as stream:
        rows = _csv_rows(file, io.TextIOWrapper(stream, encoding="utf-8-sig", newline=""))
        line, first = next(rows, (1, []))
        places = _places(file, first)
        if not _has_names(first):
            _warn_of_header(file, tuple(first))
            yield _triple(file, "line", line, first)
        for line, row in rows:
            if len(row) != len(first):
                expected = f"expected {counted(len(first), 'value')}, as in the first line, but there are {len(row)}"
                raise UserError(f"{file}, line {line}: {expected}")
            yield _triple(file, "line", line, [row[place] for place in places])


def _csv_rows(file: AnyPath, text: Iterable[str]) -> Iterator[tuple[int, list[str]]]:
    """Yield each row that is not blank with the line in which it begins.

    A value without a closing quote is an error, and so is text after one: such a value swallows the lines after it.
    """
    rows = csv.reader(text, strict=True)
    begins = 1
    try:
        for row in rows:
            if row:
                yield begins, row
            begins = rows.line_num + 1
    except csv.Error as error:
        is_one = rows.line_num <= begins
        where = f"line {begins} is" if is_one else f"lines {begins} to {rows.line_num} are"
        raise UserError(
            f"{file}, {where} not CSV ({error}): a value that begins with a double quote ends at the next one; write a "
            "double quote inside such a value twice"
        ) from None
    except UnicodeDecodeError:
        raise UserError(f"{file}, line {rows.line_num + 1}, or soon after it: not valid UTF-8") from None


def _parquet_triples(file: AnyPath) -> Iterator[Triple]:
    number = 0
    try:
        parquet = pq.ParquetFile(local_copy(file))
        schema = parquet.schema_arrow
        names = [schema.names[place] for place in _places(file, schema.names)]
        for batch in parquet.iter_batches(_BATCH, columns=names):
            for values in zip(*(batch.column(name).to_pylist() for name in names), strict=True):
                number += 1
                for name, value in zip(names, values, strict=True):
                    if not isinstance(value, str | None):
                        found = f"the column {name} has the type {schema.field(name).type}"
                        raise UserError(f"{file}, row {number}: {found}, but {_TEXTS}")
                yield _triple(file, "row", number, values)
    except (pa.ArrowException, OSError) as error:
        place = f", after row {number}," if number else ""
        raise UserError(f"{file}{place} cannot be read: {error}") from None


def _triple(file: AnyPath, unit: str, number: int, values: Sequence[str | None]) -> Triple:
    """Return the fact of a row or a line. Raises UserError that says where it is."""
    head, relation, tail = values
    if not head or not relation or not tail:
        empty = " and ".join(name for name, value in zip(_COLUMNS, values, strict=True) if not value)
        raise UserError(f"{file}, {unit} {number}: no {empty}, but {_TEXTS}")
    if not _is_one_line(relation):
        raise UserError(f"{file}, {unit} {number}: {_LINE_BREAK}")
    if relation != relation.strip():
        _warn_of_space(file, f"{unit} {number}", relation)
    return Triple(head, relation, LiteralNode(tail) if relation in _OF_NAMES else tail)


def _has_names(names: Sequence[str]) -> bool:
    return set(_COLUMNS) <= {name.lower() for name in names}


def _places(file: AnyPath, names: Sequence[str]) -> Sequence[int]:
    """Return the places of head, relation and tail among the columns. Raises UserError."""
    if _has_names(names):
        if twice := [name for name in _COLUMNS if [other.lower() for other in names].count(name) > 1]:
            raise UserError(f"{file} has several columns with the name {twice[0]}")
        return [[name.lower() for name in names].index(column) for column in _COLUMNS]
    if len(names) == len(_COLUMNS):
        return range(len(_COLUMNS))
    alone = names[0] if len(names) == 1 else ""
    guess = next((f": is it separated by {each}?" for sign, each in _OTHER_SEPARATORS.items() if sign in alone), "")
    raise UserError(
        f"{file} has neither the columns head, relation and tail nor exactly three, but "
        f"{', '.join(names)[:_SHOWN] or 'none'}{guess}"
    )
