"""One rounding of percentages for all commands and pages."""

from __future__ import annotations

import re
from pathlib import Path

from pipeline.percentages import one_decimal, percentage, signed_points

PACKAGE = Path(__file__).parents[1] / "pipeline"


def test_a_share_is_printed_alike_however_it_is_computed() -> None:
    for wrong in range(401):
        right = 400 - wrong
        expected = f"{(right * 10000 // 400 + 5) // 10 / 10:.1f}"  # 25 steps in 10,000 are exact
        assert {percentage(right / 400), percentage(1 - wrong / 400), percentage(right * 0.0025)} == {expected}


def test_halves_are_rounded_away_from_zero() -> None:
    assert [one_decimal(value) for value in (2.25, -2.25, 62.75, 2.2499999, 0.0)] == [2.3, -2.3, 62.8, 2.2, 0.0]
    assert [signed_points(value) for value in (0.0125, -0.0125, 0.0, -0.0003)] == ["+1.3", "-1.3", "+0.0", "+0.0"]


def test_no_module_rounds_percentages_by_itself() -> None:
    own = re.compile(r"\{100 \* [^{}]*:\+?\.1f\}|\{[^{}]*:\.1%\}")
    modules = PACKAGE.rglob("*.py")
    found = [f"{path.name}: {match}" for path in modules for match in own.findall(path.read_text())]
    assert not found, "use pipeline.percentages"
