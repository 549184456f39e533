"""The folder that a run was begun in: the relative paths of its `run.yaml` begin there."""

from __future__ import annotations

import os
import shlex
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any

from pipeline import config
from pipeline.errors import UserError
from pipeline.traces.folder import RunFolder
from pipeline.traces.storage import StoragePath


def begun_in(folder: RunFolder) -> str | None:
    """Return the current folder as `run.yaml` holds it: relative to the run folder, so that both can be moved.

    None if it has been removed, as Ray removes that of a job that was submitted.
    """
    try:
        here = Path.cwd()
    except FileNotFoundError:
        return None
    return os.path.relpath(here, folder.path) if isinstance(folder.path, Path) else str(here)


def refuse_other_folder(file: StoragePath, saved: Mapping[str, Any], configs: Iterable[Mapping[str, Any]]) -> None:
    """Raise UserError if a configuration of a `run.yaml` names a file that is another one, or none, from here.

    A value counts as the name of a file if the folder that the run was begun in has it. One word that the user did not
    give on the command line is no such name: most are options, such as `test`, which may be the name of a folder, too.
    A `run.yaml` of an older version does not say which folder the run was begun in.
    """
    if saved.get("begun_in") is None:
        return
    start = file.absolute().parent if isinstance(file, Path) else Path("/")
    before = os.path.normpath(start / saved["begun_in"])
    words = {word.lstrip("+~").partition("=")[0] for point in saved["points"] for word in point["overrides"]}
    given = [word for word in words if "." in word]  # the others choose a group, such as `dataset`
    values = dict.fromkeys(leaf for resolved in configs for leaf in _texts(resolved))
    for key, value in values:
        if value.isidentifier() and not any(f"{key}.".startswith(f"{word}.") for word in given):
            continue
        there = os.path.join(before, value)
        if os.path.exists(there) and not (os.path.exists(value) and os.path.samefile(there, value)):
            moved = os.path.relpath(file.absolute(), before) if isinstance(file, Path) else str(file)
            named = "" if moved == str(file) else f", where the file is {shlex.quote(moved)}"
            raise UserError(
                f"{file} names files by their paths from the folder in which its run was begun ({key}={value}): go "
                f"there (cd {shlex.quote(before)}){named}, and give the command again"
            )


def _texts(resolved: Mapping[str, Any]) -> Iterator[tuple[str, str]]:
    """Yield the texts among the values of a configuration, with their keys."""
    for key, value in config.flatten({section: resolved[section] for section in config.SECTIONS}):
        values = value if isinstance(value, list) else [value]
        yield from ((key, each) for each in values if isinstance(each, str) and each)
