"""`kgqa report`: show the configurations of runs on one HTML page that needs only a browser."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from itertools import chain
from pathlib import Path

import polars as pl

from pipeline.analysis.runs import open_run
from pipeline.cli.common import Arguments, Output
from pipeline.errors import StorageError, UserError
from pipeline.evaluation.table import percent
from pipeline.report.page import report
from pipeline.text import counted
from pipeline.traces.storage import StoragePath, storage_path, write_whole

_NAME = "report.html"


def run(arguments: Arguments) -> Output:
    """Write the report of the run folders. Print its path, what the runs show, and what to do next."""
    output = _take_output(arguments)
    runs = list(dict.fromkeys(map(storage_path, arguments.words)))
    file = storage_path(output) if output else (runs[0] if len(runs) == 1 else Path()) / _NAME
    page = report(runs)
    try:
        write_whole(file, page.encode())
    except StorageError as error:
        raise UserError(f"output={error}") from None
    opening = f"Open it in a browser: {file.absolute().as_uri()}"
    return Output({"output": str(file)}, lines=[str(file)], notes=[*chain.from_iterable(map(_seen, runs)), opening])


def _seen(path: StoragePath) -> Iterator[str]:
    """Say in two sentences what a run shows, and which command explains a wrong answer."""
    scored = (
        open_run(path)
        .questions.select("configuration", "method", "dataset", "question_id", "hops", "hits_at_1")
        .drop_nulls("hits_at_1")
        .collect()
    )
    if scored.is_empty():
        return
    means = scored.group_by("configuration").agg(pl.mean("hits_at_1")).sort("hits_at_1", -pl.col("configuration"))
    best, highest = means.row(-1)
    rows = scored.filter(configuration=best)
    method, dataset = rows.row(0)[1:3]
    asked = counted(rows.height, "question")
    correct = f"{method} answered {int(rows['hits_at_1'].sum()):,} of {asked} of {dataset} correctly"
    if means.height > 1:
        lowest, number = percent(means["hits_at_1"][0]), counted(means.height, "configuration")
        yield f"{path}: {number}, with strict Hits@1 from {lowest} to {percent(highest)} %."
        yield f"In configuration {best}, one of the best, {correct}."
    else:
        yield f"{path}: {correct} (strict Hits@1 {percent(highest)} %)."
        yield from _by_hops(rows)
    wrong = rows.filter(pl.col("hits_at_1") == 0)["question_id"]
    if len(wrong):
        chosen = f" configuration={best}" if means.height > 1 else ""
        yield f"kgqa show {path} {wrong[0]}{chosen} prints every step of a wrong answer."


def _by_hops(rows: pl.DataFrame) -> Iterator[str]:
    """Compare the questions by the number of hops, if it is known."""
    hops = rows.drop_nulls("hops").group_by("hops").agg(pl.mean("hits_at_1")).sort("hits_at_1", -pl.col("hops"))
    if hops.height > 1:
        (worst, low), (best, high) = hops.row(0), hops.row(-1)
        yield f"By hops, it did best at {best} ({percent(high)} %) and worst at {worst} ({percent(low)} %)."


def _take_output(arguments: Arguments) -> str | None:
    """Return `output`, literally: a file may have a name with characters that are special in an override."""
    literal = [word for word in arguments.overrides if word.startswith("output=")]
    others = [word for word in arguments.overrides if word not in literal]
    composed: str | None = replace(arguments, overrides=others).compose()["output"]
    return literal[-1].removeprefix("output=") if literal else composed
