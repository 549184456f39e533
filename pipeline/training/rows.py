"""Reads the decisions of a collection, and writes training data as JSON Lines, and a report next to it."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any, Protocol

import orjson

from pipeline.traces.storage import storing, writing


def write_rows(rows: Iterable[Mapping[str, Any]], output: Path) -> None:
    """Write the rows; the file is complete or absent. Raises StorageError."""
    with storing(output):
        output.parent.mkdir(parents=True, exist_ok=True)
    with writing(output) as file:
        for row in rows:
            file.write(orjson.dumps(row) + b"\n")


class Report(Protocol):
    """Counts what becomes of the questions while their rows are read."""

    def document(self) -> dict[str, Any]:
        """Return the report as JSON."""


def write_collected(rows: Iterable[Mapping[str, Any]], report: Report, output: Path) -> None:
    """Write the rows as `write_rows` does, then their report next to them, as `.report.json`. Raises StorageError."""
    write_rows(rows, output)
    file = output.with_suffix(".report.json")
    with storing(file):
        file.write_text(json.dumps(report.document(), indent=2, ensure_ascii=False) + "\n", encoding="utf-8")


def decisions(trace: Mapping[str, Any], *roles: str) -> Iterator[tuple[str, Any]]:
    """Yield the role and the contents of each decision of a question that has one of the roles."""
    for step, text in zip(trace["steps"], trace["texts"], strict=True):
        if step["kind"] == "decision" and step["role"] in roles:
            yield step["role"], orjson.loads(text["payload"])


def rejection(trace: Mapping[str, Any], events: Mapping[str, Mapping[str, Any]]) -> str:
    """Return the reason why a question gave nothing: what its decision `rejected` says, or else how it ended."""
    if "rejected" in events:
        return str(events["rejected"]["reason"])
    return f"{trace['status']}: {(trace['error'] or '').partition(':')[0]}"
