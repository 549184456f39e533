"""`llm.roles`: a model of its own for a role (methods.md §2.3)."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import polars as pl
import pytest
import yaml
from rich.console import Console

from pipeline import config
from pipeline.engine.run import Point, execute
from pipeline.errors import UserError

WORDS = ("method=parog", "dataset.triples=2000", "run.limit=40")
WEAK_PLANNER = "llm.roles={parog.plan: {error_rate: 1.0}}"


def run(folder: Path, *words: str) -> dict[str, pl.DataFrame]:
    """Run, and return the calls' completions and keys by role."""
    overrides = (*WORDS, *words, f"run.dir={folder}")
    composed = config.compose(overrides)
    config.check(composed)
    execute([Point(overrides, composed)], Console(quiet=True))
    frame = pl.read_parquet(folder / "traces/*.parquet", columns=["question_id", "steps", "texts"])
    steps = frame.explode("steps", "texts").unnest("steps", "texts").filter(kind="llm")
    return {str(role): part.drop("start_s", "duration_s") for (role,), part in steps.group_by("role")}


def served(folder: Path) -> dict[str, Any]:
    saved: dict[str, Any] = yaml.safe_load((folder / "run.yaml").read_text())["served"][0]
    return saved


def test_only_that_role_is_answered_by_its_model(tmp_path: Path) -> None:
    plain, weak = run(tmp_path / "plain", "llm=oracle"), run(tmp_path / "weak", "llm=oracle", WEAK_PLANNER)
    plans, weak_plans = (calls["parog.plan"].sort("question_id") for calls in (plain, weak))
    assert plans["inputs"].to_list() == weak_plans["inputs"].to_list()
    assert all(a != b for a, b in zip(plans["completion"], weak_plans["completion"], strict=True))
    assert not set(plans["key"]) & set(weak_plans["key"]), "who answers is part of the call key"
    assert set(plain["parog.tentative"]["key"]) & set(weak["parog.tentative"]["key"]), "the others share their calls"
    assert served(tmp_path / "weak")["model"] == served(tmp_path / "plain")["model"]
    assert served(tmp_path / "weak")["roles"] == {"parog.plan": "oracle(error_rate=1,malformed_rate=0)"}


def test_is_replayed_under_the_identities_of_then(tmp_path: Path) -> None:
    first = run(tmp_path / "first", "llm=oracle", WEAK_PLANNER)
    again = run(tmp_path / "again", "llm=replay", f"llm.run={tmp_path / 'first'}")
    assert first.keys() == again.keys()
    for role, calls in first.items():
        assert calls.sort("key")["completion"].to_list() == again[role].sort("key")["completion"].to_list()


def test_may_be_of_another_kind(tmp_path: Path) -> None:
    run(tmp_path, "llm=oracle", "llm.roles={parog.plan: {_target_: pipeline.llm.similarity.Similarity}}")
    assert served(tmp_path)["roles"] == {"parog.plan": "similarity"}
    assert served(tmp_path)["label"] == "oracle, similarity", "every table says who answered"


@pytest.mark.parametrize(
    ("roles", "sentence"),
    [
        ("{parog.plam: {error_rate: 0.5}}", "there is no role 'parog.plam'. Did you mean 'parog.plan'?"),
        ("{parog.plan: {error_rat: 0.5}}", "unknown key 'llm.roles.parog.plan.error_rat'"),
        ("{parog.plan: {error_rate: 2}}", "llm.roles.parog.plan.error_rate=2 is wrong"),
        ("{parog.plan: 3}", "llm.roles.parog.plan=3 is wrong"),
    ],
)
def test_mistakes(roles: str, sentence: str, tmp_path: Path) -> None:
    with pytest.raises(UserError) as mistake:
        run(tmp_path, "llm=oracle", f"llm.roles={roles}")
    assert sentence in str(mistake.value)
