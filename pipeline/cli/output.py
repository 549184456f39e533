"""The output of a command, and how it is printed."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass
from typing import Any

import orjson
from rich.console import RenderableType

from pipeline.console import UNLIMITED, Console
from pipeline.export.table_files import write_tables
from pipeline.text import printable, printable_json


@dataclass(frozen=True)
class Output:
    """What a command prints: tables, lines and notes for people, or the same figures for scripts."""

    figures: Mapping[str, Any] | None = None
    """What `json=true` prints; None for commands without figures."""
    tables: Sequence[RenderableType] = ()
    notes: Sequence[str] = ()
    """Sentences below the figures."""
    lines: Sequence[str] = ()
    """The figures of a command without tables, one line each; printed above the notes."""
    exit_code: int = 0
    paged: bool = False
    """Whether a terminal shows it page by page."""
    full_tables: Sequence[RenderableType] = ()
    """What `table=FILE` writes instead of the printed tables; empty for the same."""

    def print(self, *, as_json: bool = False) -> None:
        """Print tables, lines and notes, or nothing but one JSON document."""
        if as_json:
            document = {**(self.figures or {}), "notes": list(self.notes)}
            written = orjson.dumps(document, option=orjson.OPT_NON_STR_KEYS | orjson.OPT_SERIALIZE_NUMPY)
            print(printable_json(written.decode()))
            return
        console = Console(width=None if sys.stdout.isatty() or os.environ.get("COLUMNS") else UNLIMITED)
        with _pager(console) if self.paged and console.is_terminal else nullcontext():
            for table in self.tables:
                _print_table(console, table)
            for line in (*self.lines, *self.notes):  # as they are: a path is not markup, and must not be cut
                console.print(line, highlight=False, markup=False, soft_wrap=True)

    def write_tables(self, file: str) -> None:
        """Write the tables to a file, and name on stderr what was written. Raises UserError."""
        for written in write_tables(self.full_tables or self.tables, file):
            print(printable(str(written)), file=sys.stderr)


def _print_table(console: Console, table: RenderableType) -> None:
    """Print a table. Where that is no terminal, its lines end with their last letter: Rich fills up the last column."""
    if console.is_terminal:
        console.print(table)
        return
    with console.capture() as printed:
        console.print(table)
    print("\n".join(line.rstrip() for line in printed.get().removesuffix("\n").split("\n")))


@contextmanager
def _pager(console: Console) -> Iterator[None]:
    """Show what is printed page by page, in colour. What fits on the screen is printed at once."""
    os.environ.setdefault("LESS", "-FRX")
    with console.pager(styles=True):
        yield
