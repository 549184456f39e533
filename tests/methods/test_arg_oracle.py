"""ArG with simulated models through the engine: cost, robustness, and the effect of its parts."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import orjson
import polars as pl
import pytest
from rich.console import Console

from pipeline import config
from pipeline.engine.configuration import Configuration
from pipeline.engine.run import execute
from tests.support import sampled


def run(folder: Path, *overrides: str) -> pl.DataFrame:
    words = ("dataset=synthetic", "method=arg", "llm=oracle", f"run.dir={folder}", *overrides)
    execute([Configuration(overrides, config.compose(words))], Console(quiet=True))
    return pl.read_parquet(folder / "traces" / "*.parquet").sort("question_id")


def hits(rows: pl.DataFrame) -> float:
    return rows["hits_at_1"].mean()  # type: ignore[return-value]


def payloads(row: dict[str, Any], event: str) -> Iterator[dict[str, Any]]:
    for step, text in zip(row["steps"], row["texts"], strict=True):
        if step["role"] == event:
            yield orjson.loads(text["payload"])


@pytest.mark.exhaustive
def test_a_perfect_model_reaches_most_long_chains_with_the_published_limits(tmp_path: Path) -> None:
    assert 0.9 <= hits(run(tmp_path, "dataset.types=[3-hop,4-hop]", "run.limit=100")) < 0.99


@pytest.mark.exhaustive
@pytest.mark.parametrize("generator", ["finetuned", "prompted"])
def test_calls_and_lookups_follow_the_formula(generator: str, tmp_path: Path) -> None:
    rows = run(tmp_path, f"method.generator={generator}", "run.limit=160", "budget.max_llm_calls=500")
    assert rows["method"].unique().to_list() == ["arg" if generator == "finetuned" else "arg-prompted"]
    for row in rows.iter_rows(named=True):
        calls = Counter(step["role"] for step in row["steps"] if step["kind"] == "llm")
        listed, expanded = list(payloads(row, "relations_listed")), list(payloads(row, "expanded"))
        offers = [offer for level in listed for offer in level["retrieved"]]
        assert all(len(level["retrieved"]) <= 3 for level in listed)
        assert calls["arg.hypo"] == len(offers)
        assert calls["arg.relations"] == sum(math.ceil(len(offer) / 5) for offer in offers)
        assert max(map(len, offers)) <= 2 * 5
        assert calls["arg.entities"] == sum(len(level["segments"]) for level in expanded)
        assert calls["arg.answer"] <= 3
        assert row["llm_calls"] == calls.total()
        lookups = Counter(step["role"] for step in row["steps"] if step["kind"] == "kg")
        assert lookups["relations"] <= 1 + len(expanded), (
            "one for the topic entities, and one for the tails of each hop"
        )
        assert max(lookups["neighbours"], lookups["labels"]) <= len(expanded)
        assert lookups.total() <= min(3 * len(expanded) + 1, 3 * 4)
        assert set(lookups) <= {"relations", "neighbours", "labels"}


@pytest.mark.parametrize(
    "words",
    sampled(
        [
            "llm.error_rate=0.15 llm.malformed_rate=0.1",
            "llm.error_rate=0.15 llm.malformed_rate=0.1 method.generator=prompted method.retries=1",
            "llm.error_rate=0.3 llm.malformed_rate=0.3 method.probabilities=exact method.beam_width=0",
            "llm.malformed_rate=1 method.temperature=0.5",
            "budget.max_llm_calls=7",
            "budget.max_kg_queries=4",
            "llm=similarity",
            "llm=similarity method.generator=prompted method.probabilities=exact",
        ]
    ),
)
def test_no_question_fails_whatever_the_model_writes(words: str, tmp_path: Path) -> None:
    rows = run(tmp_path, *words.split(), "run.limit=80")
    assert rows["status"].is_in(["ok", "no_evidence", "budget_exhausted"]).all(), rows["error"].drop_nulls().to_list()


@pytest.mark.exhaustive
def test_both_retrievers_and_the_beam_improve_an_erring_model(tmp_path: Path) -> None:
    erring = ("llm.error_rate=0.15", "run.limit=360", "dataset.types=[1-hop,2-hop]")
    scores = {
        name: hits(run(tmp_path / name, *erring, *words))
        for name, words in {
            "arg": (),
            "narrow": ("method.beam_width=1",),
            "no_hypo": ("method.hypo=false",),
            "no_naive": ("method.naive_retriever=false",),
        }.items()
    }
    assert scores["no_hypo"] < scores["arg"]
    assert scores["no_naive"] < scores["arg"]
    assert scores["narrow"] < scores["arg"]
