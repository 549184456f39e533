"""`kgqa ablations`: one run for a method and all of its ablations."""

from __future__ import annotations

import re
from pathlib import Path

import polars as pl
import pytest
import yaml

from pipeline.papers.ablations import ABLATIONS
from tests.cli.conftest import WORLD, Kgqa

ERRING = (*WORLD, "llm=oracle", "llm.error_rate=0.3", "run.dir=run")


@pytest.mark.exhaustive
@pytest.mark.parametrize(
    "method", [pytest.param(each, marks=[] if each == "r3" else pytest.mark.exhaustive) for each in ABLATIONS]
)
def test_prints_every_ablation_with_its_paired_difference(method: str, kgqa: Kgqa, tmp_path: Path) -> None:
    shown = kgqa("ablations", f"method={method}", *ERRING)
    assert shown.code == 0, shown.err
    text = " ".join(shown.out.split())
    for ablation in ABLATIONS[method]:
        assert ablation.part.split()[0] in text
    rows = pl.read_parquet(tmp_path / "run/traces/*.parquet", columns=["point", "question_id", "hits_at_1"])
    points = rows["point"].n_unique()
    assert points == len({preset for each in ABLATIONS[method] for preset in (each.base, each.preset)})
    assert rows.height == 20 * points
    base, first = (rows.filter(point=point)["hits_at_1"].mean() for point in (0, 1))
    if ABLATIONS[method][0].base == method:  # then the whole method is point 0, and the first ablation is point 1
        assert re.search(rf"Hits@1 +{100 * base:.1f} → {100 * first:.1f}", shown.out)  # type: ignore[operator]


@pytest.mark.exhaustive
def test_an_override_does_not_undo_an_ablation(kgqa: Kgqa, tmp_path: Path) -> None:
    assert kgqa("ablations", "method=arg", "method.depth=3", *ERRING).code == 0
    points = yaml.safe_load((tmp_path / "run/run.yaml").read_text(encoding="utf-8"))["points"]
    depths = {point["config"]["choices"]["experiment"]: point["config"]["method"]["depth"] for point in points}
    of_depth = {f"arg_depth_{depth}": depth for depth in (1, 2, 3)}
    assert depths == dict.fromkeys(depths, 3) | of_depth


@pytest.mark.exhaustive
def test_the_second_time_there_is_nothing_to_run(kgqa: Kgqa) -> None:
    first, second = (kgqa("ablations", "method=r3", *ERRING) for _ in range(2))
    assert "nothing to run" in second.err
    assert second.out == first.out


@pytest.mark.parametrize(
    ("words", "sentence"),
    [
        ("method=cot", "method=cot has no ablations. Methods that have: srp, arg, parog, pog, r3, rog, dog"),
        ("experiment=readi", "experiment=readi cannot be combined with ablations"),
        ("method=srp method.dpth=1", "unknown key 'method.dpth'"),
    ],
)
def test_mistakes(words: str, sentence: str, kgqa: Kgqa) -> None:
    assert kgqa("ablations", *words.split()).sentence.startswith(sentence)
