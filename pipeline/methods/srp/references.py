"""Solved questions as prompts show them (methods.md §3.3, §7.1)."""

from __future__ import annotations

from collections.abc import Sequence

from pipeline.methods.instance import Path
from pipeline.methods.parsing import split_path
from pipeline.methods.rendering import as_question, one_line
from pipeline.retrieval.port import Reference

_ANSWERS_SHOWN = 3


def print_references(references: Sequence[Reference], *, answers: bool = False) -> str:
    """A block that ends in a blank line, or nothing when there are no references."""
    if not references:
        return ""
    return "\n".join(["Similar solved questions:", *(_print(reference, answers) for reference in references), "", ""])


def reference_paths(references: Sequence[Reference]) -> list[Path]:
    """The relation paths of the references, nearest first."""
    paths = (tuple(split_path(text)[1:]) for reference in references for text in reference.paths.values())
    return [path for path in paths if path]


def _print(reference: Reference, answers: bool) -> str:
    lines = [f"Question: {as_question(reference.question)}"]
    lines += [f"Relation path: {one_line(path)}" for path in reference.paths.values()]
    if answers:
        lines.append(f"Answers: {'; '.join(map(one_line, reference.answers[:_ANSWERS_SHOWN]))}")
    return "\n".join(lines)
