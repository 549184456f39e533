"""What a method is: a pure program over two ports (design: idea 1).

A method is a frozen dataclass of hyper-parameters with one coroutine. It knows nothing of Ray, HTTP, Parquet or gold
answers, and reads like its pseudo-code in methods.md.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from random import Random
from typing import Protocol, runtime_checkable

from pipeline.kg.port import AttributeLookups, GraphLookups
from pipeline.llm.port import LanguageModel
from pipeline.retrieval.port import Retrieval
from pipeline.types import Answer, Prediction, Question


class Recorder(Protocol):
    """Writes the decisions of a method into the trace of its question."""

    def __call__(self, event: str, /, **payload: object) -> None:
        """Record one event of methods.md §2.6; the payload must be JSON."""
        ...


class RandomSource(Protocol):
    """Hands out generators seeded by (run seed, question, role, round), so that no two runs differ (§2.7)."""

    def __call__(self, role: str, round: int = 0, /) -> Random: ...


class Caps(Protocol):
    """The caps of methods.md §2.5 that a method itself keeps."""

    @property
    def max_evidence_triples(self) -> int: ...
    @property
    def max_frontier(self) -> int: ...


class Verdict(Protocol):
    """One bit of gold, for the failure signal that is called an oracle (methods.md §6.6)."""

    def __call__(self, predictions: Sequence[Prediction], /) -> bool:
        """Whether the answers are the gold answers, no more and no less, after normalisation."""
        ...


@dataclass(frozen=True, slots=True)
class Tools:
    """All that a method has to work with for one question."""

    llm: LanguageModel
    kg: GraphLookups
    retrieval: Retrieval
    record: Recorder
    rng: RandomSource
    caps: Caps
    attributes: AttributeLookups | None = None
    """Lookups that only a graph of nodes with attributes (GRBench) answers; None for a graph of triples."""
    verdict: Verdict | None = None
    """Present for a method that is `Refereed` alone."""


class Method(Protocol):
    """A question answering method."""

    name: str
    """As printed in tables; a variant that must not be compared with the paper's row says so here."""

    async def answer(self, question: Question, tools: Tools) -> Answer:
        """Answer one question. Handles BudgetExhausted by answering from what is known."""
        ...


@runtime_checkable
class Refereed(Protocol):
    """What a method has that may be told whether an answer is right. Its name says `oracle` wherever it is."""

    refereed: bool
