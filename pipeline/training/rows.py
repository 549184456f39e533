"""Training data as files: JSON Lines, a row each, and beside them the report on them."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

import orjson

from pipeline.traces.place import storing, writing


def write_rows(rows: Iterable[Mapping[str, Any]], output: Path) -> None:
    """Write rows as they come, so that there is the whole file or none. Raises StorageError."""
    with storing(output):
        output.parent.mkdir(parents=True, exist_ok=True)
    with writing(output) as file:
        for row in rows:
            file.write(orjson.dumps(row) + b"\n")


def write_report(document: Mapping[str, Any], output: Path) -> None:
    """Write the report on the rows in `output` as JSON. Raises StorageError."""
    beside = output.with_suffix(".report.json")
    with storing(beside):
        beside.write_text(json.dumps(document, indent=2, ensure_ascii=False) + "\n", encoding="utf-8")
