"""Scores a finished shard again, without a model call, after gold answers or labels of questions have changed."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Any

import polars as pl

from pipeline.evaluation.config import ScoringConfig
from pipeline.evaluation.rescore import INPUTS, SCORES, rescore
from pipeline.traces.folder import RunFolder
from pipeline.traces.origin import ShardOrigin
from pipeline.traces.reader import read_shards
from pipeline.traces.writer import gold_columns, label_columns, replace_columns
from pipeline.types import Example


def renew_rows(folder: RunFolder, origin: ShardOrigin, examples: Iterable[Example], scoring: ScoringConfig) -> None:
    """Store the new gold answers and labels of some questions of a shard, and compute the scores of its rows again.

    Raises StorageError.
    """
    changed = {example.question.id: example for example in examples}
    before = {each.id: each for each in origin.questions}
    after = {id: before[id].scored_again(example) for id, example in changed.items()}
    labels = label_columns([example.question for example in changed.values()])
    regraded = {id: example.gold for id, example in changed.items() if before[id].gold != after[id].gold}
    gold = gold_columns(list(regraded.values()))
    (rows,) = read_shards(folder, list(dict.fromkeys(["question_id", *INPUTS, *labels, *gold])), indices=[origin.index])
    columns = {**_replaced(rows, labels, changed), **_replaced(rows, gold, regraded)}
    rows = rows.with_columns(pl.Series(name, values, rows.schema[name]) for name, values in columns.items())
    columns |= rescore(rows, scoring=scoring).select(SCORES).to_dict(as_series=False)
    digests = tuple(after.get(each.id, each) for each in origin.questions)
    replace_columns(folder.shard(origin.index), columns, replace(origin, questions=digests))


def _replaced(
    rows: pl.DataFrame, columns: Mapping[str, Sequence[Any]], questions: Collection[str]
) -> dict[str, list[Any]]:
    """Return columns of the rows with new values for some questions: `columns` has one value for each of these."""
    replaced: dict[str, list[Any]] = {}
    for name, values in columns.items():
        new = dict(zip(questions, values, strict=True))
        replaced[name] = [new.get(id, old) for id, old in zip(rows["question_id"], rows[name].to_list(), strict=True)]
    return replaced
