"""The prompt `srp.edit`: a new relation path to replace one that did not lead to the answer (specification §3.8)."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from typing import ClassVar

from pipeline.errors import OverLimitError, ParseError
from pipeline.llm.prompt import Template
from pipeline.methods.grounded_path import GroundedPath, Path
from pipeline.methods.parsing import (
    LenientPrompt,
    after_last_line_cue,
    first_line,
    looks_like_relation,
    match_key,
    split_path_from,
    truncate,
    unquoted,
)
from pipeline.methods.rendering import Names, Printer, as_question, one_line, print_path, print_step
from pipeline.methods.srp.references import print_references
from pipeline.methods.templates import load_texts
from pipeline.retrieval.interface import Reference
from pipeline.types import Entity, Question

_TEXTS = load_texts(__file__, "edit")
_EXAMPLES_SHOWN = {"grailqa": 4}
"""The number of few-shot examples by the kind of the dataset (§3.3); any other one gets all."""
NO_PATH = "none"
"""The final path of a model that knows no other one."""

EDIT = {
    examples: Template(
        system="\n\n".join([_TEXTS["instruction"], "Examples", *_TEXTS["examples"][:examples]]), user=_TEXTS["user"]
    )
    for examples in (4, 5)
}


@dataclass(frozen=True)
class Edit(LenientPrompt[Path | None]):
    """A relation path that was not tried before, or None when the model proposes none and writes `none`."""

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
    """Instances of the whole path, of which the first `shown_grounded` are shown."""
    partial: tuple[GroundedPath, ...]
    """Instances of a part of the path, of which the first `shown_partial` are shown."""
    names: Names
    candidates: tuple[tuple[Path, tuple[str, ...]], ...] = ()
    """The relations with which each path of the facts shown can be extended, or a part of it that the judge kept."""
    left_out: int = 0
    """Such relations that are not shown."""
    pruned: Mapping[GroundedPath, GroundedPath] = field(default_factory=dict)
    """The judge's sequences in their order → what it kept of each. The rest is shown as cut away."""
    known: frozenset[str] = frozenset()
    """Relation names that exist in the graph. Any other name counts as a relation only when it is dotted."""
    references: tuple[Reference, ...] = ()
    max_path_len: int = field(kw_only=True)
    shown_grounded: int = field(kw_only=True)
    shown_partial: int = field(kw_only=True)

    @property
    def template(self) -> Template:
        return EDIT[_EXAMPLES_SHOWN.get(self.question.kind or "", len(_TEXTS["examples"]))]

    def inputs(self) -> dict[str, str]:
        return {
            "references": print_references(self.references),
            "question": as_question(self.question.text),
            "path": self._print(self.path),
            "tried": f"Tried before: {'; '.join(map(self._print, self.tried))}\n" if self.tried else "",
            "message": one_line(self.message) or "none",
            "facts": self._print_facts(),
            "candidates": "\n".join(self._print_offers()) or "none",
        }

    def fallback(self, text: str) -> Path | None:
        """Return no path: the search from this entity ends."""
        return None

    def read(self, text: str) -> Path | None:
        line = unquoted(first_line(after_last_line_cue(text, "Final Path:")))
        if match_key(unquoted(line.rstrip("."))) == NO_PATH:
            return None
        path = self._relations(line)
        if complaint := self._complaint(path):
            raise ParseError(f"{complaint}: {truncate(line)}")
        if any(relation == following for relation, following in pairwise(path)):
            raise OverLimitError(f"the final path takes a relation twice in a row: {truncate(line)}")
        if len(path) > self.max_path_len:  # the complaint omits the limit: no prompt shows the value of a sweep axis
            raise OverLimitError(f"the final path is too long: {truncate(line)}")
        return path

    def _complaint(self, path: Path) -> str | None:
        """Return why a path is rejected (§3.8)."""
        if not path:
            return "the final path has no relation of the graph"
        if path == self.path:
            return "the final path is the current path"
        if path in self.tried:
            return "the final path was tried before"
        return None

    def _relations(self, line: str) -> Path:
        """Return the relations of a path, without its entity and others that a model inserts."""
        known = self.known.union(self.path, *(relations for _, relations in self.candidates))
        parts = split_path_from(one_line(self.entity.name), line)
        return tuple(part for part in parts if looks_like_relation(part, known))

    def _print(self, path: Path) -> str:
        return print_path(self.entity.name, path)

    def _print_offers(self) -> Iterator[str]:
        """Yield a line for each list of relations: paths that lead to the same node offer the same list."""
        prefixes: dict[tuple[str, ...], list[str]] = {}
        for prefix, relations in self.candidates:
            prefixes.setdefault(relations, []).append(self._print(prefix))
        yield from (
            f"{' or '.join(paths)}: {'; '.join(map(print_step, relations))}" for relations, paths in prefixes.items()
        )
        if self.left_out:
            yield f"({self.left_out} less similar relations left out)"

    @property
    def shown(self) -> tuple[GroundedPath, ...]:
        """The first chain of each line of the facts: a line stands for all chains with its text."""
        printer = self._printer
        lists = ((self.grounded, self.shown_grounded), (self.partial, self.shown_partial))
        return tuple(
            chain for chains, shown in lists for chain in list(self._by_text(printer, chains).values())[:shown]
        )

    def _print_facts(self) -> str:
        """Render the facts in sections, each with a title. A section without facts is left out."""
        printer = self._printer
        whole = self._print_chains(printer, self.grounded, self.shown_grounded)
        part = self._print_chains(printer, self.partial, self.shown_partial)
        sections = {"Facts of the whole path:": whole, "Facts of a part of the path:": part}
        return "".join(f"{line}\n" for title, lines in sections.items() if lines for line in (title, *lines))

    def _print_chains(self, printer: Printer, chains: Sequence[GroundedPath], shown: int) -> list[str]:
        """Render the first `shown` chains that have a fact, each text once, and say how many were left out."""
        lines = list(self._by_text(printer, chains))
        return [*lines[:shown], f"({len(lines) - shown} more were found)"] if len(lines) > shown else lines

    def _by_text(self, printer: Printer, chains: Sequence[GroundedPath]) -> dict[str, GroundedPath]:
        """Return the first chain of each text, by the text."""
        numbers = {sequence: number for number, sequence in enumerate(self.pruned, 1)}
        found: dict[str, GroundedPath] = {}
        for chain in chains:
            if chain.length:
                found.setdefault(self._print_chain(printer, chain, numbers.get(chain)), chain)
        return found

    @property
    def _printer(self) -> Printer:
        return Printer(self.names, unnamed="<cvt></cvt>")

    def _print_chain(self, printer: Printer, chain: GroundedPath, number: int | None) -> str:
        """Render a chain; one that was judged with the number to which the message refers, and cut as the judge did."""
        if number is None:
            return f"- {printer.chain(chain.triples)}"
        kept = self.pruned[chain].length
        cut = f" cut away: {printer.chain(chain.triples[kept:])}" if kept < chain.length else ""
        return f"{number}. {printer.chain(chain.triples[:kept])}{cut}"
