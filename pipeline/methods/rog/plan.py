"""The prompts `rog.plan` and `rog.list`: relation paths that lead to the answer (specification §16.2)."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import ClassVar

from pipeline.errors import ParseError
from pipeline.llm.prompt import Candidate, Prompt, Template
from pipeline.methods.grounded_path import Path
from pipeline.methods.parsing import LenientPrompt, Value, read_literal, split_at
from pipeline.methods.rendering import as_question, one_line, quoted
from pipeline.methods.rog.wording import OWN
from pipeline.methods.templates import load_template
from pipeline.types import EntityId, Question

BEGIN, SEPARATOR, END = "<PATH>", "<SEP>", "</PATH>"
"""The marks of a path in the planner's reply."""


@dataclass(frozen=True)
class PlanPath(Prompt[Path]):
    """The question alone. The planner knows the relations of the graph from its training."""

    role: ClassVar[str] = "rog.plan"

    question: Question
    template: Template = OWN.plan

    def inputs(self) -> dict[str, str]:
        return {"question": self.question.text}

    def parse(self, text: str) -> Path:
        """Return the relations between the first `<PATH>` and the last `</PATH>`. One in quotes may contain a mark."""
        start, end = text.find(BEGIN), text.rfind(END)
        if start < 0 or end < start:
            raise ParseError(f"there is no path between {BEGIN} and {END}")
        if not (path := tuple(split_at(SEPARATOR, text[start + len(BEGIN) : end]))):
            raise ParseError("the path has no relations")
        return path

    def fallback(self, text: str) -> Path:
        return ()


def write_path(path: Iterable[str]) -> str:
    """Write a path as the planner does. A relation that contains a mark or begins with a quote is in quotes."""
    return f"{BEGIN}{SEPARATOR.join(map(_escaped, path))}{END}"


def _escaped(relation: str) -> str:
    marked = relation.startswith('"') or any(mark in relation for mark in (BEGIN, SEPARATOR, END))
    return quoted(relation) if marked else relation


@dataclass(frozen=True)
class ListPaths(LenientPrompt[tuple[Path, ...]]):
    """The question and the relations at its topic entities, for a model that was not trained to plan."""

    role: ClassVar[str] = "rog.list"
    template = load_template(__file__, "list")

    question: Question
    relations: dict[EntityId, tuple[str, ...]]
    """Those offered at each topic entity."""
    plans: int
    """The most paths that are read."""

    def inputs(self) -> dict[str, str]:
        offered = (
            f"{one_line(entity.name)}: {'; '.join(self.relations.get(entity.id, ()))}"
            for entity in self.question.topic_entities
        )
        return {
            "question": as_question(self.question.text),
            "relations": "\n".join(offered),
            "number": str(self.plans),
        }

    def read(self, text: str) -> tuple[Path, ...]:
        listed = read_literal(text, "[")
        assert isinstance(listed, list), "a literal that opens with a bracket is a list"
        paths = [_path(each) for each in listed if isinstance(each, list)] or [_path(listed)]
        if not (distinct := tuple(dict.fromkeys(path for path in paths if path))):
            raise ParseError("the list has no path, which is a list of relations")
        return distinct[: self.plans]

    def fallback(self, text: str) -> tuple[Path, ...]:
        return ()


def _path(listed: list[Value]) -> Path:
    return tuple(relation for part in listed if isinstance(part, str) and (relation := part.strip()))


@dataclass(frozen=True, slots=True)
class ReadCandidate:
    """A candidate of the planner, and what was read from it."""

    candidate: Candidate
    path: Path
    """Empty if the candidate is dropped."""
    problem: str | None = None
    too_long: Path = ()
    """The path, if it is dropped for its length."""


def read_candidates(prompt: PlanPath, candidates: Iterable[Candidate], *, max_path_len: int) -> list[ReadCandidate]:
    """Read the path of each candidate. One that has none, or a longer one than `max_path_len`, is dropped."""
    return [_read(prompt, candidate, max_path_len) for candidate in candidates]


def _read(prompt: PlanPath, candidate: Candidate, max_path_len: int) -> ReadCandidate:
    try:
        path = prompt.parse(candidate.text)
    except ParseError as error:
        return ReadCandidate(candidate, (), str(error))
    if len(path) > max_path_len:
        return ReadCandidate(candidate, (), f"the path has {len(path)} relations", path)
    return ReadCandidate(candidate, path)


def most_frequent(read: Iterable[ReadCandidate]) -> list[Path]:
    """Return the distinct paths: by frequency, then by their best score, then by first appearance."""
    scores: dict[Path, list[float]] = {}
    for each in read:
        if each.path:
            scores.setdefault(each.path, []).append(each.candidate.score or 0.0)
    return sorted(scores, key=lambda path: (-len(scores[path]), -max(scores[path])))
