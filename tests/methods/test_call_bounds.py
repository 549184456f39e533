"""`budget.max_llm_calls=auto`: the bound of each method on its model calls (specification §2.5)."""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import polars as pl
import pytest
from rich.console import Console

from pipeline import config
from pipeline.datasets.interface import Dataset
from pipeline.engine.budget import Budget
from pipeline.engine.configuration import Configuration
from pipeline.engine.run import execute
from pipeline.errors import UserError
from pipeline.methods.interface import BoundedCalls, Method
from pipeline.types import Entity, Question
from tests.support import METHODS, each_method, refuse

AXES = {"beam_width": (1, 5), "depth": (1, 4), "retries": (0, 2)}
"""The default sweep, by its lowest and highest value."""
FAULTS = ("llm=oracle", "llm.error_rate=0.4", "llm.malformed_rate=0.3")
VARIANTS = {
    "srp": ("method.paths_per_entity=3 method.edit_budget_scope=per_question", "experiment=readi"),
    "arg": ("method.max_regenerate=2", "method.generator=prompted"),
    "dog": ("experiment=dog_wide", "experiment=dog_no_debate", "experiment=dog_gold"),
    "pog": ("method.calls=batched", "experiment=pog_compat", "method.memory=false method.readd_once=false"),
    "parog": ("method.split_refine=true method.per_entity=true", "method.refine=false", "method.initial_answer=true"),
    "rog": ("experiment=rog_listed", "experiment=rog_sampled", "experiment=rog_vote", "experiment=rog_no_planning"),
    "r3": ("method.on_halt_guess=true method.incorrect_extension=0.7", "method.calls_per_step=1"),
}
"""Keys that change the number of calls, beside the generic axes."""


def composed(words: Sequence[str]) -> Configuration:
    return Configuration(tuple(words), config.compose(words))


def grid(method: str) -> list[str]:
    """Return the corners of the default sweep that a method has. Where it takes no value so high, the highest one."""
    known = config.compose([f"method={method}"])["method"]
    used = {axis: (low, highest(method, axis, high)) for axis, (low, high) in AXES.items() if axis in known}
    return [
        " ".join(f"method.{axis}={value}" for axis, value in zip(used, values, strict=True))
        for values in itertools.product(*used.values())
    ]


def highest(method: str, axis: str, value: int) -> int:
    """Return the highest value of an axis up to this one that a method takes, such as two hops of RAG."""
    try:
        config.build("method", config.compose([f"method={method}", f"method.{axis}={value}"]))
    except UserError:
        return highest(method, axis, value - 1)
    return value


def test_the_sweep_has_every_corner_of_every_method() -> None:
    assert len(grid("arg")) == len(grid("pog")) == 8
    assert "method.beam_width=5 method.depth=2 method.retries=2" in grid("rag")


@pytest.mark.parametrize(
    "questions", [pytest.param(8, marks=pytest.mark.smaller), pytest.param(40, marks=pytest.mark.exhaustive)]
)
@pytest.mark.parametrize("method", each_method("parog"))
def test_no_question_of_a_default_sweep_meets_a_limit(method: str, questions: int, tmp_path: Path) -> None:
    """Neither do bad replies make more calls than the bound, nor does a limit of another kind cut the search."""
    shared = (
        f"method={method}",
        *FAULTS,
        f"run.limit={questions}",
        f"run.dir='{tmp_path / 'run'}'",
        "evaluation.bootstrap_resamples=100",
    )
    points = [*grid(method), *VARIANTS.get(method, ())]
    configurations = tuple(composed([*shared, *words.split()]) for words in points)
    summaries = execute(configurations, Console(quiet=True))
    assert {words: each.counters["at_limit"] for words, each in zip(points, summaries, strict=True)} == dict.fromkeys(
        points, 0
    )
    rows = pl.read_parquet(tmp_path / "run" / "traces" / "*.parquet", columns=["point", "question_id", "llm_calls"])
    first = configurations[0].config
    dataset: Dataset = config.build("dataset", first)
    asked = {example.question.id: example.question for example in itertools.islice(dataset.examples(refuse), questions)}
    for number, each in enumerate(configurations):
        built: Method = config.build("method", each.config)
        budget: Budget = config.build("budget", each.config)
        assert isinstance(built, BoundedCalls)
        for id, calls in rows.filter(point=number).select("question_id", "llm_calls").iter_rows():
            assert calls <= built.most_llm_calls(asked[id], budget) + 1


@pytest.mark.parametrize("method", METHODS)
def test_a_number_is_a_limit_for_every_method(method: str) -> None:
    built: Method = config.build("method", config.compose([f"method={method}"]))
    question = Question(id="q", text="?", topic_entities=(Entity("m.1", "One"),), dataset="d", split="test")
    auto: Budget = config.build("budget", config.compose([]))
    assert replace(auto, max_llm_calls=3).most_llm_calls(built, question) == 3
    assert auto.most_llm_calls(built, question) < 10_000
