"""Reads the ablations of each method, pairs of presets in `conf/experiment/` to compare, from `ablations.yaml`."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from pipeline.text import load_yaml


@dataclass(frozen=True, slots=True)
class Ablation:
    """Two presets that differ in one part of a method."""

    part: str
    """The change, as a table row names it."""
    preset: str
    """The preset with the change: `conf/experiment/PRESET.yaml`."""
    base: str
    """The preset without the change."""


_LISTED = load_yaml(Path(__file__).with_name("ablations.yaml").read_text(encoding="utf-8"))

ABLATIONS: Mapping[str, Sequence[Ablation]] = {
    method: [Ablation(part, preset, each["base"]) for each in compared for preset, part in each["presets"].items()]
    for method, compared in _LISTED.items()
}
"""By method, in the order of the table that `kgqa ablations` prints."""
