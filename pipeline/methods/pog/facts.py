"""Renders facts, sub-objectives and their status for PoG's prompts (specification §16.3)."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import TypeAlias

from pipeline.methods.grounded_path import GroundedPath
from pipeline.methods.node_labels import NodeLabels
from pipeline.methods.rendering import one_line
from pipeline.types import Node, Relation

Status: TypeAlias = tuple[tuple[str, str], ...]
"""Each sub-objective, with a sentence that says what is known of it."""


@dataclass(frozen=True, slots=True)
class ShownFacts:
    """The facts that a prompt shows."""

    facts: tuple[GroundedPath, ...]
    """One hop each; all their nodes have labels."""
    labels: NodeLabels
    left_out: int = 0
    """The number of facts for which there was no room."""

    def __str__(self) -> str:
        """Return one line per entity and relation, in the graph's own order: `subject | relation | objects`."""
        groups: dict[tuple[Node, Relation], list[str]] = {}
        for fact in self.facts:
            label = one_line(self.labels.label(fact.end))
            groups.setdefault((fact.start, fact.steps[0].relation), []).append(label)
        lines = [self._line(node, relation, reached) for (node, relation), reached in groups.items()]
        if self.left_out:
            lines.append(f"({self.left_out} more facts are not shown.)")
        return "\n".join(lines) or "none"

    def _line(self, node: Node, relation: Relation, reached: Sequence[str]) -> str:
        ends = (one_line(self.labels.label(node)), "; ".join(reached))
        subject, object = ends if relation.direction == "out" else reversed(ends)
        return f"{subject} | {relation.name} | {object}"

    @property
    def shown_names(self) -> frozenset[str]:
        """The labels of all nodes in the facts that have a name."""
        nodes = (node for fact in self.facts for node in fact.nodes)
        return frozenset(self.labels.label(node) for node in nodes if self.labels.name(node) is not None)


def print_numbered(texts: Iterable[str]) -> str:
    """Return texts as a numbered list."""
    return "\n".join(f"{number}. {one_line(text)}" for number, text in enumerate(texts, start=1))


def print_objectives(objectives: Sequence[str]) -> str:
    """Return the section of the sub-objectives, with a line break before it; nothing without any."""
    return f"\nSub-objectives:\n{print_numbered(objectives)}" if objectives else ""


def print_status(status: Status) -> str:
    """Return the section of what is known so far, with a line break before it; nothing without a memory."""
    sentences = (f"{objective}: {sentence}" for objective, sentence in status)
    return f"\nKnown so far:\n{print_numbered(sentences)}" if status else ""
