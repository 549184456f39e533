"""Reasons for new calls in a run that reuses an earlier one."""

from __future__ import annotations

import json
from collections import Counter
from dataclasses import replace
from pathlib import Path

import pytest
from rich.console import Console

from pipeline import config
from pipeline.analysis.cache_misses import NEW_QUESTION, _beside_the_prompt, explain_misses
from pipeline.engine.configuration import Configuration
from pipeline.engine.run import execute
from pipeline.llm.prompt import Completion
from pipeline.traces.folder import RunFolder
from pipeline.traces.reader import RecordedCall, explain_miss
from tests.support import sampled

WORLD = ("dataset.triples=2000", "run.limit=8", "evaluation.bootstrap_resamples=100", "llm=oracle", "method=srp")


def run(folder: Path, *words: str) -> int:
    """Run, and return how many calls were made."""
    overrides = (*WORLD, *words, f"run.dir={folder}")
    execute([Configuration(overrides, config.compose(overrides))], Console(quiet=True))
    made: int = (RunFolder(folder).read_summary() or {})["physical_llm_calls"]
    return made


def misses(tmp_path: Path, *words: str) -> Counter[str]:
    run(tmp_path / "first")
    made = run(tmp_path / "second", *words, f"run.reuse=[{tmp_path / 'first'}]")
    reasons = explain_misses(RunFolder(tmp_path / "second"), [tmp_path / "first"])
    assert sum(reasons.values()) == made
    return reasons


def test_without_new_calls_there_is_no_reason(tmp_path: Path) -> None:
    assert misses(tmp_path) == {}


@pytest.mark.parametrize(
    ("words", "reason"),
    sampled(
        [
            ("method.temperature=0.9", "sampling.temperature"),
            ("run.seed=5", "run.seed"),
            ("method.relation_top_k=2", "the input top_k"),
            (
                "llm.error_rate=0.001",
                "the model (oracle(error_rate=0,malformed_rate=0), now oracle(error_rate=0.001,malformed_rate=0))",
            ),
            ("run.limit=9", NEW_QUESTION),
        ],
        every=2,
    ),
)
def test_the_differing_field_is_named(words: str, reason: str, tmp_path: Path) -> None:
    assert reason in misses(tmp_path, *words.split())


def test_the_model_of_a_new_call_is_not_among_those_that_it_differs_from() -> None:
    def saved(*models: str) -> dict[str, object]:
        return {"served": [{"model": model} for model in models], "points": []}

    assert _beside_the_prompt([saved("A"), saved("B")], saved("A")) == "the model (B, now A)"
    assert _beside_the_prompt([saved("A")], saved("A", "B")) == "the model (A, now B)"
    assert _beside_the_prompt([saved("A")], saved("B")) == "the model (A, now B)"


def test_a_limit_of_the_model_is_no_seed(tmp_path: Path) -> None:
    """The limit of an embedded model is part of a call's key."""
    words = ("llm=embedded", "run.limit=1", "method=arg")
    run(tmp_path / "first", *words)
    run(tmp_path / "second", *words, "llm.max_new_tokens=9", f"run.reuse=[{tmp_path / 'first'}]")
    assert "llm.max_new_tokens" in explain_misses(RunFolder(tmp_path / "second"), [tmp_path / "first"])


def test_the_nearest_call_is_described_in_words() -> None:
    def call(template: str, **inputs: str) -> RecordedCall:
        sampling = '{"sampling": {}, "choices": []}'
        return RecordedCall("key", "a.role", template, json.dumps(inputs), sampling, Completion(""))

    made = call("new", guidance="b", question="q", scratchpad="d")
    far, near = (
        call("old", guidance="a", question="p", scratchpad="c"),
        call("old", guidance="a", question="q", scratchpad="c"),
    )
    assert explain_miss(made, [far, near], otherwise="the seed") == (
        "the inputs guidance and scratchpad and the prompt's fixed text"
    )
    assert explain_miss(made, [made], otherwise="the seed") == "the seed"
    again = replace(made, sampling='{"sampling": {}, "choices": [], "ordinal": 1}')
    assert explain_miss(again, [made], otherwise="the seed") == "the number of equal calls before it"
