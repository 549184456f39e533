"""Writes the tables that a command prints as CSV, Markdown or LaTeX, from the same table objects.

A file has the columns of the printed table, such as those of `pipeline/evaluation/score_tables.py`; a CSV file has
further ones for intervals, and for the lines of a cell.
"""

from __future__ import annotations

import csv
import io
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from rich.console import RenderableType
from rich.table import Table
from rich.text import Text

from pipeline.errors import UserError
from pipeline.evaluation.score_tables import FittingTable, PValue
from pipeline.text import printable
from pipeline.traces.storage import StoragePath, make_folder, storage_path, storing, write_whole

_ABSENT = "–"
_NUMBER = re.compile(r"[+-]?\d{1,3}(?:,\d{3})+(?:\.\d+)?|[+-]?\d+(?:\.\d+)?")
_FIGURE = re.compile(rf"({_NUMBER.pattern})(?:\s({_NUMBER.pattern})[–…]({_NUMBER.pattern}))?")
"""A number, with or without its interval."""
_FORMULA = ("=", "+", "-", "@", "\t", "\r", "＝", "＋", "－", "＠")
"""What a spreadsheet takes for the beginning of a formula."""
_MARKS = ((0.001, "***"), (0.01, "**"), (0.05, "*"))
_MARKED = "difference"
"""The column that gets the marks of the p-values."""
_MARK_NOTE = "* p < 0.05, ** p < 0.01, *** p < 0.001, corrected"


@dataclass(frozen=True, slots=True)
class Cell:
    """A cell: a figure with its interval, or a text."""

    text: str
    """Everything, on one line."""
    number: str | None = None
    """The figure without separators of thousands; None for a text."""
    low: str | None = None
    high: str | None = None
    mark: str = ""
    """Of significance: `*`, `**`, `***`."""
    lines: Sequence[str] = ()
    """Its lines; empty for a figure."""


@dataclass(frozen=True, slots=True)
class FileTable:
    """A table as it is written to a file."""

    title: str
    headings: Sequence[str]
    numeric: Sequence[bool]
    """Whether each column is right-aligned."""
    rows: Sequence[Sequence[Cell]]
    note: str


def check_table_file(name: str) -> None:
    """Raise UserError if the ending of a file does not say in which format tables are written."""
    if not name.endswith(tuple(_WRITERS)):
        raise UserError(f"table={name}: the ending says the format: {', '.join(_WRITERS)}")


def write_tables(printed: Sequence[RenderableType], name: str) -> list[StoragePath]:
    """Write the tables among what a command prints. Returns the files: CSV takes one for each table.

    Raises UserError if there is no table, or the file cannot be written.
    """
    check_table_file(name)
    tables = list(map(file_table, _tables(printed)))
    if not tables:
        raise UserError(f"table={name}: the command prints no table")
    path = storage_path(name)
    if isinstance(path, Path):
        with storing(path):
            make_folder(path.parent)
    ending, write = next((ending, write) for ending, write in _WRITERS.items() if name.endswith(ending))
    if ending != ".csv":
        write_whole(path, "\n".join(map(write, tables)).encode())
        return [path]
    files = [path, *(path.with_name(f"{path.stem}-{number}.csv") for number in range(2, len(tables) + 1))]
    for file, table in zip(files, tables, strict=True):
        write_whole(file, write(table).encode())
    return files


def _tables(printed: Sequence[RenderableType]) -> Iterator[Table]:
    for each in printed:
        if isinstance(each, FittingTable):
            yield each.build(())
        elif isinstance(each, Table):
            yield each


def file_table(table: Table) -> FileTable:
    """Return a printed table with all of its columns, its title, and its caption as a note."""
    headings = [_heading(_plain(column.header)) for column in table.columns]
    columns = [[_cell(_plain(cell)) for cell in column.cells] for column in table.columns]
    numeric = [column.justify == "right" for column in table.columns]
    rows = [list(row) for row in zip(*columns, strict=True)]
    note = _plain(table.caption or "")
    tested = next(
        (list(column.cells) for column in table.columns if any(isinstance(p, PValue) for p in column.cells)), []
    )
    if tested and _MARKED in headings:
        marked = headings.index(_MARKED)
        for row, p in zip(rows, tested, strict=True):
            row[marked] = _with_mark(row[marked], p)
        note = f"{note}\n{_MARK_NOTE}"
    return FileTable(_line(_plain(table.title or "")), headings, numeric, rows, note.strip())


def _plain(renderable: RenderableType) -> str:
    return printable(renderable.plain if isinstance(renderable, Text) else str(renderable))


def _cell(text: str) -> Cell:
    figure = _FIGURE.fullmatch(text.strip())
    if figure is None:
        return Cell("" if text == _ABSENT else _line(text), lines=list(filter(str.strip, text.splitlines())))
    number, low, high = (part and part.replace(",", "").removeprefix("+") for part in figure.groups())
    return Cell(_line(text), number, low, high)


def _with_mark(cell: Cell, p: RenderableType) -> Cell:
    value = p.value if isinstance(p, PValue) else 1.0
    return replace(cell, mark=next((mark for limit, mark in _MARKS if value < limit), ""))


def _heading(text: str) -> str:
    """Return a heading as one line; a key is broken after an underscore."""
    return " ".join(text.replace("_\n", "_").split())


def _line(text: str) -> str:
    """Return the lines of a cell as one line."""
    return "; ".join(filter(None, (" ".join(line.split()) for line in text.splitlines())))


# CSV: an interval takes two more columns, a mark one, and each line of a cell one


def _csv(table: FileTable) -> str:
    parts = [list(_csv_column(heading, [row[at] for row in table.rows])) for at, heading in enumerate(table.headings)]
    columns = [column for of_heading in parts for column in of_heading]
    written = io.StringIO()
    writer = csv.writer(written, lineterminator="\n")
    writer.writerow([_harmless(heading) for heading, _ in columns])
    writer.writerows(zip(*(cells for _, cells in columns), strict=True))
    return written.getvalue()


def _csv_column(heading: str, cells: Sequence[Cell]) -> Iterator[tuple[str, list[str]]]:
    """Yield a column; if its cells are figures with intervals, their ends and marks are columns, too.

    If its cells have several lines, each line is a column.
    """
    most = max((len(cell.lines) for cell in cells), default=0)
    if most > 1:
        for at in range(most):
            of_line = [_cell("".join(cell.lines[at : at + 1])) if cell.lines or at else cell for cell in cells]
            yield from _csv_column(f"{heading} {at + 1}" if at else heading, of_line)
    elif any(cell.low for cell in cells) and all(cell.number or not cell.text for cell in cells):
        yield heading, [cell.number or "" for cell in cells]
        yield f"{heading} low", [cell.low or "" for cell in cells]
        yield f"{heading} high", [cell.high or "" for cell in cells]
    else:
        yield heading, [cell.number if cell.number and not cell.low else _harmless(cell.text) for cell in cells]
    if any(cell.mark for cell in cells):
        yield f"{heading} mark", [cell.mark for cell in cells]


def _harmless(text: str) -> str:
    """Return a text that no spreadsheet takes for a formula."""
    return f"'{text}" if text.lstrip().startswith(_FORMULA) else text


# Markdown


def _markdown(table: FileTable) -> str:
    lines = [f"**{_md(table.title)}**", ""] if table.title else []
    lines += [_md_row(map(_md, table.headings)), _md_row("---:" if right else "---" for right in table.numeric)]
    lines += [_md_row(_md(_figure(cell)) for cell in row) for row in table.rows]
    note = [f"{_md(line)}  " for line in table.note.splitlines()]
    return "\n".join([*lines, "", *note]) + "\n"


def _md_row(cells: Iterator[str] | map[str]) -> str:
    return f"| {' | '.join(cells)} |"


def _figure(cell: Cell) -> str:
    if cell.number is None or cell.low is None:
        return f"{cell.text}{cell.mark}"
    number, _, interval = cell.text.replace(";", "").partition(" ")
    return f"{number}{cell.mark} [{interval}]"


def _md(text: str) -> str:
    """Return a text that Markdown and the HTML in it show as it is."""
    escaped = re.sub(r"([\\`*_{}\[\]()#|~$!])", r"\\\1", text)
    return escaped.replace("&", "&amp;").replace("<", "&lt;").replace(">", "&gt;")


# LaTeX


_LATEX: Mapping[str, str] = {
    "\\": r"\textbackslash{}",
    "~": r"\textasciitilde{}",
    "^": r"\textasciicircum{}",
    "<": r"\textless{}",
    ">": r"\textgreater{}",
    "|": r"\textbar{}",
    '"': r"\textquotedbl{}",
    "…": r"\ldots{}",
    "–": "--",
    "−": r"$-$",
    "→": r"$\rightarrow$",
    "✗": r"$\times$",
    "\ufffd": "?",
    "-": "{-}",
    "'": r"\textquotesingle{}",
    "`": r"\textasciigrave{}",
    **{letter: f"\\{letter}" for letter in "&%$#_{}"},
}


def _latex(table: FileTable) -> str:
    alignment = "".join("r" if right else "l" for right in table.numeric)
    notes = [f"\\\\ {{\\footnotesize {_tex(line)}}}" for line in table.note.splitlines()]
    caption = _tex(table.title) or "Scores in percent"
    return "\n".join(
        [
            "% \\usepackage{booktabs}, and [T1]{fontenc} with {textcomp}",
            "\\begin{table}",
            "\\centering",
            f"\\caption{{{caption}}}",
            f"\\begin{{tabular}}{{{alignment}}}",
            "\\toprule",
            f"{' & '.join(map(_tex, table.headings))} \\\\",
            "\\midrule",
            *(f"{' & '.join(map(_tex_cell, row))} \\\\" for row in table.rows),
            "\\bottomrule",
            "\\end{tabular}",
            *notes,
            "\\end{table}",
            "",
        ]
    )


def _tex_cell(cell: Cell) -> str:
    if cell.number is None:
        return _tex(cell.text)
    shown = cell.text.partition(" ")[0].rstrip(";")
    value = f"${shown}^{{{cell.mark}}}$" if cell.mark else f"${shown}$" if shown[0] in "+-" else shown
    return f"{value} {{\\scriptsize $[{cell.low}, {cell.high}]$}}" if cell.low else value


def _tex(text: str) -> str:
    """Return a text that LaTeX prints as it is."""
    return "".join(_LATEX.get(letter, letter) for letter in text)


_WRITERS: Mapping[str, Callable[[FileTable], str]] = {".csv": _csv, ".md": _markdown, ".tex": _latex}
"""How a table is written, by the ending of the file."""
