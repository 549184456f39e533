"""What the tests of several packages share."""

from __future__ import annotations

import asyncio
import re
import sys
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

import polars as pl
import pyarrow.parquet as pq
import pytest
import yaml

from pipeline.config import conf_dir
from pipeline.traces.origin import KEY, ShardOrigin
from pipeline.types import Rejected

KGQA = [sys.executable, "-m", "pipeline.cli.main"]
"""The command in a process of its own."""

METHODS = tuple(sorted(file.stem for file in (conf_dir() / "method").glob("*.yaml")))
"""The choices of `method=`, so that a test of every method also has the newest one."""

PRESETS = tuple(sorted(file.stem for file in (conf_dir() / "experiment").glob("*.yaml") if file.stem != "none"))
"""The choices of `experiment=` that configure a method."""

LARGE = (pytest.mark.large, pytest.mark.timeout(0))
"""Marks of a size that takes longer than a test may."""

TIMES = ("llm_s", "kg_s", "wall_s", "critical_s", "critical_steps")
"""The columns of traces that depend on times."""

AS_RUN = (*TIMES, "steps", "texts", "trail", "llm_calls_shared", "kg_queries")
"""The columns about how a row was computed, not about its result: by times, and by which configuration made a call."""

_REPLY_LENGTH = re.compile(r"(?:.+_)?max_(?:new_)?tokens(?:_.+)?")

ORIGIN = ShardOrigin(run="a test", index=0, questions=())
"""For a shard that no run wrote."""


def each_method(quick: str) -> list[Any]:
    """Return all methods for `parametrize`: one for each `make test`, the others for `make test-all`."""
    return [quick, *(pytest.param(each, marks=pytest.mark.exhaustive) for each in METHODS if each != quick)]


def sampled(values: Iterable[Any], every: int = 4) -> list[Any]:
    """Return values for `parametrize`: one of `every` for each `make test`, the others for `make test-all`.

    A tuple is the values of several arguments.
    """
    rows = (value if isinstance(value, tuple) else (value,) for value in values)
    return [
        pytest.param(*row, marks=[] if number % every == 0 else pytest.mark.exhaustive)
        for number, row in enumerate(rows)
    ]


def short_replies(method: str, tokens: int) -> list[str]:
    """Return the words that choose a method and limit each of its replies, as a model that knows nothing writes."""
    keys = yaml.safe_load((conf_dir() / "method" / f"{method}.yaml").read_text("utf-8"))
    return [f"method={method}", *(f"method.{key}={tokens}" for key in keys if _REPLY_LENGTH.fullmatch(key))]


def run_file(configurations: int = 1) -> dict[str, Any]:
    """Return the contents of a `run.yaml` with as little as one may have."""
    config = {
        "run": {"limit": None, "seed": 0, "reuse": []},
        "engine": {"name": "local", "shard_size": 32},
        **{section: {} for section in ("llm", "dataset", "kg", "method", "evaluation")},
        "choices": {"method": "srp"},
    }
    return {
        "points": [{"overrides": [], "config": config} for _ in range(configurations)],
        "served": [{"model": "m", "label": None, "graph": "g"} for _ in range(configurations)],
    }


def rewrite_shard(shard: Path, rows: pl.DataFrame) -> None:
    """Write other rows to a shard, without checksums, as the same shard of the same run."""
    origin = (pq.read_metadata(shard).metadata or {})[KEY].decode()
    rows.write_parquet(shard, metadata={KEY.decode(): origin})


def refuse(row: Rejected) -> None:
    """For a dataset whose rows can all be read."""
    pytest.fail(f"rejected: {row}")


async def until(condition: Callable[[], object]) -> None:
    """Wait for something that is bound to happen."""
    async with asyncio.timeout(30):
        while not condition():  # noqa: ASYNC110
            await asyncio.sleep(0.001)
