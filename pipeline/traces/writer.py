"""Writes a finished shard as one Parquet file, atomically."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import fields
from functools import cache
from operator import attrgetter
from typing import Any

import orjson
import polars as pl
import pyarrow as pa

from pipeline.datasets.query_shapes import gold_relations
from pipeline.datasets.query_types import query_type
from pipeline.traces.origin import ShardOrigin
from pipeline.traces.schema import FACT_TYPE, SCHEMA, STEP_TYPE, TEXT_TYPE, TRAIL_TYPE, Counters, TraceRow
from pipeline.traces.shard_file import ShardFile, write_table
from pipeline.traces.storage import StoragePath, read_whole
from pipeline.traces.trail import gold_paths_of, print_edge
from pipeline.types import Answer, Gold, Node, Question

_MOST_HOPS = 1 << 31
"""The column holds only smaller numbers of hops; any other value is only in `meta`."""


def write_shard(path: StoragePath, rows: Sequence[TraceRow], origin: ShardOrigin) -> None:
    """Write the rows to `path`: the file is complete or absent. Raises StorageError."""
    write_table(path, to_table(rows), origin)


def replace_columns(path: StoragePath, columns: Mapping[str, Sequence[Any]], origin: ShardOrigin) -> None:
    """Write a shard again with new values in some of its columns. Raises StorageError.

    Columns that an older version did not have are null, unless they are among the new ones.
    """
    table = ShardFile(path, read_whole(path)).table(SCHEMA.names)
    changed = {name: _array(values, SCHEMA.field(name).type) for name, values in columns.items()}
    write_table(path, pa.table({**{name: table[name] for name in SCHEMA.names}, **changed}, schema=SCHEMA), origin)


def to_table(rows: Sequence[TraceRow]) -> pa.Table:
    """Convert rows to the columns of `SCHEMA`, including the nested ones."""
    columns: dict[str, Any] = {
        "point": [row.configuration for row in rows],
        "method": [row.method for row in rows],
        "error": [row.error for row in rows],
        **_question_columns(rows),
        **_answer_columns(rows),
        **_attributes("scores", rows[0].scores, rows),
        **_attributes("counters", Counters(), rows),
    }
    nested = {
        "evidence": _nested([list(_facts(row.answer)) for row in rows], FACT_TYPE),
        "trail": _nested([row.trail for row in rows], TRAIL_TYPE),
        "steps": _nested([list(map(_step_values, row.steps)) for row in rows], STEP_TYPE),
        "texts": _nested([list(map(_step_texts, row.steps)) for row in rows], TEXT_TYPE),
    }
    plain = {name: _array(values, SCHEMA.field(name).type) for name, values in columns.items()}
    return pa.table(plain | nested, schema=SCHEMA)


def _array(values: Sequence[Any], type: pa.DataType) -> pa.Array:
    """Convert values by polars: `pa.array` imports pandas if it is installed, which takes 0.4 s in each process."""
    return pl.Series(values=values, dtype=_polars_type(type)).to_arrow().cast(type)


@cache
def _polars_type(type: pa.DataType) -> pl.DataType:
    series = pl.from_arrow(pa.nulls(0, type))
    assert isinstance(series, pl.Series)
    return series.dtype


def _question_columns(rows: Sequence[TraceRow]) -> dict[str, list[Any]]:
    questions = [row.example.question for row in rows]
    return {
        "question_id": [question.id for question in questions],
        "dataset": [question.dataset for question in questions],
        "split": [question.split for question in questions],
        "question": [question.text for question in questions],
        **label_columns(questions),
    }


def label_columns(questions: Sequence[Question]) -> dict[str, list[Any]]:
    """Return the columns with the labels of questions, and with all fields of their `meta`."""
    hops = [question.meta.get("hops") for question in questions]
    return {
        "type": [_text(question.meta.get("type")) for question in questions],
        "level": [_text(question.meta.get("level")) for question in questions],
        "hops": [hop if type(hop) is int and 0 <= hop < _MOST_HOPS else None for hop in hops],
        "meta": [orjson.dumps(dict(question.meta)).decode() for question in questions],
    }


def _answer_columns(rows: Sequence[TraceRow]) -> dict[str, list[Any]]:
    initial = [row.answer.initial for row in rows]
    return {
        "status": [row.answer.status for row in rows],
        "answers": [[p.text for p in row.answer.predictions] for row in rows],
        "answer_ids": [[p.id for p in row.answer.predictions] for row in rows],
        "initial_answers": [None if own is None else [p.text for p in own] for own in initial],
        "initial_answer_ids": [None if own is None else [p.id for p in own] for own in initial],
        "first_attempt": [row.answer.first_attempt for row in rows],
        "raw_answer": [row.answer.raw for row in rows],
        "followed_relations": [row.followed for row in rows],
        "critical_steps": [row.critical_steps for row in rows],
        "topic_entities": [[topic.id for topic in row.example.question.topic_entities] for row in rows],
        **gold_columns([row.example.gold for row in rows]),
    }


def gold_columns(golds: Sequence[Gold]) -> dict[str, list[Any]]:
    """Return the columns with the gold answers of rows, and with the types and the relations of their gold queries."""
    return {
        "query_type": [gold.sparql and query_type(gold.sparql) for gold in golds],
        "gold_relations": [gold_relations(gold.sparql) for gold in golds],
        "gold_paths": [
            [{"topic": path.topic, "relations": list(map(print_edge, path.relations))} for path in gold_paths_of(gold)]
            for gold in golds
        ],
        "gold": [[answer.name for answer in gold.answers] for gold in golds],
        "gold_ids": [[answer.id for answer in gold.answers] for gold in golds],
        "gold_aliases": [[list(answer.aliases) for answer in gold.answers] for gold in golds],
    }


def _attributes(part: str, example: Any, rows: Sequence[TraceRow]) -> dict[str, list[Any]]:
    """Return one column per field of the dataclass that the rows hold under `part`."""
    names = [f.name for f in fields(example)]
    return {name: [getattr(getattr(row, part), name) for row in rows] for name in names}


_step_values = attrgetter(*(f.name for f in STEP_TYPE))
_step_texts = attrgetter(*(f.name for f in TEXT_TYPE))


def _facts(answer: Answer) -> Iterable[tuple[Any, ...]]:
    for index, chain in enumerate(answer.evidence):
        for fact in chain:
            yield index, *_node_texts(fact.head, answer), fact.relation, *_node_texts(fact.tail, answer)


def _node_texts(node: Node, answer: Answer) -> tuple[str, str | None]:
    """Return the id and the name of an entity; for a literal its text as both."""
    return (node, answer.names.get(node)) if isinstance(node, str) else (node.value, node.value)


def _nested(groups: Sequence[Sequence[Sequence[Any]]], type: pa.StructType) -> pa.ListArray:
    """Build a list<struct> column from its columns, which is many times faster than from dictionaries."""
    offsets = [0]
    for group in groups:
        offsets.append(offsets[-1] + len(group))
    flat: list[Sequence[Any]] = [values for group in groups for values in group]
    columns = list(zip(*flat, strict=True)) if flat else [() for _ in type]
    arrays = [_array(column, f.type) for column, f in zip(columns, type, strict=True)]
    return pa.ListArray.from_arrays(_array(offsets, pa.int32()), pa.StructArray.from_arrays(arrays, fields=list(type)))


def _text(value: object) -> str | None:
    return None if value is None else str(value)
