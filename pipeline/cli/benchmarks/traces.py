"""The size of traces, and the time to aggregate a million steps with polars."""

from __future__ import annotations

import os
import tempfile
import time
from pathlib import Path

import polars as pl

from pipeline.cli.benchmarks.runs import run_method, run_steady

_STEPS = 1_000_000


def traces() -> dict[str, float]:
    """Bytes of trace per model call, lookups and decisions included, and seconds to aggregate a million steps."""
    with tempfile.TemporaryDirectory() as scratch:
        folder = Path(scratch)
        run_method(folder / "srp", ["method=srp", "llm=oracle", "dataset.questions=320"])
        run_steady(folder / "steady", ["llm=oracle", "dataset.questions=320"], calls=8)
        steps, seconds = _aggregate(folder / "srp" / "traces", folder / "many")
        return {
            "srp_bytes_per_call": _bytes_per_call(folder / "srp"),
            "steady_bytes_per_call": _bytes_per_call(folder / "steady"),
            "steps": steps,
            "aggregate_s": seconds,
        }


def _bytes_per_call(run: Path) -> float:
    size = sum(file.stat().st_size for file in (run / "traces").iterdir())
    calls: int = pl.scan_parquet(run / "traces" / "*.parquet").select(pl.col("llm_calls").sum()).collect().item()
    return size / calls


def _aggregate(source: Path, many: Path) -> tuple[int, float]:
    """Repeat the shards of a run until they hold a million steps, and time one aggregation over them."""
    shards = sorted(source.iterdir())
    each = pl.scan_parquet(source / "*.parquet").select(pl.col("steps").list.len().sum()).collect().item()
    many.mkdir()
    copies = -(-_STEPS // each)
    for copy in range(copies):
        for shard in shards:
            os.link(shard, many / f"{copy:05d}-{shard.name}")
    began = time.perf_counter()
    steps = pl.scan_parquet(many / "*.parquet").select("steps").explode("steps").unnest("steps")
    by_role = steps.group_by("kind", "role").agg(
        pl.len(),
        pl.col("prompt_tokens", "completion_tokens").sum(),
        pl.col("duration_s").mean(),
        pl.col("shared").sum(),
    )
    counted = int(by_role.collect()["len"].sum())
    return counted, time.perf_counter() - began
