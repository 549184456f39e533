"""The list of ablations."""

from __future__ import annotations

import pytest

from pipeline.config import compose
from pipeline.papers.ablations import ABLATIONS, Ablation
from pipeline.papers.published import published_figures
from tests.support import sampled

ALL = [(method, ablation) for method, ablations in ABLATIONS.items() for ablation in ablations]


@pytest.mark.parametrize(("method", "ablation"), sampled(ALL), ids=lambda value: getattr(value, "preset", value))
def test_an_ablation_is_two_presets_of_its_method_that_differ(method: str, ablation: Ablation) -> None:
    base, changed = (compose([f"experiment={preset}"]) for preset in (ablation.base, ablation.preset))
    assert base["choices"]["method"] == changed["choices"]["method"] == method
    assert base["method"] != changed["method"]


@pytest.mark.parametrize("table", ["ablation", "settings", "depth", "width", "token types"])
def test_every_published_row_that_a_preset_runs_is_compared(table: str) -> None:
    compared = {preset for _, ablation in ALL for preset in (ablation.preset, ablation.base)}
    rows = {figure.preset for figure in published_figures() if figure.table == table and figure.preset != "tog"}
    assert rows - {None} <= compared
    assert len(rows) > 1
