"""Renders references, which are similar solved questions, for prompts (specification §3.3, §7.1)."""

from __future__ import annotations

from collections.abc import Sequence

from pipeline.methods.rendering import as_question, one_line
from pipeline.retrieval.interface import Reference

_ANSWERS_SHOWN = 3


def print_references(references: Sequence[Reference], *, use: str = "", answers: bool = False) -> str:
    """Return a block that ends in a blank line, or an empty string when there are no references.

    `use` is a sentence that says what the references are good for in this prompt.
    """
    if not references:
        return ""
    title = f"Similar solved questions. {use}" if use else "Similar solved questions:"
    return "\n".join([title, *(_print(reference, answers) for reference in references), "", ""])


def _print(reference: Reference, answers: bool) -> str:
    lines = [f"Question: {as_question(reference.question)}"]
    lines += [f"Relation path: {one_line(path)}" for path in reference.paths.values()]
    if answers:
        lines.append(f"Answers: {'; '.join(map(one_line, reference.answers[:_ANSWERS_SHOWN]))}")
    return "\n".join(lines)
