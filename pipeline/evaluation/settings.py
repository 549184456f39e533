"""What a user may choose about scoring (`conf/evaluation/`)."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import ConfigDict, Field
from pydantic.dataclasses import dataclass


@dataclass(frozen=True, kw_only=True, config=ConfigDict(extra="forbid"))
class Evaluation:
    """How answers are scored and how the scores are averaged (methods.md §9.2)."""

    strip_accents: bool = True
    empty_gold: Literal["exclude", "strict_empty"] = "exclude"
    bootstrap_resamples: Annotated[int, Field(ge=100)] = 10_000
    confidence: Annotated[float, Field(gt=0, lt=1)] = 0.95
    bootstrap_seed: Annotated[int, Field(ge=0)] = 0


DEFAULT = Evaluation()
