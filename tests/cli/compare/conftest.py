"""Runs that the tests of `kgqa compare` share. No test changes them."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.cli.compare.support import WORLD


@pytest.fixture(scope="module")
def runs(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """`good` and `bad`: the oracle at two error rates, over 60 and over 40 questions."""
    from pipeline.cli.main import main

    folder = tmp_path_factory.mktemp("runs")
    for name, rate, limit in (("good", 0.1, 60), ("bad", 0.5, 40)):
        words = ("llm=oracle", f"llm.error_rate={rate}", f"run.limit={limit}", f"run.dir={folder / name}")
        assert main(["evaluate", *WORLD, *words]) == 0
    return folder


@pytest.fixture(scope="module")
def two_methods(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run of ArG and SRP, in which SRP has keys of its own, and the value 0 of a key that is 0.0 by default."""
    from pipeline.cli.main import main

    folder = tmp_path_factory.mktemp("methods")
    own = "method.bind_top_k=2 method.shown_partial=8 method.candidates_total=20 method.judge_samples_per_path=5"
    (folder / "points.txt").write_text(f"method=arg\nmethod=srp method.temperature=0 {own}\n")
    words = ("llm=oracle", "llm.error_rate=0.3", "run.limit=40", f"run.dir={folder / 'run'}")
    assert main(["sweep", str(folder / "points.txt"), *WORLD, *words]) == 0
    return folder / "run"


@pytest.fixture(scope="module")
def sweep(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run of 24 configurations: SRP and ArG over three axes."""
    from pipeline.cli.main import main

    folder = tmp_path_factory.mktemp("sweep") / "run"
    axes = ("method=arg,srp", "method.beam_width=1,3", "method.depth=1,2", "method.retries=0,1,2")
    words = ("llm=oracle", "llm.error_rate=0.2", "run.limit=20", f"run.dir={folder}")
    assert main(["sweep", *axes, *WORLD, *words]) == 0
    return folder
