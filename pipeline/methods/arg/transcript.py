"""The transcript that grows along a path, and the prompts that show it to a generator (specification §4.3, §4.8)."""

from __future__ import annotations

from abc import ABC
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import ClassVar, TypeVar

from pipeline.llm.prompt import Prompt, Template
from pipeline.methods.arg.tokens import (
    CLOSE,
    NO_RETRIEVAL,
    OPEN,
    RETRIEVE_RELATION,
    ReflectionToken,
    escape,
    find_tokens,
)
from pipeline.methods.parsing import LenientPrompt, match_key
from pipeline.methods.rendering import Names, as_question, node_name, one_line, quoted
from pipeline.types import Node, Question

T = TypeVar("T")

UNKNOWN_ENTITY = "Unknown Entity"
"""The placeholder that is printed for every unnamed node."""

FINETUNED = Template(system="", user="{{question}}", assistant="{{text}}")
"""For a model trained on transcripts: it continues its own turn, which holds the transcript so far."""


@dataclass(frozen=True)
class Segment(LenientPrompt[T], ABC):
    """A piece of the transcript that the generator writes."""

    explained: ClassVar[Template]
    """For a model that was not fine-tuned: the tokens explained, and what to write in this turn."""

    question: Question
    prompted: bool
    """Whether the prompt explains the tokens, for a model that was not fine-tuned on them."""
    transcript: str
    """Up to and including the retrieval token that this segment follows."""

    @property
    def text_so_far(self) -> str:
        """The transcript up to where the model continues."""
        return self.transcript

    @property
    def template(self) -> Template:
        return self.explained if self.prompted else FINETUNED

    def inputs(self) -> dict[str, str]:
        text = escape(one_line(self.question.text))
        if not self.prompted:
            return {"question": text, "text": self.text_so_far}
        return {"question": as_question(text), "text": self.text_so_far, **self.turn()}

    def turn(self) -> dict[str, str]:
        """Return the further inputs of the explanation of this turn."""
        return {}


@dataclass(frozen=True)
class TokenChoice(Prompt[str]):
    """The choice of one reflection token of a segment among its class; the method reads the probabilities."""

    role = "arg.token"

    segment: Segment[object]
    prefix: str
    """The segment up to the token."""
    token: ReflectionToken

    @property
    def template(self) -> Template:
        return self.segment.template

    def inputs(self) -> dict[str, str]:
        return self.segment.inputs() | {"text": self.segment.text_so_far + self.prefix}

    def parse(self, text: str) -> str:
        return text

    def fallback(self, text: str) -> str:
        return text


@dataclass(frozen=True, slots=True)
class Labelled:
    """A name with its relevance."""

    name: str
    token: ReflectionToken


def printed_node(node: Node, names: Names) -> str:
    """Return the name of a node as a transcript shows it. A name that is the placeholder itself is in quotes."""
    name = node_name(node, names)
    if name is None:
        return UNKNOWN_ENTITY
    line = escape(one_line(name))
    return quoted(line) if match_key(line) == match_key(UNKNOWN_ENTITY) else line


def paragraph(items: Iterable[str]) -> str:
    """Render a paragraph of graph content."""
    return f"{OPEN}{';'.join(map(escape, items))}{CLOSE}"


def write_labelled(labelled: Iterable[tuple[str, str]]) -> str:
    """Render names with their relevance, as `read_labelled` reads them."""
    return "".join(f"{escape(name)}{label}" for name, label in labelled)


def read_labelled(text: str) -> list[Labelled]:
    """Read the `name[relevance]` pairs of a segment.

    Reading stops at the first retrieval token. If the model wrote a paragraph itself, it starts after that.
    """
    tokens = find_tokens(text)
    end = next((token.start for token in tokens if token.kind == "retrieval"), len(text))
    own_paragraph = text.rfind(CLOSE, 0, end)
    position = own_paragraph + len(CLOSE) if own_paragraph >= 0 else 0
    pairs: list[Labelled] = []
    for token in (token for token in tokens if position <= token.start < end):
        if token.kind == "relevance":
            pairs.append(Labelled(text[position : token.start].strip(), token))
        position = token.end
    return pairs


def find_name(written: str, by_key: Mapping[str, str]) -> str | None:
    """Return the offered name that was written, ignoring remarks and list bullets before it; None if there is none.

    `by_key` holds the offered names by the `match_key` of their printed form.
    """
    last_line = written.rpartition("\n")[2]
    for candidate in (written, last_line, last_line.strip(" \t;,*-")):
        if (name := by_key.get(match_key(candidate))) is not None:
            return name
    return None


def end_with(written: str, retrieval: str) -> str:
    """Cut a segment at its first retrieval token, and end it with the token `retrieval`."""
    starts = (token.start for token in find_tokens(written) if token.kind == "retrieval")
    return written[: next(starts, len(written))].rstrip() + retrieval


def without_retrieval(transcript: str) -> str:
    """Replace `[Retrieve Relation]` at the end of a transcript so that the model answers instead."""
    return f"{transcript.removesuffix(RETRIEVE_RELATION)}{NO_RETRIEVAL}Answer:"
