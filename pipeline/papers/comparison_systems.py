"""Reads why no preset runs some systems in the papers' tables, from `comparison_systems.yaml`."""

from __future__ import annotations

from collections.abc import Mapping
from functools import cache
from pathlib import Path

import yaml
from pydantic import BaseModel, ConfigDict, TypeAdapter

_FILE = Path(__file__).with_name("comparison_systems.yaml")


class ComparisonSystem(BaseModel):
    """A system that a paper compares itself with, and that no preset runs."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    what: str
    """What the system does."""
    reason: str
    """Why no preset runs it; equal for systems with the same reason."""


@cache
def comparison_systems() -> Mapping[str, ComparisonSystem]:
    """Return the systems by the name that the papers give them."""
    return TypeAdapter(dict[str, ComparisonSystem]).validate_python(yaml.safe_load(_FILE.read_text(encoding="utf-8")))
