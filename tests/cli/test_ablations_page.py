"""The figures of `docs/ablations.md` are those that its commands print today."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.cli.support import Kgqa

PAGE = (Path(__file__).resolve().parents[2] / "docs" / "ablations.md").read_text("utf-8")
SECTIONS = {"srp": "SRP", "arg": "ArG", "parog": "PARoG", "pog": "PoG", "r3": "R3-Cycle"}


def section(name: str) -> str:
    """The text of a method's section, without line breaks."""
    return " ".join(PAGE.partition(f"\n## {name} (")[2].partition("\n## ")[0].split())


def signed(share: float) -> str:
    """A difference as the page writes it: in percentage points, with a sign unless it rounds to zero."""
    text = f"{100 * share:+.1f}".replace("-", "−")
    return "0.0" if text.endswith("0.0") and len(text) == len("+0.0") else text


@pytest.mark.large
@pytest.mark.parametrize(("method", "keys"), [*((name, ()) for name in SECTIONS), ("r3", ("method.depth=4",))])
def test_each_interval_of_a_papers_metric_is_on_the_page(method: str, keys: tuple[str, ...], kgqa: Kgqa) -> None:
    if method == "srp":
        assert kgqa("build-references", "dataset=synthetic").code == 0
        keys = ("retrieval.reference_base=references/synthetic.jsonl",)
    done = kgqa("ablations", f"method={method}", *keys, "llm=oracle", "llm.error_rate=0.15", "json=true")
    assert done.code == 0, done.err
    firsts = {effect["ablation"]: effect for effect in reversed(json.loads(done.out)["effects"])}
    text = section(SECTIONS[method])
    for name, effect in firsts.items():
        low, high = map(signed, effect["interval"])
        assert f"[{low}, {high}]" in text or low == high == "0.0", f"{name}: [{low}, {high}]"


def test_the_sections_are_found() -> None:
    assert all("difference" in section(name) for name in SECTIONS.values())
    assert [signed(share) for share in (-0.0004, 0.0, 0.013, -0.164)] == ["0.0", "0.0", "+1.3", "−16.4"]
