"""`docs/reference/traces.md` describes every column of a trace, and no other."""

from __future__ import annotations

import re
from pathlib import Path

import pyarrow as pa
import pytest

from pipeline.traces.schema import SCHEMA

PAGE = Path(__file__).resolve().parents[2] / "docs" / "reference" / "traces.md"


def rows() -> dict[str, str]:
    """Return the row of each column in the first table of the page."""
    table = PAGE.read_text().partition("| column | type | meaning |")[2].partition("\n\n")[0]
    lines = [line for line in table.splitlines() if line.startswith("| `")]
    return {name: line for line in lines for name in re.findall(r"`(\w+)`", line.split("|")[1])}


def test_every_column_has_a_row() -> None:
    assert sorted(rows()) == sorted(SCHEMA.names)


@pytest.mark.parametrize("column", [each.name for each in SCHEMA if "struct" in str(each.type)])
def test_every_field_of_a_record_is_named(column: str) -> None:
    fields = SCHEMA.field(column).type.value_type
    assert isinstance(fields, pa.StructType)
    described = set(re.findall(r"\w+", rows()[column].split("|")[3]))
    assert {each.name for each in fields} <= described
