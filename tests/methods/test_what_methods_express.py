"""The table of docs/methods.md: with a perfect model, each method answers every question type that it can express."""

from __future__ import annotations

from pathlib import Path

import polars as pl
import pytest
from rich.console import Console

from pipeline import config
from pipeline.engine.configuration import Configuration
from pipeline.engine.run import execute
from tests.support import LARGE, sampled

BUT_COUNT = ("1-hop", "2-hop", "3-hop", "4-hop", "conjunction", "comparison", "superlative")
ALL = (*BUT_COUNT, "count")
UNCUT = "method.context_tokens=1000000 method.neighbours_per_edge=1000 budget.max_evidence_triples=1000000"
"""RAG with everything that lies within its hops."""
PER_TYPE = pytest.mark.parametrize(
    "per_type",
    [
        pytest.param(10, marks=pytest.mark.smaller),
        pytest.param(20, marks=pytest.mark.exhaustive),
        pytest.param(100, marks=LARGE),
    ],
)
"""Questions of each type."""


def run(folder: Path, methods: list[str], *dataset: str) -> pl.DataFrame:
    """Run all methods on the same questions and return the rows. `point` is the index of the method."""
    words = [(*method.split(), *dataset, "llm=oracle", f"run.dir={folder}") for method in methods]
    execute([Configuration(each, config.compose(each)) for each in words], Console(quiet=True))
    return pl.read_parquet(folder / "traces" / "*.parquet")


def hits(rows: pl.DataFrame, by: str, per_type: int) -> dict[object, float]:
    groups = rows.group_by(by).agg(pl.len(), pl.col("hits_at_1").mean())
    assert groups["len"].min() == groups["len"].max() == per_type
    return {group: score for group, _, score in groups.iter_rows()}


def most_wrong(scores: dict[object, float], per_type: int) -> int:
    """The wrong questions of the worst group. Among many, one may be out of reach of a preset's largest numbers."""
    return round(per_type * (1 - min(scores.values())))


@PER_TYPE
@pytest.mark.parametrize(
    ("method", "types"),
    sampled(
        [
            ("method=srp", BUT_COUNT),
            ("method=srp method.judge_samples_per_path=300", ("count",)),
            ("method=arg", ("1-hop", "2-hop")),
            ("experiment=arg_wide", BUT_COUNT),
            ("method=parog", ALL),
            ("method=r3", ALL),
            ("experiment=pog_wide", ALL),
            ("method=tog", ("1-hop", "2-hop", "conjunction")),
            ("experiment=tog_wide", ALL),
            ("method=rog method.plans=5", BUT_COUNT),
            ("experiment=dog_wide", ALL),
            (f"experiment=rag_1_hop {UNCUT}", ("1-hop",)),
            (f"experiment=rag_2_hop {UNCUT}", ("1-hop", "2-hop")),
        ],
        every=3,
    ),
)
def test_a_perfect_model_answers_every_type_correctly(
    method: str, types: tuple[str, ...], per_type: int, tmp_path: Path
) -> None:
    words = f"dataset=synthetic dataset.types=[{','.join(types)}] dataset.questions={per_type * len(types)}"
    scores = hits(run(tmp_path, [method], *words.split()), "type", per_type)
    assert scores.keys() == set(types)
    assert most_wrong(scores, per_type) <= (per_type > 20), scores


@pytest.mark.exhaustive
@PER_TYPE
@pytest.mark.parametrize("hops", [1, 2, 3])
def test_a_perfect_model_answers_metaqa_correctly(hops: int, per_type: int, shared_data: Path, tmp_path: Path) -> None:
    methods = [
        "method=srp",
        "method=arg",
        "method=parog",
        "method=r3",
        "experiment=tog_wide",
        "method=pog",
        "method=rog",
        "experiment=dog_wide",
    ]
    dataset = ("dataset=metaqa", f"dataset.path={shared_data / 'metaqa'}", f"dataset.hops={hops}")
    scores = hits(run(tmp_path, methods, *dataset, f"run.limit={per_type}"), "point", per_type)
    assert scores.keys() == set(range(len(methods)))
    assert most_wrong(scores, per_type) <= (per_type > 20), scores
