"""Text of the graph or of a question that looks like a marker of a method is never read as one (specification §2.4).

With a perfect model, each method scores the same on a world whose names are made of markers as on one with plain names.
Not compared are DoG, RAG and RoG, whose scores differ in some of these worlds: RAG shows a limited number of neighbours
in the order of names, and RoG's plans have no escape for its marks.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import polars as pl
import pytest
from rich.console import Console

from pipeline import config
from pipeline.engine.run import Configuration, execute
from tests.methods.markers import MARKERS, PLACES, write_world

METHODS = [
    "method=srp",
    "method=arg",
    "method=arg method.generator=prompted",
    "method=arg method.facts=walk",
    "method=parog",
    "experiment=parog_split_refine",
    "method=r3",
    "method=r3 method.calls_per_step=1",
    "method=tog",
    "method=pog",
    "method=pog method.calls=batched",
]

Scores = Mapping[str, Mapping[str, float]]
"""F1 by method and question."""


def scores(folder: Path, words: tuple[str, ...]) -> Scores:
    lines = [(*method.split(), *words, f"run.dir={folder}") for method in METHODS]
    execute([Configuration(line, config.compose(line)) for line in lines], Console(quiet=True))
    rows = pl.read_parquet(folder / "traces" / "*.parquet").sort("point", "question_id")
    found: dict[str, dict[str, float]] = {}
    for point, question, f1 in rows.select("point", "question_id", "f1").iter_rows():
        found.setdefault(METHODS[point], {})[question] = round(f1, 6)
    return found


@pytest.fixture(scope="module")
def innocent(tmp_path_factory: pytest.TempPathFactory) -> Scores:
    folder = tmp_path_factory.mktemp("innocent")
    found = scores(folder / "run", write_world(folder))
    assert all(f1 == 1 for of_method in found.values() for f1 in of_method.values())
    return found


@pytest.mark.parametrize("of", ["relations", "entities", "questions"])
@pytest.mark.parametrize("family", MARKERS)
def test_names_made_of_markers_change_no_score(family: str, of: str, innocent: Scores, tmp_path: Path) -> None:
    # A relation with # comes from a foreign vocabulary and is hidden from every method (§8.4).
    markers = [marker for marker in MARKERS[family] if of != "relations" or "#" not in marker]
    place = PLACES["after" if of == "questions" else "alone"]
    assert scores(tmp_path / "run", write_world(tmp_path, markers, place, of=[of])) == innocent


@pytest.mark.parametrize("offset", [5, 10, 15, 20])
def test_relations_named_like_tokens_of_arg_change_no_score(offset: int, innocent: Scores, tmp_path: Path) -> None:
    assert scores(tmp_path / "run", write_world(tmp_path, MARKERS["arg"], of=["relations"], offset=offset)) == innocent
