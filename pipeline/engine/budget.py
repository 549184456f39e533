"""The budget of a question: how many calls, lookups, seconds, facts and nodes it may use (specification §2.5)."""

from __future__ import annotations

import math
from typing import Literal

from pydantic import ConfigDict, NonNegativeFloat, NonNegativeInt, PositiveFloat, PositiveInt
from pydantic.dataclasses import dataclass

from pipeline.methods.interface import BoundedCalls, Method
from pipeline.types import Question


@dataclass(frozen=True, kw_only=True, config=ConfigDict(extra="forbid"))
class Budget:
    """The limits of one question. A method that meets one answers from what it has found so far.

    The keys are described in `conf/config.yaml`.
    """

    max_llm_calls: PositiveInt | Literal["auto"]
    """`auto` is the bound that follows from the hyper-parameters of the method, if it has one."""
    max_kg_queries: NonNegativeInt
    """Lookups that the method makes. Many nodes in one lookup count once, however many queries the server receives."""
    max_wall_s: PositiveFloat
    grace_s: NonNegativeFloat
    """Seconds after `max_wall_s` in which a method may still return its answer."""
    max_evidence_triples: PositiveInt
    """Facts shown to an answering call."""
    max_frontier: PositiveInt
    """Nodes or chains kept at each layer of a walk."""

    @property
    def limit_s(self) -> float:
        """Seconds after which a question without an answer is a failed row."""
        return self.max_wall_s + self.grace_s

    def most_llm_calls(self, method: Method, question: Question) -> float:
        """Return the model calls that a method may make for a question (specification §2.5)."""
        if self.max_llm_calls != "auto":
            return self.max_llm_calls
        return method.most_llm_calls(question, self) if isinstance(method, BoundedCalls) else math.inf
