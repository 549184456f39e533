"""What RAG shows to the model: nodes with features, or facts, cut to a number of tokens."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal, TypeAlias

from pipeline.types import EntityId, Triple

Order: TypeAlias = Literal["nested", "breadth"]
"""`nested` shows a neighbour's own neighbours directly behind it, `breadth` shows the first ring before the second."""


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
