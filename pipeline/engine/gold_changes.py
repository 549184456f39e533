"""Scores a finished shard again, without a model call, after gold answers have changed."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from typing import Any

import polars as pl

from pipeline.evaluation.config import ScoringConfig
from pipeline.evaluation.rescore import INPUTS, SCORES, rescore
from pipeline.traces.folder import RunFolder
from pipeline.traces.origin import ShardOrigin
from pipeline.traces.reader import read_shards
from pipeline.traces.writer import gold_columns, replace_columns
from pipeline.types import Example


def replace_gold(folder: RunFolder, origin: ShardOrigin, examples: Iterable[Example], scoring: ScoringConfig) -> None:
    """Store the new gold answers of some questions of a shard, and compute the scores of its rows again.

    Raises StorageError.
    """
    changed = {example.question.id: example for example in examples}
    (rows,) = read_shards(folder, ["question_id", *INPUTS, "gold_paths", "trail"], indices=[origin.index])
    columns = _with_gold(rows, changed)
    rows = rows.with_columns(pl.Series(name, values, rows.schema[name]) for name, values in columns.items())
    columns |= rescore(rows, scoring=scoring).select(SCORES).to_dict(as_series=False)
    digests = (each.scored_again(changed[each.id]) if each.id in changed else each for each in origin.questions)
    replace_columns(folder.shard(origin.index), columns, replace(origin, questions=tuple(digests)))


def _with_gold(rows: pl.DataFrame, changed: dict[str, Example]) -> dict[str, list[Any]]:
    """Return the columns of gold answers with those of the changed questions replaced, and without their trails."""
    columns: dict[str, list[Any]] = {}
    replaced = {**gold_columns([example.gold for example in changed.values()]), "trail": [None] * len(changed)}
    for name, values in replaced.items():
        new = dict(zip(changed, values, strict=True))
        columns[name] = [new.get(id, old) for id, old in zip(rows["question_id"], rows[name].to_list(), strict=True)]
    return columns
