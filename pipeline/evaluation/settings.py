"""What a user may choose about scoring (`conf/evaluation/`)."""

from __future__ import annotations

from typing import Annotated, Literal, TypedDict

from pydantic import ConfigDict, Field
from pydantic.dataclasses import dataclass


class Bootstrap(TypedDict):
    """What every bootstrap of `pipeline.evaluation.statistics` takes beside the scores."""

    resamples: int
    confidence: float
    seed: int


@dataclass(frozen=True, kw_only=True, config=ConfigDict(extra="forbid"))
class Evaluation:
    """How answers are scored and how the scores are averaged (methods.md §9.2)."""

    strip_accents: bool = True
    empty_gold: Literal["exclude", "strict_empty"] = "exclude"
    bootstrap_resamples: Annotated[int, Field(ge=100)] = 10_000
    confidence: Annotated[float, Field(gt=0, lt=1)] = 0.95
    bootstrap_seed: Annotated[int, Field(ge=0)] = 0

    @property
    def bootstrap(self) -> Bootstrap:
        """The settings of every interval."""
        return Bootstrap(resamples=self.bootstrap_resamples, confidence=self.confidence, seed=self.bootstrap_seed)


DEFAULT = Evaluation()
