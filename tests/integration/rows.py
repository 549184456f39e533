"""The rows of a run as two runs of the same questions have them in common: without times and without transport."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import polars as pl

from pipeline.traces.folder import RunFolder
from tests.support import TIMES

Rows = list[dict[str, Any]]

# Queries follow from which questions happen to wait for an answer together; a trail numbers the steps as they came.
INCOMPARABLE = [*TIMES, "kg_queries", "trail"]
INCOMPARABLE_OF_STEPS = {"start_s", "duration_s", "own_s", "queries", "endpoint", "shared"}


def read(run: Path) -> Rows:
    """The rows in the order of the questions, with the texts of each step inside the step."""
    rows = list(pl.read_parquet(RunFolder(run).traces).drop(INCOMPARABLE).iter_rows(named=True))
    for row in rows:
        row["steps"] = comparable(row["steps"], row.pop("texts"))
    return rows


def comparable(steps: list[dict[str, Any]], texts: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """What a method did: as it did it from a single topic entity, but sorted where it went on from several at once."""
    keys = [step["key"] for step in steps]
    done = []
    for step, text in zip(steps, texts, strict=True):
        kept = {name: value for name, value in (step | text).items() if name not in INCOMPARABLE_OF_STEPS}
        parent = kept.pop("parent")
        done.append(kept | {"parent": None if parent is None else keys[parent]})
    if sum(step["role"] == "relations_selected" for step in done) < 2:
        return done
    return sorted(({**step, "index": None} for step in done), key=lambda step: json.dumps(step, sort_keys=True))
