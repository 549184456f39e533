"""What questions ask of a cluster, as finished runs tell: calls, in how many rounds, tokens, and graph lookups."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple, TypeAlias

import orjson
import polars as pl

from pipeline.errors import UserError
from pipeline.traces.folder import RunFolder
from pipeline.traces.reader import read_shards

OWN = Path(__file__).with_name("demand.json")
"""What the oracle's runs over the real data asked; `docs/scale.md` says how they were made."""
_IN_ALL = r"… (\d+) in all$"


class Demand(NamedTuple):
    """One question."""

    calls: int
    rounds: int
    """Calls that had to wait for one another: those of a round are under way together."""
    prompt_tokens: int
    completion_tokens: int
    entities: int
    """Looked up in the graph, those that were remembered left out."""


Demands: TypeAlias = Mapping[str, Mapping[str, Sequence[Demand]]]
"""By dataset and method."""


def read(file: Path) -> Demands:
    """Demands that were saved. Raises UserError."""
    try:
        saved = orjson.loads(file.read_bytes())
        return {
            dataset: {method: [Demand(*row) for row in rows] for method, rows in methods.items()}
            for dataset, methods in saved.items()
        }
    except OSError as error:
        raise UserError(f"{file} cannot be read: {error.strerror}") from None
    except (orjson.JSONDecodeError, AttributeError, TypeError):
        raise UserError(f"{file} holds no demands: make one with kgqa simulate RUN … save={file}") from None


def save(demands: Demands, file: Path) -> None:
    """Write demands for `read`."""
    file.write_bytes(orjson.dumps(demands, default=list) + b"\n")


def of_runs(runs: Sequence[Path], datasets: Sequence[str]) -> Demands:
    """The demands of finished runs; a dataset in parts (metaqa-1hop, …) is known by one of these names."""
    found: dict[str, dict[str, list[Demand]]] = {}
    for run in runs:
        columns = ("question_id", "dataset", "method", "point", "steps", "texts")
        for rows in read_shards(RunFolder(run), columns):
            for (dataset, method), row in _demands(rows):
                name = next((known for known in datasets if dataset.startswith(known)), dataset)
                found.setdefault(name, {}).setdefault(method, []).append(row)
    return found


def _demands(rows: pl.DataFrame) -> list[tuple[tuple[str, str], Demand]]:
    keys = ["point", "question_id"]
    steps = rows.select(*keys, "steps", "texts").explode("steps", "texts").unnest("steps", "texts")
    calls = steps.filter(pl.col("kind") == "llm", pl.col("prompt_tokens").is_not_null())
    asked = steps.filter(pl.col("kind") == "kg", pl.col("shared").not_())
    listed = pl.col("query").str.count_matches("\n") + 1
    entities = pl.coalesce(pl.col("query").str.extract(_IN_ALL).cast(pl.UInt32), listed)
    table = (
        rows.select("dataset", "method", *keys)
        .join(calls.group_by(keys).agg(pl.len(), pl.col("prompt_tokens", "completion_tokens").sum()), keys, "left")
        .join(asked.group_by(keys).agg(entities.sum().alias("entities")), keys, "left")
        .fill_null(0)
    )
    spans = calls.select(*keys, "start_s", end_s=pl.col("start_s") + pl.col("duration_s"))
    rounds = {key: _rounds(of_one) for key, of_one in spans.partition_by(keys, as_dict=True).items()}
    return [
        (
            (row["dataset"], row["method"]),
            Demand(
                row["len"],
                rounds.get((row["point"], row["question_id"]), 0),
                row["prompt_tokens"],
                row["completion_tokens"],
                row["entities"],
            ),
        )
        for row in table.iter_rows(named=True)
    ]


def _rounds(calls: pl.DataFrame) -> int:
    """The most calls of which none overlaps another."""
    rounds, free = 0, float("-inf")
    for start, end in calls.sort("end_s").select("start_s", "end_s").iter_rows():
        if start >= free:
            rounds, free = rounds + 1, end
    return rounds


def mean(rows: Sequence[Demand]) -> dict[str, Any]:
    """The average question."""
    return {name: sum(row[place] for row in rows) / len(rows) for place, name in enumerate(Demand._fields)}
