"""What RAG shows to the model: nodes with features, or facts, cut to a number of tokens."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Literal, TypeAlias, TypeVar

from pipeline.types import EntityId, Triple

T = TypeVar("T")

Order: TypeAlias = Literal["nested", "breadth"]
"""`nested` shows a neighbour's own neighbours directly behind it, `breadth` shows the first ring before the second."""

_CHARACTERS_PER_TOKEN = 4


@dataclass(frozen=True, slots=True)
class NodeText:
    """A node as a prompt shows it."""

    id: EntityId
    name: str | None
    lines: tuple[str, ...]
    """Its own line; before it, the line that names the connection if this node is the first one on it."""
    values: tuple[str, ...]
    """The texts of its features, for simulated models."""
    facts: tuple[Triple, ...]
    """The connection that led to it, and its features."""


def fit(items: Sequence[T], text: Callable[[T], str], max_tokens: int) -> tuple[T, ...]:
    """Return the longest run of first items whose texts have at most `max_tokens` tokens, four characters each."""
    characters = max_tokens * _CHARACTERS_PER_TOKEN
    for count, item in enumerate(items):
        characters -= len(text(item)) + 1
        if characters < 0:
            return tuple(items[:count])
    return tuple(items)
