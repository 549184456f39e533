"""Reads what the papers compare themselves with, and which presets run it, from `comparison_systems.yaml`."""

from __future__ import annotations

from collections.abc import Mapping
from functools import cache
from pathlib import Path
from typing import Self

from pydantic import TypeAdapter, model_validator

from pipeline.papers.published import Figure, Part
from pipeline.text import load_yaml

_FILE = Path(__file__).with_name("comparison_systems.yaml")


class ComparisonSystem(Part):
    """A system that a paper compares itself with."""

    what: str
    """What the system does."""
    code: str | None = None
    """The URL of its authors' code; None if none was found, or none is needed."""
    presets: tuple[str, ...] = ()
    """The experiments that run it."""
    note: str | None = None
    """What to mind when its presets are compared with its published numbers."""
    reason: str | None = None
    """Why no preset runs it; equal for systems with the same reason."""

    @model_validator(mode="after")
    def _check(self) -> Self:
        if bool(self.presets) == (self.reason is not None):
            raise ValueError("a system needs either presets or a reason")
        return self


@cache
def comparison_systems() -> Mapping[str, ComparisonSystem]:
    """Return the systems by the name that the papers give them."""
    return TypeAdapter(dict[str, ComparisonSystem]).validate_python(load_yaml(_FILE.read_text(encoding="utf-8")))


def why_not_run(figure: Figure) -> str:
    """Return why no preset runs the row of a published figure: what the row says, else what its system says."""
    reason = figure.reason or comparison_systems()[figure.method].reason
    assert reason is not None, f"{figure.row} has neither a preset nor a reason"
    return reason
