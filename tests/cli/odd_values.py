"""Changes a value in a file of a run folder: the file stays well formed, and its checksums hold."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from random import Random
from typing import Any

import orjson
import polars as pl
import yaml

from tests.support import rewrite_shard

VALUES: tuple[Any, ...] = (
    *(None, True, False, 0, -1, 2**31, 2**63 - 1, 1.5, float("nan"), float("inf"), -1e300),
    *("", "x", "a\nb", "../../x", "\x00", "${oc.env:HOME}", "9" * 400, "2020-01-01", "<script>"),
    *([], [None], [[]], [1, "a"], {}, {"a": 1}, {"": {}}, [{"a": []}]),
)
TEXTS = (None, "", "x", "\x00", "NaN", "[]", "{}", "[1]", '{"a": 1}', "null", "[[[", '{"sampling": 1}', "failed")
NUMBERS = (None, -1, 0, 1, 7, 2**31 - 1, -(2**31))
FRACTIONS = (None, -1.0, 0.0, 1.0, 5.0, float("nan"), float("inf"), 1e38)


def change_value(path: Path, chance: Random) -> None:
    """Replace or remove one value, at any depth of a YAML, JSON or Parquet file."""
    match path.suffix:
        case ".yaml":
            path.write_text(yaml.safe_dump(_changed(yaml.safe_load(path.read_text()), chance)))
        case ".json":
            content = json.loads(path.read_text())
            content.pop("digest", None)
            path.write_text(json.dumps(_changed(content, chance)))
        case ".jsonl":
            lines = path.read_bytes().splitlines()
            at = chance.randrange(len(lines))
            lines[at] = json.dumps(_changed(orjson.loads(lines[at]), chance)).encode()
            path.write_bytes(b"\n".join(lines) + b"\n")
        case ".parquet":
            rewrite_shard(path, _changed_rows(pl.read_parquet(path), chance))


def _places(value: Any) -> Iterator[tuple[Any, Any]]:
    """Yield each dictionary or list with each of its keys or positions."""
    if isinstance(value, (dict, list)):
        for key in list(value) if isinstance(value, dict) else range(len(value)):
            yield value, key
            yield from _places(value[key])


def _changed(content: Any, chance: Random) -> Any:
    if places := list(_places(content)):
        inside, key = chance.choice(places)
        if chance.random() < 0.2:
            del inside[key]
        else:
            inside[key] = chance.choice(VALUES)
    return content


def _changed_rows(rows: pl.DataFrame, chance: Random) -> pl.DataFrame:
    match chance.randrange(12):
        case 0:
            return rows.drop(chance.choice(rows.columns))
        case 1:
            return chance.choice([rows.clear(), pl.concat([rows, rows])])
    name = chance.choice([*rows.columns, "steps", "texts", "steps", "texts"])
    values = rows[name].to_list()
    at = chance.randrange(len(values))
    values[at] = _changed_cell(values[at], rows.schema[name], chance)
    return rows.with_columns(pl.Series(name, values, rows.schema[name]))


def _changed_cell(value: Any, type: pl.DataType, chance: Random) -> Any:
    if isinstance(type, pl.List) and value and chance.random() < 0.85:
        at = chance.randrange(len(value))
        return [*value[:at], _changed_cell(value[at], type.inner, chance), *value[at + 1 :]]  # type: ignore[arg-type]
    if isinstance(type, pl.Struct) and value and chance.random() < 0.95:
        field = chance.choice(type.fields)
        return {**value, field.name: _changed_cell(value[field.name], field.dtype, chance)}  # type: ignore[arg-type]
    if isinstance(type, (pl.List, pl.Struct)):
        return chance.choice([None, []]) if isinstance(type, pl.List) else None
    if type == pl.Boolean:
        return chance.choice([None, True, False])
    return chance.choice(TEXTS if type == pl.String else FRACTIONS if type.is_float() else NUMBERS)
