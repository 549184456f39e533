"""`run.sample` and `run.limit`: which questions are asked."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from dataclasses import fields, replace
from pathlib import Path

import polars as pl
import pytest

from pipeline.cli.main import main
from pipeline.config import QUESTION_KEYS, default
from pipeline.datasets.selection import Selection
from pipeline.simulation.world import SyntheticWorld
from pipeline.types import Example
from tests.support import refuse

WORLD = ("method=cot", "llm=oracle", "dataset.triples=2000", "evaluation.bootstrap_resamples=100")


@pytest.fixture(scope="module")
def examples() -> list[Example]:
    return list(default(SyntheticWorld, triples=2000, questions=60).examples(refuse))


def ids(selected: Iterator[Example]) -> list[str]:
    return [example.question.id for example in selected]


def test_the_keys_that_choose_the_questions_are_those_of_the_identity_of_a_run() -> None:
    assert set(QUESTION_KEYS) == {each.name for each in fields(Selection)}


def test_a_sample_is_drawn_by_its_seed_and_keeps_the_order(examples: list[Example]) -> None:
    every = ids(iter(examples))
    drawn = ids(Selection(sample=20).select(iter(examples)))
    assert len(set(drawn)) == 20
    assert drawn == sorted(drawn, key=every.index) != every[:20]
    assert drawn == ids(Selection(sample=20).select(iter(reversed(examples))))[::-1]
    assert drawn != ids(Selection(sample=20, sample_seed=1).select(iter(examples)))
    assert ids(Selection(sample=20, limit=5).select(iter(examples))) == drawn[:5]
    assert ids(Selection(sample=100).select(iter(examples))) == every
    assert set(ids(Selection(sample=10).select(iter(examples)))) < set(drawn), "a larger sample holds a smaller one"


@pytest.mark.parametrize(("selection", "number"), [(Selection(), 60), (Selection(sample=7), 7), (Selection(9, 7), 7)])
def test_the_questions_are_counted(selection: Selection, number: int) -> None:
    world = default(SyntheticWorld, triples=2000, questions=60)
    assert selection.count(world) == number == len(list(selection.select(world.examples(refuse))))
    assert replace(selection, limit=3).count(world) == 3


@pytest.fixture
def kgqa(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[..., None]:
    monkeypatch.chdir(tmp_path)

    def run(*words: str) -> None:
        assert main(list(words)) == 0

    return run


def test_a_run_asks_the_sample(kgqa: Callable[..., None], examples: list[Example]) -> None:
    kgqa("sweep", *WORLD, "dataset.questions=60", "run.sample=20", "run.seed=1,2", "run.dir=run")
    asked = pl.read_parquet("run/traces/*.parquet").sort("point", maintain_order=True)
    drawn = ids(Selection(sample=20).select(iter(examples)))
    for (_,), rows in asked.group_by("point"):
        assert sorted(rows["question_id"]) == sorted(drawn), "every configuration and seed asks the same questions"
    assert [point["questions"] for point in json.loads(Path("run/summary.json").read_text())["points"]] == [20, 20]


def test_an_estimate_is_of_the_sample(kgqa: Callable[..., None], capsys: pytest.CaptureFixture[str]) -> None:
    kgqa("estimate", *WORLD, "dataset.questions=60", "run.sample=30", "estimate.questions=10", "run.dir=run")
    assert "projected from 10 of 30 questions" in capsys.readouterr().out
