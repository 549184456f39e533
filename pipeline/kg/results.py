"""Parses the tab-separated results of graph servers, and refuses what cannot be the result of the query."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TypeAlias

from pipeline.text import printable

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
    try:
        text = body.decode("utf-8", errors="surrogatepass")
    except UnicodeDecodeError as error:
        raise UnexpectedResult(f"sent bytes that are not UTF-8: {error}") from None
    header, newline, text = text.partition("\n")
    names = tuple(name.strip('"').removeprefix("?") for name in header.rstrip("\r").split("\t"))
    if names != query.columns or not newline:
        raise UnexpectedResult(f"sent no table with the columns {', '.join(query.columns)}, but {_start(body)}")
    if text and not text.endswith("\n"):
        text += "\n"
    cells = (_virtuoso_cells if header.startswith('"') else _standard_cells)(text)
    columns = len(names)
    if cells is None or len(cells) % columns or len(cells) > columns * query.limit:
        raise UnexpectedResult(f"sent a damaged table, or one of more than {query.limit:,} rows: {_start(body)}")
    for number, check in enumerate(query.checks):
        if check and not check(cells[number::columns]):
            raise UnexpectedResult(f"sent values in the column {names[number]} that the query cannot have")
    return list(zip(*[iter(cells)] * columns, strict=True))


def _start(body: bytes) -> str:
    return printable(body[:100].decode(errors="replace"))


def _virtuoso_cells(text: str) -> list[str] | None:
    """Return the cells; None if something stands between them."""
    found = _VIRTUOSO_CELL.findall(text)
    if any(stray for _, _, stray in found):
        return None
    return [quoted.replace('""', '"') if quoted else plain for quoted, plain, _ in found]


def _standard_cells(text: str) -> list[str] | None:
    """Return the cells; None if something stands between them."""
    found = _STANDARD_CELL.findall(text)
    if any(stray for *_, stray in found):
        return None
    return [iri or _UNESCAPE.sub(_unescaped, quoted) or plain for iri, quoted, plain, _ in found]


_VIRTUOSO_CELL = re.compile(r'(?:"([^"]*(?:""[^"]*)*)"|([^\t\n"]*))[\t\n]|(.)')
_STANDARD_CELL = re.compile(
    r'(?:<([^>]*)>|"([^"\\\n]*(?:\\.[^"\\\n]*)*)"(?:@[A-Za-z0-9-]+|\^\^<[^>]*>)?|([^\t\n"<]*))[\t\n]|(.)'
)
_UNESCAPE = re.compile(r"\\(?:u([0-9A-Fa-f]{4})|U([0-9A-Fa-f]{8})|(.))")
_ESCAPED = {"t": "\t", "n": "\n", "r": "\r", "b": "\b", "f": "\f"}


def _unescaped(match: re.Match[str]) -> str:
    short, long, letter = match.groups()
    return _ESCAPED.get(letter, letter) if letter else chr(int(short or long, 16))
