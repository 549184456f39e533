"""The configuration of scoring: the section `evaluation` (`conf/evaluation/default.yaml`)."""

from __future__ import annotations

from typing import Annotated, Literal, TypedDict

from pydantic import ConfigDict, Field
from pydantic.dataclasses import dataclass


class Bootstrap(TypedDict):
    """Keyword arguments that every bootstrap function of `pipeline.evaluation.statistics` takes."""

    resamples: int
    confidence: float
    seed: int


@dataclass(frozen=True, kw_only=True, config=ConfigDict(extra="forbid"))
class ScoringConfig:
    """How answers are scored and how scores are averaged (specification §9.2)."""

    strip_accents: bool
    empty_gold: Literal["exclude", "strict_empty"]
    bootstrap_resamples: Annotated[int, Field(ge=100, le=1_000_000)]
    confidence: Annotated[float, Field(gt=0, lt=1)]
    bootstrap_seed: Annotated[int, Field(ge=0)]

    @property
    def bootstrap(self) -> Bootstrap:
        """Return the keyword arguments for every bootstrap."""
        return Bootstrap(resamples=self.bootstrap_resamples, confidence=self.confidence, seed=self.bootstrap_seed)
