"""What commands say of configurations that differ in `run.seed` alone."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.cli.conftest import WORLD
from tests.cli.support import Kgqa


def test_each_command_with_scores_has_a_line_with_the_means_over_seeds(kgqa: Kgqa) -> None:
    words = ("method=srp,cot", "run.seed=0,1,2", "llm=oracle", "llm.error_rate=0.4", "run.dir=run")
    line = "over seeds, mean ± 1.96·s/√n: method="
    swept = " ".join(kgqa("sweep", *WORLD, *words).out.split())
    assert f"Hits@1 {line}" in swept
    assert swept.count("(3 seeds)") == 1, "what the oracle answers without the graph is no rival"
    assert ", one of 3 seeds" in swept
    assert f"Hits@1 {line}" in " ".join(kgqa("score", "run").out.split())
    assert f"hits_at_1 {line}" in " ".join(kgqa("compare", "run").out.split())
    kgqa("evaluate", *WORLD, "llm=oracle", "run.dir=single")
    assert "over seeds" not in kgqa("score", "single").out


def test_equal_seeds_are_said_to_share_their_calls(kgqa: Kgqa) -> None:
    swept = kgqa("sweep", *WORLD, "method=cot", "run.seed=0,1", "llm=similarity", "run.dir=run")
    assert "with each of 2 seeds; at temperature 0, seeds share their calls" in " ".join(swept.out.split())


def test_equal_scores_at_another_temperature_are_not_said_to_be_of_shared_calls(kgqa: Kgqa) -> None:
    words = ("method=cot", "method.temperature=0.7", "run.seed=0,1", "llm=similarity", "run.dir=run")
    swept = " ".join(kgqa("sweep", *WORLD, *words).out.split())
    assert "with each of 2 seeds" in swept
    assert "seeds share their calls" not in swept


def test_seeds_over_several_datasets_have_a_mean_for_each(kgqa: Kgqa) -> None:
    words = ("run.limit=5,10", "run.seed=0,1", "llm=oracle", "llm.error_rate=0.4", "run.dir=run")
    for said in (kgqa("sweep", *WORLD, *words).out, kgqa("score", "run").out):
        line = next(each for each in said.splitlines() if each.startswith("Hits@1 over seeds"))
        assert line.count(" seeds)") + line.count("with each of 2 seeds") == 2
        assert {"run.limit=5", "run.limit=10"} <= set(line.replace(";", "").split())


def test_files_and_json_have_the_means_over_seeds(kgqa: Kgqa) -> None:
    words = ("method=cot", "run.seed=0,1", "llm=oracle", "llm.error_rate=0.4", "run.dir=run")
    swept = json.loads(kgqa("sweep", *WORLD, *words, "table=swept.md", "json=true").out)
    scored = json.loads(kgqa("score", "run", "table=scored.csv", "json=true").out)
    assert swept["seeds"] == scored["seeds"]
    assert [each["seeds"] for each in swept["seeds"]] == [2]
    compared = json.loads(kgqa("compare", "run", "table=compared.tex", "json=true").out)
    assert compared["seeds"][0]["mean"] == pytest.approx(swept["seeds"][0]["mean"])
    assert "Hits@1 over seeds" in Path("swept.md").read_text()
    assert "over seeds" in Path("compared.tex").read_text()
    assert any("seeds" in file.read_text() for file in Path().glob("scored*.csv"))
