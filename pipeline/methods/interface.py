"""The interface of a method, and the tools that a method works with.

A method is a frozen dataclass of hyper-parameters with one coroutine. It knows nothing of Ray, HTTP, Parquet or gold
answers, and reads like its pseudo-code in docs/specification.md.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from random import Random
from typing import Protocol, runtime_checkable

from pipeline.kg.interface import AttributeLookups, GraphLookups
from pipeline.llm.interface import LanguageModel, is_told_gold
from pipeline.retrieval.interface import Retrieval
from pipeline.types import Answer, Prediction, Question, RelationPath


class Recorder(Protocol):
    """Writes the decisions of a method into the trace of its question."""

    def __call__(self, event: str, /, **payload: object) -> None:
        """Record one event (specification §2.6). The payload must fit into JSON: a set, for instance, is refused."""
        ...


class RandomSource(Protocol):
    """Creates random generators seeded by run seed, question, role and round, so that runs repeat (§2.7)."""

    def __call__(self, role: str, round: int = 0, /) -> Random: ...


class Caps(Protocol):
    """The part of the budget that a method applies itself: two keys of `budget` (specification §2.5)."""

    @property
    def max_evidence_triples(self) -> int: ...
    @property
    def max_frontier(self) -> int: ...


class GoldFeedback(Protocol):
    """Reports whether an answer is correct: one bit of gold, for the `gold` failure signal (specification §6.6)."""

    def __call__(self, predictions: Sequence[Prediction], /, *, one_is_enough: bool = False) -> bool:
        """Return whether the predictions equal the gold answers after normalisation, none missing and none extra.

        With `one_is_enough`, whether one of them is a gold answer. True for a question that has no score, because it
        has no gold answers.
        """
        ...


class GoldPaths(Protocol):
    """Finds gold relation paths, for `method=rog method.planner=gold` (specification §16.2)."""

    async def __call__(self) -> list[RelationPath]:
        """Return the paths that lead from the topic entities to gold answers: the best of each, then the second."""
        ...


@dataclass(frozen=True, slots=True)
class Tools:
    """Everything that a method may use to answer one question."""

    llm: LanguageModel
    kg: GraphLookups
    retrieval: Retrieval
    record: Recorder
    rng: RandomSource
    caps: Caps
    """The budget, as far as a method applies it itself."""
    attributes: AttributeLookups | None = None
    """Lookups of a graph whose nodes have attributes (GRBench); None for a graph of triples."""
    gold_feedback: GoldFeedback | None = None
    """Only present for a method whose `uses_gold` is true."""
    gold_paths: GoldPaths | None = None
    """Only present for a method whose `uses_gold` is true. Its lookups are not those of the method."""


class Method(Protocol):
    """A question answering method."""

    name: str
    """Printed in tables (`table_name`). A variant that is not comparable to published results has a name of its own."""

    async def answer(self, question: Question, tools: Tools) -> Answer:
        """Answer one question. On BudgetExhausted, answer from what is known so far."""
        ...


@runtime_checkable
class BoundedCalls(Protocol):
    """Implemented by methods whose hyper-parameters bound their model calls, for `budget.max_llm_calls=auto`."""

    def most_llm_calls(self, question: Question, caps: Caps, /) -> int:
        """Return a bound on the model calls for a question, with those that repeat a call (specification §2.5)."""
        ...


def uses_graph(method: Method) -> bool:
    """Whether a method needs the graph. One that can do without it says so by an attribute `uses_graph`."""
    return bool(getattr(method, "uses_graph", True))


def uses_gold(method: Method) -> bool:
    """Whether a method gets gold feedback. One that can get it says so by an attribute `uses_gold`."""
    return bool(getattr(method, "uses_gold", False))


def table_name(method: Method) -> str:
    """Return the name of a method in traces and tables: it contains `oracle` while the method gets gold feedback."""
    return f"{method.name} (oracle)" if uses_gold(method) and not is_told_gold(method.name) else method.name
