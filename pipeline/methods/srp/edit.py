"""`srp.edit`: another relation path, now that one has failed (methods.md §3.8)."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise
from random import Random
from typing import TYPE_CHECKING, ClassVar

from pipeline.errors import ParseError
from pipeline.llm.prompt import Prompt, Template
from pipeline.methods.instance import Instance, Path
from pipeline.methods.parsing import after_last, clip, first_line, looks_like_relation, split_path, twice, unquoted
from pipeline.methods.rendering import Names, Printer, as_question, one_line, print_path
from pipeline.methods.simulation import gold_paths, rank_relations, spoilt
from pipeline.methods.srp.evidence import EMPTY_PATH, ENDS_UNNAMED, NOT_INSTANTIATED
from pipeline.methods.srp.references import print_references, reference_paths
from pipeline.retrieval.port import Reference
from pipeline.types import Entity, Question

if TYPE_CHECKING:
    from pipeline.llm.oracle import Truth
    from pipeline.retrieval.lexical import LexicalEncoder

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
"""Few-shot examples by dataset (§3.3); all of them elsewhere."""

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
class Edit(Prompt[Path | None]):
    """A relation path that has not been tried yet, or None when the model has none to offer."""

    role: ClassVar[str] = "srp.edit"
    aids: ClassVar[frozenset[str]] = frozenset({"references"})

    question: Question
    entity: Entity
    path: Path
    """The path to mend; may be empty."""
    tried: tuple[Path, ...]
    """Earlier paths of this entity, without the one to mend."""
    message: str
    """What the judge thought, and the structural findings."""
    grounded: tuple[Instance, ...]
    partial: tuple[Instance, ...]
    names: Names
    candidates: tuple[tuple[Path, tuple[str, ...]], ...]
    """Per relation path that leads somewhere, the relations to go on with."""
    known: frozenset[str] = frozenset()
    """Relation names that the graph is known to have: any other is kept only when it is a dotted name."""
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
            "grounded": self._print_instances(self.grounded),
            "partial": self._print_instances(self.partial),
            "candidates": "\n".join(offers) or "none",
        }

    def parse(self, text: str) -> Path | None:
        return twice(self._read, text)

    def fallback(self, text: str) -> Path | None:
        """No path: the search from this entity ends here."""
        return None

    def write_as_oracle(self, truth: Truth, slip: Random | None) -> str:
        """A gold path that was not tried; when there is none, the same path again, which is then rejected.

        A slip: the path of a reference, and where all were tried, an offered step that is wrong.
        """
        gold = gold_paths(truth, self.entity.id)
        if slip:
            imitated = [path for path in reference_paths(self.references) if self._is_new(path)][:1]
            wrong = [path for path in self._offered() if path not in gold] or [spoilt(self.path, (), slip)]
            return self._write(slip.choice(imitated or wrong))
        return self._write(next(filter(self._is_new, gold), self.path))

    def write_by_similarity(self, encoder: LexicalEncoder) -> str:
        """The offered step whose relation is most like the question."""
        offered = self._offered()
        best = rank_relations([path[-1] for path in offered], self.question.text, encoder)[:1]
        return self._write(next((path for path in offered if path[-1] in best), self.path))

    def _read(self, text: str) -> Path:
        line = first_line(after_last(text, "Final Path:"))
        known = self.known.union(self.path, *(relations for _, relations in self.candidates))
        path = tuple(part for part in split_path(unquoted(line)) if looks_like_relation(part, known))
        if complaint := self._complaint(path):
            raise ParseError(f"{complaint}: {clip(line)}")
        return path

    def _complaint(self, path: Path) -> str | None:
        """Why a path is rejected (§3.8). The limit goes unnamed: no prompt tells the value of a sweep axis."""
        if not path:
            return "the final path has no relation of the graph"
        if path == self.path:
            return "the final path is the current path"
        if path in self.tried:
            return "the final path was tried before"
        if _repeats(path):
            return "the final path takes a relation twice in a row"
        return "the final path is too long" if len(path) > self.max_path_len else None

    def _offered(self) -> list[Path]:
        steps = ((*prefix, relation) for prefix, relations in self.candidates for relation in relations)
        return [path for path in dict.fromkeys(steps) if self._is_new(path)]

    def _is_new(self, path: Path) -> bool:
        return path != self.path and path not in self.tried and not _repeats(path)

    def _print(self, path: Path) -> str:
        return print_path(self.entity.name, path)

    def _print_instances(self, instances: Sequence[Instance]) -> str:
        printer = Printer(self.names, unnamed="<cvt></cvt>")
        return "\n".join(printer.chain(instance.triples) for instance in instances if instance.length) or "none"

    def _write(self, path: Path) -> str:
        goal = one_line(self.question.text)
        return f"{goal}\nThought: Another path may lead to the answer.\nFinal Path: {self._print(path)}"


def _repeats(path: Path) -> bool:
    return any(relation == following for relation, following in pairwise(path))
