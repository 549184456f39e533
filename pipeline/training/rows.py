"""Writes training data as JSON Lines, and a report next to it."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

import orjson

from pipeline.traces.storage import storing, writing


def write_rows(rows: Iterable[Mapping[str, Any]], output: Path) -> None:
    """Write the rows; the file is complete or absent. Raises StorageError."""
    with storing(output):
        output.parent.mkdir(parents=True, exist_ok=True)
    with writing(output) as file:
        for row in rows:
            file.write(orjson.dumps(row) + b"\n")


def write_report(document: Mapping[str, Any], output: Path) -> None:
    """Write a report as JSON next to `output`, as `.report.json`. Raises StorageError."""
    report = output.with_suffix(".report.json")
    with storing(report):
        report.write_text(json.dumps(document, indent=2, ensure_ascii=False) + "\n", encoding="utf-8")
