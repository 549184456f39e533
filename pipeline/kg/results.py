"""Parses the tab-separated results of graph servers, and refuses what cannot be the result of the query."""

from __future__ import annotations

import re
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import islice
from typing import TypeAlias

from pipeline.text import printable, valid_unicode

Row: TypeAlias = tuple[str, ...]
Check: TypeAlias = Callable[[Sequence[str]], bool]
"""Returns whether all values of a column are possible."""

MEDIA_TYPE = "text/tab-separated-values"


class UnexpectedResult(Exception):
    """A graph server did not send a result of the query. The message says what it sent, without its address."""


@dataclass(frozen=True, slots=True)
class Select:
    """A query as it is sent, and the form of its result."""

    text: str
    columns: tuple[str, ...]
    """The names of the variables."""
    limit: int
    """The most rows that the result can have."""
    checks: tuple[Check | None, ...]
    """For each column the check of its values; None for columns with any values."""


def numbers(values: Sequence[str]) -> bool:
    """Return whether all values are whole numbers that fit in 64 bits."""
    return all(value.isascii() and value.isdecimal() and len(value) < 19 for value in values)


def parse_result(body: bytes, query: Select) -> list[Row]:
    """Return the rows of a tab-separated result: the lexical form of each term, an empty text for an unbound one.

    Reads the dialects of Virtuoso (IRIs and texts in quotes, quotes doubled, line ends unescaped) and of the W3C.
    Raises UnexpectedResult for anything that cannot be the result of the query.
    """
    text = _decoded(body)
    header, newline, text = text.partition("\n")
    names = tuple(name.strip('"').removeprefix("?") for name in header.rstrip("\r").split("\t"))
    if names != query.columns or not newline:
        raise UnexpectedResult(f"sent no table with the columns {', '.join(query.columns)}, but {_start(body)}")
    if text and not text.endswith("\n"):
        text += "\n"
    columns = len(names)
    most = columns * query.limit
    virtuoso = header.startswith('"')
    cells = _virtuoso_cells(text, most) if virtuoso else _standard_cells(text, columns, most)
    if cells is None or len(cells) % columns or len(cells) > most:
        raise UnexpectedResult(f"sent a damaged table, or one of more than {query.limit:,} rows: {_start(body)}")
    for number, check in enumerate(query.checks):
        if check and not check(cells[number::columns]):
            raise UnexpectedResult(f"sent values in the column {names[number]} that the query cannot have")
    return list(zip(*[iter(cells)] * columns, strict=True))


def _decoded(body: bytes) -> str:
    try:
        return body.decode()
    except UnicodeDecodeError:
        pass
    try:  # Virtuoso writes the surrogates that it was given.
        return valid_unicode(body.decode("utf-8", errors="surrogatepass"))
    except UnicodeDecodeError as error:
        raise UnexpectedResult(f"sent bytes that are not UTF-8: {error}") from None


def _start(body: bytes) -> str:
    return printable(body[:100].decode(errors="replace"))


def _virtuoso_cells(text: str, most: int) -> list[str] | None:
    """Return the cells, or one more than `most` of a table that has more; None if something stands between them."""
    found = _matches(_VIRTUOSO_CELL, text, most)
    if found and found[-1][-1]:
        return None
    return [quoted.replace('""', '"') if quoted else plain for quoted, plain, _ in found]


def _standard_cells(text: str, columns: int, most: int) -> list[str] | None:
    """Return the same of a table in the dialect of the W3C, in which no cell has a line end. Each line is a row."""
    found = _matches(_STANDARD_CELL, text, most)
    if found and found[-1][-1]:
        return None
    if len(found) <= most and len(found) != columns * text.count("\n"):
        return None
    return [iri or _content(quoted) or plain for iri, quoted, plain, _ in found]


def _matches(cell: re.Pattern[str], text: str, most: int) -> list[tuple[str, ...]]:
    """Return the groups of each cell, of one more than `most` at most. The last group of the last one is stray text."""
    if text.count("\t") + text.count("\n") <= most:  # each cell ends with one of these
        return cell.findall(text)
    return [match.groups("") for match in islice(cell.finditer(text), most + 1)]


def _content(quoted: str) -> str:
    """Return the text of a quoted cell, without its escapes."""
    return valid_unicode(_UNESCAPE.sub(_unescaped, quoted)) if "\\" in quoted else quoted


# Stray text takes all that follows it, and nothing is read twice: a table of any text is read in linear time.
_STRAY = r"([\s\S]+)"
_VIRTUOSO_CELL = re.compile(rf'(?:"([^"]*+(?:""[^"]*+)*+)"|([^\t\n"]*+))[\t\n]|{_STRAY}')
_STANDARD_CELL = re.compile(
    r'(?:<([^>]*+)>|"([^"\\\n]*+(?:\\.[^"\\\n]*+)*+)"(?:@[A-Za-z0-9-]++|\^\^<[^>]*+>)?+|([^\t\n"<]*+))[\t\n]|'
    rf"{_STRAY}"
)
_UNESCAPE = re.compile(r"\\(?:u([0-9A-Fa-f]{4})|U([0-9A-Fa-f]{8})|(.))")
_ESCAPED = {"t": "\t", "n": "\n", "r": "\r", "b": "\b", "f": "\f"}


def _unescaped(match: re.Match[str]) -> str:
    short, long, letter = match.groups()
    if letter:
        return _ESCAPED.get(letter, letter)
    code = int(short or long, 16)
    return chr(code) if code <= sys.maxunicode else "\ufffd"
