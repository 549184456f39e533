"""Training data as files: JSON Lines, a row each."""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

import orjson

from pipeline.traces.place import TMP, storing


def write_rows(rows: Iterable[Mapping[str, Any]], output: Path) -> None:
    """Write rows as they come, so that there is the whole file or none. Raises StorageError."""
    beside = output.with_name(f"{output.name}{TMP}")
    with storing(output):
        output.parent.mkdir(parents=True, exist_ok=True)
        try:
            with beside.open("wb") as file:
                for row in rows:
                    file.write(orjson.dumps(row) + b"\n")
                file.flush()
                os.fsync(file.fileno())
            beside.replace(output)
        except BaseException:
            beside.unlink(missing_ok=True)
            raise
