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
from pipeline.methods.srp.evidence import EMPTY_PATH, ENDS_UNNAMED, NOT_INSTANTIATED
from pipeline.methods.srp.references import print_references
from pipeline.retrieval.interface import Reference
from pipeline.types import Entity, Question

_INSTRUCTION = """\
You mend a search in a knowledge graph. A relation path starts at an entity of the question and names
the relations to follow, one after the other, until the answer is reached. You are given a path that
has not led to the answer, what a check found wrong with it, some of the facts that the path met, and
the relations that exist where those facts end. <cvt></cvt> is an unnamed node that holds a fact of
several parts together: a path has to go on through it.

Write `Goal:` and what the question looks for, `Thought:` and what to change, and `Final Path:` and
one new path, all on one line. The path starts from the same entity, holds relations only, does not
take the same relation twice in a row, and is none of the paths that were tried. Prefer relations
that are offered."""

_EXAMPLES = (
    f"""\
Question: what movies has Lirae Dobson played in?
Path: Lirae Dobson -> film.actor.film
Tried before: none
Check: {ENDS_UNNAMED}
Facts of the whole path:
[("Lirae Dobson", "film.actor.film", "<cvt></cvt>")]
Facts of a part of the path:
none
Relations offered:
Lirae Dobson -> film.actor.film: film.performance.film; film.performance.character
Goal: the films in which Lirae Dobson plays.
Thought: The path ends in a role, an unnamed node that joins the actor, the film and the character.
From there film.performance.film leads to the film.
Final Path: Lirae Dobson -> film.actor.film -> film.performance.film""",
    f"""\
Question: what do people speak where Tavin Orsa comes from?
Path: Tavin Orsa -> people.person.nationality -> language.human_language.main_country
Tried before: none
Check: {NOT_INSTANTIATED.format("language.human_language.main_country")}
Facts of the whole path:
none
Facts of a part of the path:
[("Tavin Orsa", "people.person.nationality", "Quessland")]
Relations offered:
Tavin Orsa -> people.person.nationality: location.country.languages_spoken; location.country.capital
Goal: the languages spoken in the home country of Tavin Orsa.
Thought: The country was found, Quessland, but it does not have the second relation. It does have
location.country.languages_spoken, which says the same.
Final Path: Tavin Orsa -> people.person.nationality -> location.country.languages_spoken""",
    f"""\
Question: who drew up the plans for the Ondrel Bridge?
Path: Ondrel Bridge
Tried before: none
Check: {EMPTY_PATH}
Facts of the whole path:
none
Facts of a part of the path:
none
Relations offered:
Ondrel Bridge: architecture.structure.architect; transportation.bridge.bridge_type
Goal: the person who planned the Ondrel Bridge.
Thought: There is no path yet. Of the relations at the bridge, architecture.structure.architect names
whoever planned it.
Final Path: Ondrel Bridge -> architecture.structure.architect""",
    """\
Question: what is the currency of the country that Tavin Orsa comes from?
Path: Tavin Orsa -> people.person.nationality -> location.country.capital
Tried before: Tavin Orsa -> people.person.place_of_birth
Check: The country is found, but the path goes on to its capital. No currency is named.
Facts of the whole path:
[("Tavin Orsa", "people.person.nationality", "Quessland"), ("Quessland", "location.country.capital", "Mirravel")]
Facts of a part of the path:
none
Relations offered:
Tavin Orsa -> people.person.nationality: location.country.currency_used; location.country.capital
Tavin Orsa -> people.person.nationality -> location.country.capital: location.location.containedby
Goal: the currency of Quessland.
Thought: Up to the country the path is right. From there location.country.currency_used leads to the
currency.
Final Path: Tavin Orsa -> people.person.nationality -> location.country.currency_used""",
    f"""\
Question: which school did the author of Nine Lanterns go to?
Path: Nine Lanterns -> book.book.author -> people.person.education
Tried before: none
Check: The author and the schooling are there, but the school has no name. {ENDS_UNNAMED}
Facts of the whole path:
[("Nine Lanterns", "book.book.author", "Ysolde Crane"), ("Ysolde Crane", "people.person.education", "<cvt></cvt>")]
Facts of a part of the path:
none
Relations offered:
Nine Lanterns -> book.book.author -> people.person.education: education.education.institution
Goal: the school that Ysolde Crane attended.
Thought: Her education is an unnamed node that joins a student, a degree and a school.
education.education.institution is the school.
Final Path: Nine Lanterns -> book.book.author -> people.person.education -> education.education.institution""",
)
_EXAMPLES_SHOWN = {"grailqa": 4}
"""The number of few-shot examples by dataset (§3.3); any other dataset gets all."""

EDIT = {
    examples: Template(
        system="\n\n".join([_INSTRUCTION, "Examples", *_EXAMPLES[:examples]]),
        user="""\
{{references}}Question: {{question}}
Path: {{path}}
Tried before: {{tried}}
Check: {{message}}
Facts of the whole path:
{{grounded}}
Facts of a part of the path:
{{partial}}
Relations offered:
{{candidates}}
Goal:""",
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
        return EDIT[_EXAMPLES_SHOWN.get(self.question.dataset, len(_EXAMPLES))]

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
