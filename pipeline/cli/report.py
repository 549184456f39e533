"""`kgqa report`: show the configurations of runs on one HTML page that needs only a browser."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

from pipeline.cli.common import Arguments, Output
from pipeline.errors import StorageError, UserError
from pipeline.report.page import report
from pipeline.traces.storage import storage_path, write_whole

_NAME = "report.html"


def run(arguments: Arguments) -> Output:
    """Write the report of the run folders, and print its path."""
    output = _take_output(arguments)
    runs = list(dict.fromkeys(map(storage_path, arguments.words)))
    file = storage_path(output) if output else (runs[0] if len(runs) == 1 else Path()) / _NAME
    page = report(runs)
    try:
        write_whole(file, page.encode())
    except StorageError as error:
        raise UserError(f"output={error}") from None
    return Output({"output": str(file)}, lines=[str(file)])


def _take_output(arguments: Arguments) -> str | None:
    """Return `output`, literally: a file may have a name with characters that are special in an override."""
    literal = [word for word in arguments.overrides if word.startswith("output=")]
    others = [word for word in arguments.overrides if word not in literal]
    composed: str | None = replace(arguments, overrides=others).compose()["output"]
    return literal[-1].removeprefix("output=") if literal else composed
