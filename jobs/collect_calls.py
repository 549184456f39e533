"""`kgqa collect calls`: the calls of finished runs, as what a model of one's own is fine-tuned on."""

from __future__ import annotations

import sys
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

from rich.console import Console

from jobs.cli import guard
from jobs.common import help_text, print_remarks, wants_help
from pipeline import config
from pipeline.errors import UserError
from pipeline.traces.folder import RunFolder
from pipeline.traces.place import place
from pipeline.training.calls import Report, read_calls, tables, write_calls

USAGE = "kgqa collect calls RUN [RUN …] output=FILE [key=value] …"
_NAME = "collect_calls"
_SHOWN_EVERY = 1000


def main(argv: list[str]) -> int:
    """Write the calls of the run folders in `argv` that may be learned from, and the report on them."""
    if wants_help(argv) or not argv:
        print(help_text(USAGE, argv, name=_NAME))
        return 0
    settings = config.compose([word for word in argv if "=" in word], name=_NAME)
    material, selection = config.build("material", settings), config.build("collect", settings)
    folders = [RunFolder(place(word)) for word in dict.fromkeys(argv) if "=" not in word]
    if not folders:
        raise UserError(f"name the run folders to read: {USAGE}")
    report, output = Report(), Path(settings["output"])
    write_calls(_shown(read_calls(folders, material, selection, report)), report, output)
    console = Console()
    for table in tables(report):
        console.print(table)
    print_remarks([*_remarks(folders), f"rows: {output}"], console)
    return 0


def _shown(rows: Iterable[dict[str, Any]]) -> Iterator[dict[str, Any]]:
    """The rows, with their number on a terminal."""
    with Console(stderr=True).status("reading the traces") as status:
        for number, row in enumerate(rows, start=1):
            if number % _SHOWN_EVERY == 0:
                status.update(f"reading the traces: {number:,} rows")
            yield row


def _remarks(folders: Iterable[RunFolder]) -> Iterator[str]:
    for folder in folders:
        served = (folder.read_run() or {"served": []})["served"]
        if labels := dict.fromkeys(one["label"] for one in served if one["label"]):
            yield f"{folder.path} was answered by {', '.join(labels)}: nothing of it is a language model's"
        if folder.read_summary() is None:
            yield f"{folder.path} is not finished: what it has committed so far was read"


if __name__ == "__main__":
    sys.exit(guard(main, sys.argv[1:]))
