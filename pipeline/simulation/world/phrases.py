"""Reads the vocabulary of the synthetic world from `phrases.yaml`: templates for its relations (see `language`)."""

from __future__ import annotations

from pathlib import Path

from pipeline.simulation.world.facts import Kind
from pipeline.simulation.world.language import Measure, Step, measure, step
from pipeline.text import load_yaml

_VOCABULARY = load_yaml(Path(__file__).with_name("phrases.yaml").read_text(encoding="utf-8"))

PLURALS: dict[Kind, tuple[str, ...]] = {kind: tuple(nouns) for kind, nouns in _VOCABULARY["plurals"].items()}
"""Kind → plural nouns for its entities."""

STEPS: tuple[Step, ...] = tuple(step(**entry) for entry in _VOCABULARY["steps"])

MEASURES: tuple[Measure, ...] = tuple(measure(**entry) for entry in _VOCABULARY["measures"])
