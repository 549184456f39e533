"""The error for a graph without a fact: every method would look for its answers in vain, and score 0."""

from __future__ import annotations

from pipeline.errors import UserError


def empty_graph(name: str) -> UserError:
    """Return the error that names the graph and says where to look."""
    return UserError(f"{name} has no facts: see whether its file is empty or was copied only in part")
