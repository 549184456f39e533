"""What the tests of the checks share."""

from __future__ import annotations

from collections.abc import Sequence

from pipeline import config
from pipeline.engine.checkup.finding import Finding
from pipeline.engine.run import Point


def point(*words: str) -> Point:
    """The configuration that `kgqa doctor` would make of these words, on a small world."""
    words = ("dataset.triples=2000", *words)
    return Point(words, config.compose(words))


def worst(findings: Sequence[Finding]) -> tuple[str, str, str]:
    """Level, finding and mend of the only one that is not as it should be."""
    (finding,) = (finding for finding in findings if finding.level != "ok")
    return finding.level, finding.found, finding.mend
