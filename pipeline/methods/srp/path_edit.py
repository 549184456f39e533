"""The prompt `srp.edit`: a new relation path to replace one that did not lead to the answer (specification §3.8)."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import ClassVar

from pipeline.errors import ParseError
from pipeline.llm.prompt import Template
from pipeline.methods.grounded_path import GroundedPath, Path
from pipeline.methods.parsing import (
    LenientPrompt,
    after_last,
    first_line,
    looks_like_relation,
    split_path,
    truncate,
    unquoted,
)
from pipeline.methods.rendering import Names, Printer, as_question, one_line, print_path
from pipeline.methods.srp.references import print_references
from pipeline.methods.templates import load_texts
from pipeline.retrieval.interface import Reference
from pipeline.types import Entity, Question

_TEXTS = load_texts(__file__, "edit")
_EXAMPLES_SHOWN = {"grailqa": 4}
"""The number of few-shot examples by dataset (§3.3); any other dataset gets all."""

EDIT = {
    examples: Template(
        system="\n\n".join([_TEXTS["instruction"], "Examples", *_TEXTS["examples"][:examples]]), user=_TEXTS["user"]
    )
    for examples in (4, 5)
}


@dataclass(frozen=True)
class Edit(LenientPrompt[Path | None]):
    """A relation path that was not tried before, or None when the model proposes none."""

    role: ClassVar[str] = "srp.edit"

    question: Question
    entity: Entity
    path: Path
    """The path to edit; may be empty."""
    tried: tuple[Path, ...]
    """Earlier paths of this entity, without `path`."""
    message: str
    """The judge's reasoning and the structural findings."""
    grounded: tuple[GroundedPath, ...]
    partial: tuple[GroundedPath, ...]
    names: Names
    candidates: tuple[tuple[Path, tuple[str, ...]], ...]
    """The relations with which each path of the facts shown can be extended."""
    known: frozenset[str] = frozenset()
    """Relation names that exist in the graph. Any other name counts as a relation only when it is dotted."""
    references: tuple[Reference, ...] = ()
    max_path_len: int = 4

    @property
    def template(self) -> Template:
        return EDIT[_EXAMPLES_SHOWN.get(self.question.dataset, len(_TEXTS["examples"]))]

    def inputs(self) -> dict[str, str]:
        offers = (f"{self._print(prefix)}: {'; '.join(relations)}" for prefix, relations in self.candidates)
        return {
            "references": print_references(self.references),
            "question": as_question(self.question.text),
            "path": self._print(self.path),
            "tried": "; ".join(map(self._print, self.tried)) or "none",
            "message": one_line(self.message) or "none",
            "grounded": self._print_chains(self.grounded),
            "partial": self._print_chains(self.partial),
            "candidates": "\n".join(offers) or "none",
        }

    def fallback(self, text: str) -> Path | None:
        """Return no path: the search from this entity ends."""
        return None

    def read(self, text: str) -> Path:
        line = first_line(after_last(text, "Final Path:"))
        known = self.known.union(self.path, *(relations for _, relations in self.candidates))
        path = tuple(part for part in split_path(unquoted(line)) if looks_like_relation(part, known))
        if complaint := self._complaint(path):
            raise ParseError(f"{complaint}: {truncate(line)}")
        return path

    def _complaint(self, path: Path) -> str | None:
        """Return why a path is rejected (§3.8). It omits the limit: no prompt shows the value of a sweep axis."""
        if not path:
            return "the final path has no relation of the graph"
        if path == self.path:
            return "the final path is the current path"
        if path in self.tried:
            return "the final path was tried before"
        if repeats_relation(path):
            return "the final path takes a relation twice in a row"
        return "the final path is too long" if len(path) > self.max_path_len else None

    def _print(self, path: Path) -> str:
        return print_path(self.entity.name, path)

    def _print_chains(self, chains: Sequence[GroundedPath]) -> str:
        printer = Printer(self.names, unnamed="<cvt></cvt>")
        return "\n".join(printer.chain(chain.triples) for chain in chains if chain.length) or "none"


def repeats_relation(path: Path) -> bool:
    """Return whether the path takes a relation twice in a row."""
    return any(relation == following for relation, following in pairwise(path))
