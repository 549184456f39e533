"""Seconds of the viewer's pages, and memory of its server, on a generated run of a million questions."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from urllib.parse import urlencode
from urllib.request import urlopen

import orjson
import polars as pl

from pipeline.cli.benchmarks.runs import peak_mib, run_method
from pipeline.traces.folder import RunFolder
from pipeline.traces.reader import open_shards
from pipeline.traces.schema import SCHEMA
from pipeline.traces.shard_file import ShardFile, write_table

_METHODS = ("srp", "tog", "rog", "rag", "cot")
_ERROR_RATES = (0.3, 0.5)
"""Of the simulated model, for each method: ten configurations."""
_QUESTIONS = 100
"""Questions of one shard."""
_SHARDS = 1_000
_WRITERS = 8
_ROUNDS = 5
"""Requests of each kind; the slowest counts."""


def viewer(shards: int = _SHARDS) -> dict[str, float]:
    """Seconds of the slowest of five requests of each kind, and the server's peak memory (MiB), at a million questions.

    The questions are 100,000 in each of ten configurations. Their traces are copies of those of 100 questions that the
    methods answered, with ids and texts of their own. `index_s` is spent once per run.
    """
    with tempfile.TemporaryDirectory() as scratch:
        folder = Path(scratch)
        generate(folder / "small", folder / "run", shards)
        began = time.perf_counter()
        with _served(folder) as (address, _):
            _wait_for_the_table(address, 10 * _QUESTIONS * shards)
            index_s = time.perf_counter() - began
        began = time.perf_counter()
        with _served(folder) as (address, server):
            rows = _get_json(f"{address}state")["rows"]
            opening_s = time.perf_counter() - began
            figures = measure(address, rows)
            peak = peak_mib(server)
    return {"questions": rows, "index_s": index_s, "opening_s": opening_s, **figures, "peak_mib": peak}


def generate(small: Path, run: Path, shards: int) -> None:
    """Let the methods answer the questions of one shard, in ten configurations, and write copies of it as a run."""
    world = ["llm=oracle", "dataset.triples=2000", f"run.limit={_QUESTIONS}"]
    common = [*world, f"engine.shard_size={_QUESTIONS}", "evaluation.bootstrap_resamples=100"]
    own = ([f"method={method}", f"llm.error_rate={rate}"] for method in _METHODS for rate in _ERROR_RATES)
    run_method(small, *([*common, *words] for words in own))
    shutil.copytree(small, run, ignore=shutil.ignore_patterns("traces", "lock"))
    (run / "traces").mkdir()
    ((_, shard),) = open_shards(RunFolder(small))
    rows = shard.frame(SCHEMA.names)
    with ThreadPoolExecutor(_WRITERS) as pool:
        written = pool.map(lambda index: _write_copy(RunFolder(run), shard, rows, index), range(shards))
        tenths = _Tenths("shards written", shards)
        for number, _ in enumerate(written, start=1):
            tenths.show(number)


def _write_copy(run: RunFolder, shard: ShardFile, rows: pl.DataFrame, index: int) -> None:
    copied = rows.with_columns(
        (pl.col("question_id") + f"-{index}").alias("question_id"),
        (pl.col("question") + f" (copy {index})").alias("question"),
    )
    assert shard.origin is not None
    write_table(run.shard(index), copied.to_arrow().cast(SCHEMA), replace(shard.origin, index=index))


def _wait_for_the_table(address: str, questions: int) -> None:
    """Wait until the server has read all questions."""
    tenths = _Tenths("questions in the viewer's table", questions)
    while (state := _get_json(f"{address}state"))["growing"]:
        tenths.show(state["rows"])
        time.sleep(0.5)
    tenths.show(state["rows"])


class _Tenths:
    """Says on stderr how far a long part of the benchmark is, after each tenth."""

    def __init__(self, what: str, total: int) -> None:
        self._what, self._total, self._shown = what, total, 0
        self._began = time.perf_counter()

    def show(self, done: int) -> None:
        if 10 * done // self._total > self._shown:
            self._shown = 10 * done // self._total
            seconds = time.perf_counter() - self._began
            print(f"{self._what}: {done:,} of {self._total:,} after {seconds:,.0f} s", file=sys.stderr, flush=True)


def measure(address: str, rows: int) -> dict[str, float]:
    """Return the seconds of the slowest request of each kind, and check that each page shows what it should."""
    most = rows // (10 * _QUESTIONS)
    found = {
        "first_page_s": [("", "questions")] * _ROUNDS,
        "later_page_s": [(f"?page={number}", "page ") for number in _places(rows // 50)],
        "filter_s": [(f"?{query}", "questions") for query in _FILTERS],
        "sort_s": [(f"?sort={name}&descending=true", "questions") for name in ("calls", "tokens", "seconds", "f1")],
        "text_search_s": [(f"?{urlencode({'text': f'(copy {place})'})}", "1,000 questions") for place in _places(most)],
        "question_s": [(f"run/{place % 10}/sample-test-000007-{place}", "Step ") for place in _places(most)],
        "compare_s": [(f"compare?a=run/{first}&b=run/{first + 1}", "right in both") for first in range(_ROUNDS)],
    }
    return {name: max(_seconds(address + path, text) for path, text in each) for name, each in found.items()}


_FILTERS = (
    "outcome=wrong",
    "configuration=3&stage=answered",
    "cost=tokens&at_least=5000&sort=tokens",
    "type=2-hop&hops=2",
    "outcome=failed",
)


def _places(count: int) -> list[int]:
    """Return numbers spread over `count`."""
    return [1 + (count - 2) * step // (_ROUNDS - 1) for step in range(_ROUNDS)]


def _seconds(url: str, text: str) -> float:
    began = time.perf_counter()
    with urlopen(url) as reply:  # noqa: S310 - our own server
        page = reply.read().decode()
    seconds = time.perf_counter() - began
    assert text in page, f"{url} does not show '{text}'"
    return seconds


def _get_json(url: str) -> Mapping[str, int]:
    with urlopen(url) as reply:  # noqa: S310 - our own server
        state: Mapping[str, int] = orjson.loads(reply.read())
        return state


@contextmanager
def _served(folder: Path) -> Iterator[tuple[str, int]]:
    """Run `kgqa view` in a process of its own, with a cache in the folder; yields its address and process id."""
    command = [sys.executable, "-m", "pipeline.cli.main", "view", str(folder / "run"), "port=0"]
    environment = {**os.environ, "XDG_CACHE_HOME": str(folder / "cache")}
    with subprocess.Popen(command, stdout=subprocess.PIPE, env=environment, text=True) as server:  # noqa: S603
        try:
            assert server.stdout is not None
            yield server.stdout.readline().split()[0], server.pid
        finally:
            server.terminate()
