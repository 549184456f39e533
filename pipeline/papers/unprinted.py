"""Reads the tables and figures of the papers whose numbers we do not have, from `unprinted.yaml`."""

from __future__ import annotations

from functools import cache
from pathlib import Path
from typing import Annotated, Self

from pydantic import Field, TypeAdapter, model_validator

from pipeline.papers.published import Part
from pipeline.text import load_yaml

_FILE = Path(__file__).with_name("unprinted.yaml")


class UnprintedRow(Part):
    """A row, with the command that runs it or the reason why none does."""

    row: str
    run: str | None = None
    reason: str | None = None

    @model_validator(mode="after")
    def _check(self) -> Self:
        if (self.run is None) == (self.reason is None):
            raise ValueError(f"{self.row} needs either a command or a reason")
        return self


class UnprintedTable(Part):
    """A table or a figure of a paper."""

    paper: str
    table: str
    known: str
    """Why there is no number to stand beside ours."""
    rows: Annotated[list[UnprintedRow], Field(min_length=1)]


@cache
def unprinted_tables() -> tuple[UnprintedTable, ...]:
    """Return the tables in the order of the file."""
    return tuple(TypeAdapter(list[UnprintedTable]).validate_python(load_yaml(_FILE.read_text(encoding="utf-8"))))
