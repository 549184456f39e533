"""Reads what the agent's prompts say about each kind of graph from `domains.yaml` (specification §6.2)."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache
from pathlib import Path

from pipeline.text import load_yaml


@dataclass(frozen=True, slots=True)
class Domain:
    """The description of a kind of graph."""

    schema: str
    examples: tuple[str, str, str]
    """Worked examples with invented facts."""


def describe(domain: str) -> Domain:
    """Return the description of a domain, or a general one for an unknown domain."""
    return _domains().get(domain, _domains()["unknown"])


@cache
def _domains() -> dict[str, Domain]:
    entries = load_yaml(Path(__file__).with_name("domains.yaml").read_text(encoding="utf-8"))
    return {name: Domain(entry["schema"], tuple(entry["examples"])) for name, entry in entries.items()}
