"""Typed prompts: each model call of a method is a small class with a role, a template, named inputs and a parser.

Every kind of model (served, simulated, replayed from a trace) answers with text, which the prompt's `parse` reads.
"""

from __future__ import annotations

import hashlib
import logging
import math
import re
from abc import ABC, abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass, field, fields
from functools import lru_cache
from typing import Annotated, Any, ClassVar, Generic, Literal, NamedTuple, TypeAlias, TypeVar

from pydantic import Field, TypeAdapter

from pipeline.errors import UserError

T = TypeVar("T")

log = logging.getLogger(__name__)

_SLOT = re.compile(r"\{\{(\w+)\}\}")


class Message(NamedTuple):
    """One chat message."""

    role: str
    """`system`, `user` or `assistant`."""
    content: str


class Template:
    """The fixed text of a prompt (instructions and worked examples) with `{{name}}` slots for its inputs.

    A run stores the text once under its `digest`; a trace step stores only the inputs.
    """

    def __init__(self, *, user: str, system: str = "", assistant: str = "") -> None:
        """Split the texts at their slots. `assistant` is the beginning of the reply, which the model continues."""
        self.system = system
        self.user = user
        self.assistant = assistant
        texts = {"system": system, "user": user} | ({"assistant": assistant} if assistant else {})
        self.digest = hashlib.blake2b("\0".join(texts.values()).encode(), digest_size=8).hexdigest()
        self._pieces = {role: _SLOT.split(text) for role, text in texts.items()}

    def render(self, inputs: Mapping[str, str]) -> tuple[Message, ...]:
        """Fill the slots. Inputs are inserted unchanged and not scanned for slots. Raises KeyError for a missing input.

        The input `complaint` has no slot: it is the error in the previous reply, added by a re-ask at the end.
        """
        messages = [Message(role, _fill(pieces, inputs)) for role, pieces in self._pieces.items() if pieces != [""]]
        if complaint := inputs.get("complaint"):
            line = f"Your previous reply could not be used: {complaint}. Reply again in exactly the form asked for."
            asked = -2 if self.assistant else -1
            messages[asked] = Message(messages[asked].role, f"{messages[asked].content}\n\n{line}")
        return tuple(messages)


@lru_cache(1024)
def inputs_only(role: str, template: Template) -> Template:
    """Return the template for a model that was fine-tuned on the role's calls: the role's name is the system text.

    A template without a system text already has this short form, and is returned unchanged.
    """
    if not template.system:
        return template
    if slot := _SLOT.search(template.system):
        log.warning(
            "the model is not told %s of the prompt %s: it is in the system text, which llm.prompt_style=inputs_only "
            "does not send",
            slot[1],
            role,
        )
    return Template(system=role, user=template.user, assistant=template.assistant)


def _fill(pieces: list[str], inputs: Mapping[str, str]) -> str:
    return "".join(inputs[piece] if index % 2 else piece for index, piece in enumerate(pieces))


@dataclass(frozen=True, slots=True)
class Sampling:
    """Sampling parameters of a completion. Part of the call key."""

    temperature: float = 0.0
    max_tokens: int = 1024
    top_p: float = 1.0
    stop: tuple[str, ...] = ()
    logprobs: int | None = None
    """Number of log-probabilities to return per generated token; None returns none."""
    candidates: int = 1
    """Number of texts to return (specification §16.2). All of them are one call."""
    search: Literal["sample", "beam"] = "sample"
    """How several candidates are found: by independent draws, or by a beam search of this width."""
    length_penalty: float = 1.0
    """The score of a beam is the sum of its log-probabilities, divided by its length to the power of this."""

    def __post_init__(self) -> None:
        if self.candidates == 1:
            return
        if self.candidates < 1:
            raise UserError(f"a call cannot return {self.candidates} candidates: ask for 1 or more")
        if self.search == "sample" and self.temperature == 0:
            raise UserError(
                f"{self.candidates} draws at temperature 0 are {self.candidates} times the same text: set a "
                "temperature above 0, or search with beams"
            )
        if self.search == "beam" and (self.temperature > 0 or self.stop or self.logprobs is not None):
            raise UserError("a beam search takes temperature 0, no stop strings, and reports no log-probabilities")

    @property
    def is_beam_search(self) -> bool:
        """Whether candidates are searched with beams. A beam search of width 1 is a completion at temperature 0."""
        return self.search == "beam" and self.candidates > 1

    def as_hashed(self) -> dict[str, Any]:
        """Return the parameters as they are hashed and stored.

        Those of several candidates are left out for one, so that calls keep the keys that older runs recorded.
        """
        names = _ALL if self.candidates > 1 else _OF_ONE
        return {name: getattr(self, name) for name in names}


_ALL = tuple(each.name for each in fields(Sampling))
_OF_ONE = tuple(name for name in _ALL if name not in ("candidates", "search", "length_penalty"))

TokenCount: TypeAlias = Annotated[int, Field(ge=0, lt=2**31)]
"""A number of tokens. A trace stores it in 32 bits."""


@dataclass(frozen=True, slots=True)
class Candidate:
    """One of several texts that a call returns."""

    text: str
    finish_reason: str = "stop"
    score: Annotated[float, Field(allow_inf_nan=False)] | None = None
    """The higher the better, comparable within a call; None if the model reports none."""


@dataclass(frozen=True, slots=True)
class Completion:
    """A model's result for one call."""

    text: str
    """The only text, or the best of several candidates."""
    finish_reason: str = "stop"
    prompt_tokens: TokenCount = 0
    completion_tokens: TokenCount = 0
    """Summed over the candidates."""
    logprobs: tuple[Mapping[str, float], ...] | None = None
    """Per generated token of `text`, natural log-probabilities by text, its own first; None if not requested."""
    probabilities: Mapping[str, float] | None = None
    """For `choose`: the probability of each choice, summing to 1. None for a plain completion."""
    seconds: float | None = field(default=None, compare=False)
    """How long the model took, without queues of this process; None if that is not known."""
    candidates: tuple[Candidate, ...] = ()
    """If several were asked for, all of them, best first; empty for one."""

    @property
    def n_best(self) -> tuple[Candidate, ...]:
        """The candidates, best first; the only text if one was asked for."""
        return self.candidates or (Candidate(self.text, self.finish_reason),)

    @classmethod
    def of_choices(cls, logprobs: Mapping[str, float], *, prompt_tokens: int, completion_tokens: int) -> Completion:
        """Return the softmax of the choices' log-probabilities as a completion (specification §4.6)."""
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


STORED_COMPLETION = TypeAdapter(Completion)
"""Reads a completion from the values of a journal or a trace. Raises ValidationError if one has a wrong type."""


class Prompt(ABC, Generic[T]):
    """One model call of a method, whose reply is parsed to a `T`. Subclasses are frozen dataclasses."""

    role: ClassVar[str]
    """Stable name such as `srp.judge`, for accounting, per-role models and traces."""

    @property
    @abstractmethod
    def template(self) -> Template:
        """The fixed text. Return a module-level constant, so that it is hashed only once."""

    @abstractmethod
    def inputs(self) -> dict[str, str]:
        """Return the text for each slot of the template.

        Put solved questions into the slot `references`, and the question into `question`. `kgqa losses` does not take
        what these two name for something that the search has found.
        """

    @abstractmethod
    def parse(self, text: str) -> T:
        """Parse a model's reply without evaluating it. Raises ParseError with the defect in one line."""

    @abstractmethod
    def fallback(self, text: str) -> T:
        """Return the value to use if no reply can be parsed. `text` is the last reply (specification §2.4, rule 4)."""

    def messages(self) -> tuple[Message, ...]:
        """Return the rendered prompt."""
        return self.template.render(self.inputs())


@dataclass(frozen=True)
class Call:
    """One request to a model, with everything that determines the reply."""

    prompt: Prompt[Any]
    messages: tuple[Message, ...]
    sampling: Sampling
    key: str
    """Call key: hash of model identity, messages, sampling, choices and ordinal."""
    seed: int
    """Sampling seed, derived from the key."""
    choices: tuple[str, ...] = ()
    """For `choose`: the possible continuations; empty for a completion."""
    nonce: str = ""
    """Makes calls of equal prompts different: the run's seed if something is sampled, the ordinal, the complaint."""
    template: Template | None = None
    """The template of the messages, if it can differ from the prompt's."""
    question: str = ""
    """The id of the question. Its calls share the beginnings of their prompts."""
    ordinal: int = 0
    """How many equal calls the question has made before."""
    complaint: str | None = None
    """The error in the previous reply, if this call asks again."""
