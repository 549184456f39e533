"""Helpers of the tests of the checks."""

from __future__ import annotations

from collections.abc import Sequence

from pipeline import config
from pipeline.engine.configuration import Configuration
from pipeline.engine.doctor.finding import Finding


def point(*words: str) -> Configuration:
    """Compose a configuration on a small world."""
    words = ("dataset.triples=2000", *words)
    return Configuration(words, config.compose(words))


def worst(findings: Sequence[Finding]) -> tuple[str, str, str]:
    """Return level, text and fix of the only finding that is not `ok`."""
    (finding,) = (finding for finding in findings if finding.level != "ok")
    return finding.level, finding.found, finding.fix
