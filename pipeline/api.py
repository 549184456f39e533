"""The Python API of `kgqa evaluate`, `kgqa sweep` and `kgqa score`. Its functions return runs or dataframes."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from itertools import product
from pathlib import Path
from typing import TypeAlias, TypeVar

import polars as pl

from pipeline import config
from pipeline.analysis.runs import Run, open_run
from pipeline.cli.score import rescore
from pipeline.console import Console
from pipeline.engine.configuration import Configuration, compose_configurations, run_dir
from pipeline.engine.run import execute
from pipeline.errors import KgqaError, UserError, single_errors
from pipeline.evaluation.rescore import SCORES
from pipeline.traces.folder import RunFolder
from pipeline.traces.storage import storage_path

Overrides: TypeAlias = Sequence[str] | Mapping[str, object]
"""Keys and values, such as `{"method": "srp", "run.limit": 20}`, or words `key=value` as on the command line."""

T = TypeVar("T")


def evaluate(overrides: Overrides = (), *, progress: bool = False) -> Run:
    """Run one configuration and return the finished run, as `kgqa evaluate` does.

    The same configuration continues in the same run folder. `progress` shows the progress bar on stderr. Raises
    UserError for a wrong key or value, and another KgqaError if servers or workers stop the run.
    """
    console = Console(stderr=True, quiet=not progress)
    configurations = compose_configurations([_words(overrides)], console)
    configurations[0].refuse_early_stopping()
    return _run(configurations, console)


def sweep(axes: Mapping[str, Iterable[object]], overrides: Overrides = (), *, progress: bool = False) -> Run:
    """Run every combination of the values of `axes` as one run, as `kgqa sweep` does.

    `axes` maps keys to the values to try, such as `{"method.depth": [1, 2, 3]}`; `overrides` hold for all
    configurations. Equal calls of different configurations are made once. Raises UserError as `evaluate` does.
    """
    if not isinstance(axes, Mapping):
        raise UserError(f"{axes!r} should be a dictionary of lists of values, such as {{'method.depth': [1, 2]}}")
    for key, values in axes.items():
        if isinstance(values, str) or not isinstance(values, Iterable):
            raise UserError(f"{key}: {values!r} should be a list of values, such as [{values!r}]")
    choices = {key: [config.override(key, value) for value in values] for key, values in axes.items()}
    if empty := [key for key, words in choices.items() if not words]:
        raise UserError(f"{empty[0]} has no values: give it one, or leave it out")
    common = _words(overrides)
    if twice := [word for word in common if word.partition("=")[0] in axes]:
        raise UserError(f"{twice[0]} is one of the axes too: give each key once")
    console = Console(stderr=True, quiet=not progress)
    return _run(compose_configurations([[*common, *words] for words in product(*choices.values())], console), console)


def score(run: Run | str | Path, overrides: Overrides = ()) -> pl.DataFrame:
    """Compute the scores of a finished run again from its traces, as `kgqa score` does: no model, no graph.

    `overrides` change the scoring of this call, such as `{"evaluation.empty_gold": "strict_empty"}`. The run then keeps
    its own scores; without overrides, its `summary.json` gets the new ones. Returns one row per configuration. Raises
    UserError when there is no run.
    """
    folder = RunFolder(run.folder.path if isinstance(run, Run) else storage_path(run))
    summaries, _ = rescore(folder, _words(overrides))
    rows = [
        {"configuration": each.number, "method": each.method, "questions": each.questions}
        | {name: each.scores[name].mean if name in each.scores else None for name in SCORES}
        for each in summaries
    ]
    return pl.DataFrame(rows, infer_schema_length=None)


def _run(configurations: Sequence[Configuration], console: Console) -> Run:
    try:
        _outside_of_a_loop(lambda: execute(configurations, console))
    except ExceptionGroup as group:  # of tasks, of which one error speaks to the user, as on the command line
        raise next((each for each in single_errors(group) if isinstance(each, KgqaError)), group) from None
    return open_run(run_dir(configurations))


def _outside_of_a_loop(call: Callable[[], T]) -> T:
    """Call in another thread where an event loop is running in this one, as in a notebook."""
    try:
        asyncio.get_running_loop()
    except RuntimeError:
        return call()
    with ThreadPoolExecutor(1) as thread:
        return thread.submit(call).result()


def _words(overrides: Overrides) -> list[str]:
    if isinstance(overrides, Mapping):
        return _words([config.override(key, value) for key, value in overrides.items()])
    is_list = isinstance(overrides, Iterable) and not isinstance(overrides, str)
    if not (is_list and all(isinstance(word, str) for word in overrides)):
        raise UserError(f"{overrides!r} should be a dictionary, such as {{'method': 'srp'}}, or a list of 'key=value'")
    if printing := [word for word in overrides if word.startswith(("json=", "table="))]:
        raise UserError(f"{printing[0]} is a word of the commands, which print figures: the functions return them")
    return list(map(config.readable, overrides))
