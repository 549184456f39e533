"""Measures the workload of questions from finished runs: calls, rounds of calls, tokens and graph lookups."""

from __future__ import annotations

import codecs
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from math import inf
from pathlib import Path
from typing import Any, NamedTuple, TypeAlias

import orjson
import polars as pl

from pipeline.errors import UserError
from pipeline.traces.folder import RunFolder
from pipeline.traces.reader import read_shards
from pipeline.traces.storage import StoragePath

PROJECT_WORKLOADS = Path(__file__).with_name("workload.json")
"""Workloads of the oracle's runs over the real data; `docs/scale.md` describes them."""
_TRUNCATED_QUERY = r"… (\d+) in all$"
"""The end of a recorded lookup whose list of entities was truncated: the number of all entities."""


class QuestionWorkload(NamedTuple):
    """The workload of one question."""

    calls: int
    rounds: int
    """The longest sequence of calls that did not overlap; calls of one round run concurrently."""
    prompt_tokens: int
    completion_tokens: int
    entities: int
    """Entities looked up in the graph; cached lookups are not counted."""


Workloads: TypeAlias = Mapping[str, Mapping[str, Sequence[QuestionWorkload]]]
"""Dataset → method → its questions."""


def read_workloads(file: Path) -> Workloads:
    """Read saved workloads. Raises UserError for a file that is missing or has another format."""
    try:
        saved = orjson.loads(file.read_bytes().removeprefix(codecs.BOM_UTF8))
        return {
            dataset: {method: [QuestionWorkload(*row) for row in rows] for method, rows in methods.items()}
            for dataset, methods in saved.items()
        }
    except OSError as error:
        raise UserError(f"{file} cannot be read: {error.strerror}") from None
    except (orjson.JSONDecodeError, AttributeError, TypeError):
        raise UserError(f"{file} holds no workloads: write such a file with kgqa capacity RUN … save={file}") from None


def save_workloads(workloads: Workloads, file: Path) -> None:
    """Write workloads for `read_workloads`."""
    file.write_bytes(orjson.dumps(workloads, default=list) + b"\n")


def measure_workloads(runs: Sequence[StoragePath], tick: Callable[[], None] = lambda: None) -> Workloads:
    """Measure the workloads of finished runs. `tick` is called after each shard."""
    found: dict[str, dict[str, list[QuestionWorkload]]] = {}
    for run in runs:
        columns = ("question_id", "dataset", "method", "point", "steps", "texts")
        for rows in read_shards(RunFolder(run), columns):
            for (dataset, method), row in _question_workloads(rows):
                found.setdefault(dataset, {}).setdefault(method, []).append(row)
            tick()
    return found


def _question_workloads(rows: pl.DataFrame) -> list[tuple[tuple[str, str], QuestionWorkload]]:
    """Return dataset, method and workload of each row of the traces."""
    keys = ["point", "question_id"]
    steps = rows.select(*keys, "steps", "texts").explode("steps", "texts").unnest("steps", "texts")
    calls = steps.filter(pl.col("kind") == "llm", pl.col("prompt_tokens").is_not_null())
    lookups = steps.filter(pl.col("kind") == "kg", pl.col("shared").not_())
    listed = pl.col("query").str.count_matches("\n") + 1
    entities = pl.coalesce(pl.col("query").str.extract(_TRUNCATED_QUERY).cast(pl.UInt32), listed)
    table = (
        rows.select("dataset", "method", *keys)
        .join(calls.group_by(keys).agg(pl.len(), pl.col("prompt_tokens", "completion_tokens").sum()), keys, "left")
        .join(lookups.group_by(keys).agg(entities.sum().alias("entities")), keys, "left")
        .fill_null(0)
    )
    spans = calls.select(*keys, "start_s", end_s=pl.col("start_s") + pl.col("duration_s"))
    rounds = _rounds(spans)
    return [
        (
            (row["dataset"], row["method"]),
            QuestionWorkload(
                row["len"],
                rounds[row["point"], row["question_id"]],
                row["prompt_tokens"],
                row["completion_tokens"],
                row["entities"],
            ),
        )
        for row in table.iter_rows(named=True)
    ]


def _rounds(calls: pl.DataFrame) -> Counter[tuple[int, str]]:
    """Return the largest number of calls that do not overlap, for each question of each configuration."""
    rounds, free_at = Counter[tuple[int, str]](), dict[tuple[int, str], float]()
    for point, question, start, end in calls.sort("end_s").iter_rows():
        if start >= free_at.get((point, question), -inf):
            rounds[point, question] += 1
            free_at[point, question] = end
    return rounds


def mean_workload(rows: Sequence[QuestionWorkload]) -> dict[str, Any]:
    """Return the mean of each field."""
    return {name: sum(row[index] for row in rows) / len(rows) for index, name in enumerate(QuestionWorkload._fields)}
