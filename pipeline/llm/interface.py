"""The interfaces of language models: what backends implement and what methods use (specification §2.3)."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol, Self, TypeVar

from pipeline.kg.interface import KnowledgeGraph
from pipeline.llm.prompt import Call, Completion, Prompt, Sampling
from pipeline.types import Example

T = TypeVar("T")
FROM_GOLD = "oracle"
"""The label of a simulated model that replies from the gold answers."""
APPROXIMATE = "approximate choices"
"""The label of a language model whose probabilities of choices are estimated (`llm.approximate_choices`)."""


def simulated(label: str | None) -> str | None:
    """Return what a label names in place of a language model, in all roles or some; None if nothing replaced one."""
    return ", ".join(part for part in (label or "").split(", ") if part not in {"", APPROXIMATE}) or None


def replies_from_gold(label: str | None) -> bool:
    """Whether a model of this label, or one that answers some of its roles, replies from the gold answers."""
    return FROM_GOLD in (label or "").split(", ")


def is_told_gold(method: str) -> bool:
    """Whether a method of this name in tables gets gold answers, or hears whether an answer is right (§6.6)."""
    return FROM_GOLD in method


def is_closed_book(label: str | None, calls: float | None, lookups: float | None) -> bool:
    """Whether the score is the model's alone: it replied from the gold answers, and the graph was not asked."""
    return replies_from_gold(label) and calls != 0 and lookups == 0


def capped_identity(identity: str, cap: int | None) -> str:
    """Return the identity of a model whose replies have at most `cap` tokens, which is a part of the key of a call."""
    return identity if cap is None else f"{identity}-max{cap}"


class Model(Protocol):
    """Answers the calls of one question. Retries transport errors, and raises ServiceError after the last retry."""

    def identity_of(self, role: str) -> str:
        """Return the name and revision of the model that answers a role, without its URL. Part of every call key."""
        ...

    async def complete(self, call: Call) -> Completion:
        """Answer one call."""
        ...

    async def choose(self, call: Call) -> Completion:
        """Return a completion with the `probabilities` of `call.choices` as the continuation of the prompt."""
        ...


class OneModel:
    """Base of backends with the same model for every role."""

    identity: str
    """Name and revision of the model. Set on opening."""

    def identity_of(self, role: str) -> str:
        """Return the identity of the model."""
        return self.identity


class ModelBackend(Protocol):
    """A model backend, as `llm=…` configures it: opened once per worker, gives a model for each question."""

    @property
    def identity(self) -> str:
        """Name and revision of the model. Known after opening."""
        ...

    @property
    def label(self) -> str | None:
        """Printed in every table if the answers are not a language model's (`oracle`, `similarity`), or `APPROXIMATE`.

        Otherwise None.
        """
        ...

    async def __aenter__(self) -> Self: ...
    async def __aexit__(self, *exc: object) -> None: ...

    def for_question(self, example: Example, kg: KnowledgeGraph) -> Model:
        """Return the model for this question's calls: the backend itself, unless it uses the question (oracle)."""
        ...


class LanguageModel(Protocol):
    """A `Model` as a method sees it: calls are cached, budgeted and traced for its question."""

    async def ask(self, prompt: Prompt[T], sampling: Sampling, *, retries: int = 2, last: bool = False) -> T:
        """Render, complete and parse a prompt; re-ask up to `retries` times, then fall back (specification §2.4).

        `last` marks the answering call, which is allowed at a limit of the budget. Other calls raise BudgetExhausted.
        """
        ...

    async def read(
        self, prompt: Prompt[T], sampling: Sampling, *, retries: int = 2, last: bool = False
    ) -> tuple[T, Completion]:
        """Do the same as `ask`, and also return the completion that the value was parsed from."""
        ...

    async def complete(self, prompt: Prompt[T], sampling: Sampling) -> Completion:
        """Complete a prompt, and leave the parsing to the method. Raises BudgetExhausted."""
        ...

    async def choose(self, prompt: Prompt[T], choices: Sequence[str], sampling: Sampling) -> dict[str, float]:
        """Return the probability of each choice as the prompt's continuation; they sum to 1. Raises BudgetExhausted."""
        ...
