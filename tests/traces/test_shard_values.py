"""A shard whose values no run writes is one sentence, whoever made its checksums."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from shutil import copytree
from typing import Any

import polars as pl
import pytest

from pipeline.cli.main import main
from pipeline.errors import UserError
from pipeline.traces.folder import RunFolder
from pipeline.traces.reader import read_shards, scan_shards
from pipeline.traces.schema import SCHEMA
from tests.support import rewrite_shard

WORLD = ("dataset.triples=2000", "run.limit=4", "evaluation.bootstrap_resamples=100")
Change = Callable[[pl.DataFrame], pl.DataFrame]


@pytest.fixture(scope="module")
def finished(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("finished") / "run"
    assert main(["evaluate", *WORLD, "llm=oracle", f"run.dir={folder}"]) == 0
    return folder


@pytest.fixture
def copied(finished: Path, tmp_path: Path) -> Path:
    return Path(copytree(finished, tmp_path / "run"))


def column(name: str, value: Any) -> Change:
    """Put a value into every row."""
    return lambda rows: rows.with_columns(pl.Series(name, [value] * rows.height, rows.schema[name]))


def inside(name: str, field: str, value: Any) -> Change:
    """Put a value into every record of a column."""

    def change(rows: pl.DataFrame) -> pl.DataFrame:
        changed = [[{**record, field: value} for record in records] for records in rows[name].to_list()]
        return rows.with_columns(pl.Series(name, changed, rows.schema[name]))

    return change


IMPOSSIBLE: Mapping[str, tuple[Change, str]] = {
    "no rows": (lambda rows: rows.clear(), "it has no rows"),
    "a question twice": (lambda rows: pl.concat([rows, rows]), "two rows of one question"),
    "no id": (column("question_id", None), "its column question_id has values that no run writes"),
    "no answers": (column("answers", None), "answers"),
    "an answer of null": (column("answers", [None]), "answers"),
    "answers without ids": (column("answer_ids", []), "answer_ids"),
    "gold answers without aliases": (column("gold_aliases", []), "gold_aliases"),
    "an alias of null": (column("gold_aliases", [[None]]), "gold_aliases"),
    "a score of NaN": (column("hits_at_1", float("nan")), "hits_at_1"),
    "a score above 1": (column("f1", 5.0), "f1"),
    "a negative score": (column("f1", -1.0), "f1"),
    "an infinite score": (column("compat_rog_f1", float("inf")), "compat_rog_f1"),
    "endless seconds": (column("wall_s", float("inf")), "wall_s"),
    "a negative count": (column("llm_calls", -1), "llm_calls"),
    "a negative configuration": (column("point", -1), "point"),
    "meta that is no JSON": (column("meta", "{"), "meta"),
    "meta that is a list": (column("meta", "[]"), "meta"),
    "a step without a role": (inside("steps", "role", None), r"steps\.role"),
    "a step of null": (column("steps", [None]), "steps"),
    "sampling that is no JSON": (inside("steps", "sampling", "x"), r"steps\.sampling"),
    "sampling without choices": (inside("steps", "sampling", '{"sampling": {}}'), r"steps\.sampling"),
    "inputs that are numbers": (inside("texts", "inputs", '{"question": 1}'), r"texts\.inputs"),
    "a payload that is a list": (inside("texts", "payload", "[]"), r"texts\.payload"),
    "steps without texts": (column("texts", []), "texts"),
    "a fact without a head": (inside("evidence", "head", None), r"evidence\.head"),
}


@pytest.mark.parametrize("name", IMPOSSIBLE)
def test_values_that_no_run_writes_are_one_sentence(name: str, copied: Path) -> None:
    change, reason = IMPOSSIBLE[name]
    shard = copied / "traces/shard-00000.parquet"
    rewrite_shard(shard, change(pl.read_parquet(shard)))
    with pytest.raises(UserError, match=rf"shard-00000\.parquet cannot be read as a shard \(.*{reason}"):
        list(read_shards(RunFolder(copied), SCHEMA.names))


def test_a_shard_without_a_column_is_one_sentence(copied: Path) -> None:
    shard = copied / "traces/shard-00000.parquet"
    rewrite_shard(shard, pl.read_parquet(shard).drop("recall"))
    with pytest.raises(UserError, match=r"shard-00000\.parquet was written by another version"):
        scan_shards(RunFolder(copied), [0]).collect()
