"""Checks the values in a shard: its columns could hold others, which no run writes.

A file with good checksums may come from anybody. What reads a shard need not expect a missing answer, an endless number
of seconds, or a text where JSON should be.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import fields
from typing import Any

import orjson
import polars as pl

from pipeline.traces.schema import ADDED
from pipeline.types import Scores

_SCORES = frozenset(score.name for score in fields(Scores))
_UNLIMITED = frozenset({"compat_rog_f1", "compat_rog_precision"})
"""Scores that may exceed 1."""
_NEVER_NULL_IN: Mapping[str, frozenset[str]] = {
    "steps": frozenset({"index", "kind", "role", "start_s", "duration_s", "shared"}),
    "evidence": frozenset({"chain", "head", "relation", "tail"}),
    "gold_paths": frozenset({"topic", "relations"}),
    "trail": frozenset({"step", "event"}),
    "texts": frozenset[str](),
}
"""The columns with lists of records, and the fields of a record that are never null."""
_MAY_BE_NULL = _SCORES | ADDED | {"error", "type", "level", "hops", "initial_answers", "initial_answer_ids"}
_HOLD_NULL = frozenset({"answer_ids", "initial_answer_ids", "gold_ids"})
"""Lists whose elements may be null."""
_PARALLEL = (
    ("steps", "texts"),
    ("answers", "answer_ids"),
    ("initial_answers", "initial_answer_ids"),
    ("gold", "gold_ids"),
    ("gold", "gold_aliases"),
)
"""Lists with one element each for the same thing."""
_READ_PAST = frozenset({"steps.prompt_tokens", "steps.completion_tokens"})
"""Parts of a model's reply. Older versions wrote some that are impossible: such a call counts as not made."""


def check_values(rows: pl.DataFrame) -> None:
    """Raise ValueError naming the first column with a value that no run writes."""
    if rows.is_empty():
        raise ValueError("it has no rows")
    for column in rows.get_columns():
        if column.null_count() and column.name not in _MAY_BE_NULL:
            raise _impossible(column.name)
        if column.name in _NEVER_NULL_IN:
            _check_records(column)
        elif isinstance(column.dtype, pl.List):
            _check_texts(column)
        else:
            _check_scalars(column, column.name)
    for one, other in _PARALLEL:
        if {one, other} <= set(rows.columns) and not rows[one].list.len().eq_missing(rows[other].list.len()).all():
            raise _impossible(other)
    if {"point", "question_id"} <= set(rows.columns) and rows.select("point", "question_id").is_duplicated().any():
        raise ValueError("it has two rows of one question in one configuration")


def _check_texts(column: pl.Series) -> None:
    texts = _elements(column)
    if texts.null_count() and column.name not in _HOLD_NULL:
        raise _impossible(column.name)
    if isinstance(texts.dtype, pl.List) and _elements(texts).null_count():
        raise _impossible(column.name)


def _check_records(column: pl.Series) -> None:
    records = _elements(column)
    if records.null_count():
        raise _impossible(column.name)
    for values in records.struct.unnest().get_columns():
        name = f"{column.name}.{values.name}"
        if values.null_count() and values.name in _NEVER_NULL_IN[column.name]:
            raise _impossible(name)
        _check_scalars(values, name)


def _elements(column: pl.Series) -> pl.Series:
    return column.filter(column.list.len() > 0).explode()


def _check_scalars(values: pl.Series, name: str) -> None:
    """Check numbers, and texts of JSON."""
    possible: pl.Series | None = None
    if values.dtype.is_float():
        possible = values.is_finite()
    elif values.dtype.is_integer() and name not in _READ_PAST:
        possible = values >= 0
    if name in _SCORES and name not in _UNLIMITED:
        possible = values.is_between(0, 1)
    if possible is not None and not possible.all():
        raise _impossible(name)
    if (is_written := _JSON.get(name)) and not all(map(is_written, values.drop_nulls().unique())):
        raise _impossible(name)


def _impossible(name: str) -> ValueError:
    return ValueError(f"its column {name} has values that no run writes")


def _is_object(text: str) -> bool:
    return isinstance(_parsed(text), dict)


def _is_object_of_texts(text: str) -> bool:
    parsed = _parsed(text)
    return isinstance(parsed, dict) and all(isinstance(value, str) for value in parsed.values())


def _is_sampling(text: str) -> bool:
    match _parsed(text):
        case {"sampling": dict(), "choices": list()}:
            return True
    return False


def _parsed(text: str) -> Any:
    try:
        return orjson.loads(text)
    except orjson.JSONDecodeError:
        return None


_JSON: Mapping[str, Callable[[str], bool]] = {
    "meta": _is_object,
    "steps.sampling": _is_sampling,
    "texts.inputs": _is_object_of_texts,
    "texts.payload": _is_object,
}
