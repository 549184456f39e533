"""The sources of the bundled model's calls, and the comparison that runs the same methods."""

from __future__ import annotations

from pathlib import Path

import pytest

from pipeline import config
from pipeline.cli.sweep import read_configurations
from pipeline.training.bundled_sources import DATA, METHODS, SOURCES, world

DOCS = Path(__file__).resolve().parents[2] / "docs/bundled-model"
COMPARISON, DEMO = DOCS / "comparison.txt", DOCS / "demo.txt"
PLACES = {"metaqa": "MetaQA", "freebase": "slice", "material": "material"}


@pytest.mark.parametrize("method", METHODS)
def test_the_comparison_runs_a_method_as_the_model_was_trained(method: str) -> None:
    lines = list(read_configurations(COMPARISON))
    assert all([f"dataset.hops={hops}", *METHODS[method]] in lines for hops in (1, 2, 3))
    config.compose(METHODS[method])


def test_the_demo_runs_srp_as_the_model_was_trained() -> None:
    (line,) = (words for words in read_configurations(DEMO) if "method=srp" in words)
    assert set(METHODS["srp"]) <= set(line)


def test_every_source_has_a_method() -> None:
    assert {source.method for source in SOURCES} == set(METHODS)


@pytest.mark.parametrize("name", DATA)
def test_no_test_questions_are_a_source(name: str) -> None:
    composed = config.compose([word.format(**PLACES) for word in DATA[name]])
    assert composed["dataset"]["split"] in ("dev", "train")
    assert not any(part in str(composed["dataset"].get("questions")) for part in ("webqsp", "cwq"))


def test_the_world_of_the_demo_is_not_a_source() -> None:
    seeds = {config.compose(world(1000 * draw + n)[1])["dataset"]["seed"] for draw in (1, 2, 3) for n in (0, 5)}
    assert config.compose([])["dataset"]["seed"] not in seeds
