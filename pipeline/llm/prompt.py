"""Typed prompts: each model call of a method is a small class with named inputs, a template and a parser.

The same prompt object can be rendered for a served model, answered by the oracle (`write_as_oracle`), answered by
the similarity policy (`write_by_similarity`) or replayed from a trace. Whatever answers it writes *text*, which goes
through the same `parse`.
"""

from __future__ import annotations

import hashlib
import math
import re
from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from random import Random
from typing import TYPE_CHECKING, Any, ClassVar, Generic, NamedTuple, TypeVar

if TYPE_CHECKING:
    from pipeline.llm.oracle import Truth
    from pipeline.retrieval.lexical import LexicalEncoder

T = TypeVar("T")

_SLOT = re.compile(r"\{\{(\w+)\}\}")


class Message(NamedTuple):
    """One chat message."""

    role: str
    """`system`, `user` or `assistant`."""
    content: str


class Template:
    """The fixed text of a prompt (instructions and worked examples) with `{{name}}` slots for its inputs.

    The text is stored once per run under `digest`; a trace step holds only its inputs.
    """

    def __init__(self, *, system: str, user: str, assistant: str = "") -> None:
        """`assistant` begins the model's turn, for it to go on with; without it the model answers the user's."""
        self.system = system
        self.user = user
        self.assistant = assistant
        texts = {"system": system, "user": user} | ({"assistant": assistant} if assistant else {})
        self.digest = hashlib.blake2b("\0".join(texts.values()).encode(), digest_size=8).hexdigest()
        self._pieces = {role: _SLOT.split(text) for role, text in texts.items()}

    def render(self, inputs: Mapping[str, str]) -> tuple[Message, ...]:
        """Fill the slots; an input is inserted as it is, never scanned for slots. Raises KeyError for a missing one.

        An input called `complaint` has no slot: a re-ask's line that names the defect of the previous reply.
        """
        messages = [Message(role, _fill(pieces, inputs)) for role, pieces in self._pieces.items() if pieces != [""]]
        if complaint := inputs.get("complaint"):
            line = f"Your previous reply could not be used: {complaint}. Reply again in exactly the form asked for."
            asked = -2 if self.assistant else -1
            messages[asked] = Message(messages[asked].role, f"{messages[asked].content}\n\n{line}")
        return tuple(messages)


@lru_cache(1024)
def compact(role: str, template: Template) -> Template:
    """What a model fine-tuned on a role's own calls is sent: the role's name for the instructions and worked examples.

    A template without a system text was written for such a model, and stays as it is.
    """
    return Template(system=role, user=template.user, assistant=template.assistant) if template.system else template


def _fill(pieces: list[str], inputs: Mapping[str, str]) -> str:
    return "".join(inputs[piece] if index % 2 else piece for index, piece in enumerate(pieces))


@dataclass(frozen=True, slots=True)
class Sampling:
    """How a completion is drawn. Part of the call key."""

    temperature: float = 0.0
    max_tokens: int = 1024
    top_p: float = 1.0
    stop: tuple[str, ...] = ()
    logprobs: int | None = None
    """How many log-probabilities to return per generated token; None for none."""


@dataclass(frozen=True, slots=True)
class Completion:
    """What a model returned for one call."""

    text: str
    finish_reason: str = "stop"
    prompt_tokens: int = 0
    completion_tokens: int = 0
    logprobs: tuple[Mapping[str, float], ...] | None = None
    """Per generated token, the natural log-probabilities reported there, its own first; None when not asked for."""
    probabilities: Mapping[str, float] | None = None
    """For `choose`: the probability of each choice, summing to 1. None for a plain completion."""

    @classmethod
    def of_choices(cls, logprobs: Mapping[str, float], *, prompt_tokens: int, completion_tokens: int) -> Completion:
        """The softmax over choices of the log-probabilities that a model has for them (methods.md §4.6)."""
        highest = max(logprobs.values())
        weights = {choice: math.exp(logprob - highest) for choice, logprob in logprobs.items()}
        total = sum(weights.values())
        probabilities = {choice: weight / total for choice, weight in weights.items()}
        return cls(
            text=max(probabilities, key=probabilities.__getitem__),
            prompt_tokens=prompt_tokens,
            completion_tokens=completion_tokens,
            probabilities=probabilities,
        )


class Prompt(ABC, Generic[T]):
    """One model call of a method, answered by a value of type `T`. Subclasses are frozen dataclasses."""

    role: ClassVar[str]
    """Stable name such as `srp.judge`: accounting, per-role overrides, traces."""
    aids: ClassVar[frozenset[str]] = frozenset()
    """Inputs that help with what is asked and are no part of it, such as references. A simulated model errs on the same
    calls with and without them, so that what they are worth is not lost in the noise of other draws."""
    alternatives: ClassVar[Sequence[Sequence[str]]] = ()
    """Tokens among which the model decides, group by group, where a method reads their probabilities."""

    @property
    @abstractmethod
    def template(self) -> Template:
        """The fixed text. A module-level constant, so that it is hashed once."""

    @abstractmethod
    def inputs(self) -> dict[str, str]:
        """The text for each slot of the template."""

    @abstractmethod
    def parse(self, text: str) -> T:
        """Read a model's text. Raises ParseError, naming the defect in one line; it never evaluates the text."""

    @abstractmethod
    def fallback(self, text: str) -> T:
        """The value to go on with when no reply could be parsed; `text` is the last one (methods.md §2.4, rule 4)."""

    @abstractmethod
    def write_as_oracle(self, truth: Truth, slip: Random | None) -> str:
        """The text that a perfect model would write; with `slip`, a well-formed but wrong one drawn from it."""

    @abstractmethod
    def write_by_similarity(self, encoder: LexicalEncoder) -> str:
        """The text that a model-free policy writes, by lexical similarity alone."""

    def messages(self) -> tuple[Message, ...]:
        """The rendered prompt."""
        return self.template.render(self.inputs())


@dataclass(frozen=True)
class Call:
    """One request to a model, complete with everything that decides the answer."""

    prompt: Prompt[Any]
    messages: tuple[Message, ...]
    sampling: Sampling
    key: str
    """Call key: hash of served-model identity, messages, sampling, choices and ordinal."""
    seed: int
    """Sampling seed, derived from the key."""
    choices: tuple[str, ...] = ()
    """For `choose`: the texts to weigh; empty for a completion."""
    nonce: str = ""
    """Tells calls of one prompt apart: the run's seed where something is drawn, the ordinal, a complaint."""
    template: Template | None = None
    """The fixed text that the messages were rendered from, where that need not be the prompt's own."""
