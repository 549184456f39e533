"""Small runs of several configurations."""

from __future__ import annotations

from collections.abc import Callable
from itertools import product
from pathlib import Path

import pytest
from rich.console import Console

from pipeline import config
from pipeline.engine.configuration import Configuration
from pipeline.engine.run import execute

Sweep = Callable[..., Path]
WORDS = ("dataset.triples=2000", "engine.shard_size=8", "evaluation.bootstrap_resamples=100", "llm=oracle")


@pytest.fixture(scope="session")
def sweep(tmp_path_factory: pytest.TempPathFactory) -> Sweep:
    """`sweep("run.limit=20", depth=[1, 2])`: a run whose configurations differ in these keys of the method."""

    def run(*words: str, **axes: list[object]) -> Path:
        folder = tmp_path_factory.mktemp("sweep") / "run"
        configurations = []
        for values in product(*axes.values()):
            keys = (key if "." in key else f"method.{key}" for key in axes)
            own = [f"{key}={value}" for key, value in zip(keys, values, strict=True)]
            overrides = (*WORDS, "llm.error_rate=0.3", f"run.dir={folder}", *words, *own)
            configurations.append(Configuration(overrides, config.compose(overrides)))
        execute(configurations, Console(quiet=True))
        return folder

    return run


@pytest.fixture(scope="session")
def grid(sweep: Sweep) -> Path:
    """A run of four configurations over two axes."""
    return sweep("run.limit=24", depth=[1, 2], retries=[0, 1])
