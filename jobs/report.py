"""`kgqa report`: the points of runs on one HTML page that needs nothing but a browser."""

from __future__ import annotations

import sys
from pathlib import Path

from rich.console import Console

from jobs.cli import guard
from jobs.common import print_remarks, wants_help
from pipeline.analysis.report.page import report
from pipeline.errors import StorageError, UserError
from pipeline.traces.place import place, write_whole

USAGE = "kgqa report RUN [RUN …] [output=FILE]"
_OUTPUT = "output="
_NAME = "report.html"


def main(argv: list[str]) -> int:
    """Write the report of the run folders in `argv`, and print where it is."""
    if wants_help(argv) or not argv:
        print(f"usage: {USAGE}\n\nWithout output= it is RUN/{_NAME} for one run, and ./{_NAME} for several.")
        return 0
    runs = list(dict.fromkeys(place(word) for word in argv if not _is_option(word)))
    if not runs:
        raise UserError(f"name a run folder: {USAGE}")
    named = [word.removeprefix(_OUTPUT) for word in argv if word.startswith(_OUTPUT)]
    file = place(named[-1]) if named else (runs[0] if len(runs) == 1 else Path()) / _NAME
    page = report(runs)
    try:
        write_whole(file, page.encode())
    except StorageError as error:
        raise UserError(f"{_OUTPUT}{error}") from None
    print_remarks([str(file)], Console())
    return 0


def _is_option(word: str) -> bool:
    """Whether a word is `output=…`; a folder's name may have an equals sign too. Raises UserError for other keys."""
    if word.startswith(_OUTPUT):
        return True
    if "=" in word and not Path(word).is_dir():
        raise UserError(f"unknown key '{word.partition('=')[0]}': {USAGE}")
    return False


if __name__ == "__main__":
    sys.exit(guard(main, sys.argv[1:]))
