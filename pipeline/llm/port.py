"""The model port: what a method may ask of a language model, and what a backend has to provide (methods.md §2.3)."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol, Self, TypeVar

from pipeline.kg.port import KnowledgeGraph
from pipeline.llm.prompt import Call, Completion, Prompt, Sampling
from pipeline.types import Example

T = TypeVar("T")


class Model(Protocol):
    """Answers one question's calls. It retries transport errors itself and raises ServiceError when it gives up."""

    def identity_of(self, role: str) -> str:
        """What answers a role (name and revision), never where: part of every call key."""
        ...

    async def complete(self, call: Call) -> Completion:
        """Answer one call."""
        ...

    async def choose(self, call: Call) -> Completion:
        """Weigh `call.choices` as the continuation of the prompt; the completion carries `probabilities`."""
        ...


class OneModel:
    """What models have in common that answer every role alike."""

    identity: str
    """What is served. Set once opened."""

    def identity_of(self, role: str) -> str:
        """The same for all."""
        return self.identity


class ModelBackend(Protocol):
    """What `llm=…` builds: opened once per worker, then asked for the model of each question."""

    @property
    def identity(self) -> str:
        """What is served. Known once opened."""
        ...

    @property
    def label(self) -> str | None:
        """Printed in every table when the answers are not a language model's: `oracle`, `similarity`. Or None."""
        ...

    async def __aenter__(self) -> Self: ...
    async def __aexit__(self, *exc: object) -> None: ...

    def for_question(self, example: Example, kg: KnowledgeGraph) -> Model:
        """The model that answers this question's calls; the backend itself unless it knows the question (oracle)."""
        ...


class LanguageModel(Protocol):
    """The part of a model that a method sees: its calls are memoised, budgeted and traced for its question."""

    async def ask(self, prompt: Prompt[T], sampling: Sampling, *, retries: int = 2, last: bool = False) -> T:
        """Render, complete and parse by the policy of methods.md §2.4: re-ask up to `retries` times, then fall back.

        `last` marks the answering call, which is allowed after a cap was hit. Raises BudgetExhausted otherwise.
        """
        ...

    async def read(
        self, prompt: Prompt[T], sampling: Sampling, *, retries: int = 2, last: bool = False
    ) -> tuple[T, Completion]:
        """As `ask`, with the completion that the value was read from: its text and log-probabilities."""
        ...

    async def complete(self, prompt: Prompt[T], sampling: Sampling) -> Completion:
        """Complete without parsing. Raises BudgetExhausted."""
        ...

    async def choose(self, prompt: Prompt[T], choices: Sequence[str], sampling: Sampling) -> dict[str, float]:
        """Probability of each choice as the continuation of the prompt, summing to 1. Raises BudgetExhausted."""
        ...
