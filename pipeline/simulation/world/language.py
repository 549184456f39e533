"""Wording of relations: steps, measures by which entities are compared, and the grammar of phrase templates.

A template holds one `{}` for the subject of the question, and inflections: `[one|many]` follows the number of the
answers, `<one|many>` follows the number of the subject, and `(other )` is kept only if the subject could be
mistaken for an answer.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass

from pipeline.simulation.world.facts import Kind
from pipeline.types import Relation

_INFLECTION = re.compile(r"\[([^|\]]*)\|([^\]]*)\]|<([^|>]*)\|([^>]*)>|\((\w+ )\)")


@dataclass(frozen=True, slots=True)
class Step:
    """One relation as a speaker sees it. A relation through a mediator is two relations of the graph."""

    relations: tuple[Relation, ...]
    domain: Kind
    range: Kind
    """The kind of the answers, `literal` for values."""
    many: bool
    """Whether one subject usually has several answers."""
    ask: tuple[str, ...]
    """Templates of questions for the answers."""
    noun: tuple[str, ...]
    """Noun phrases for the answers; empty if no question continues from them."""
    clause: tuple[str, ...]
    """Plural clauses about the answers, used after `which …` or `that …`."""


@dataclass(frozen=True, slots=True)
class Measure:
    """A literal by which entities of a kind are compared."""

    kind: Kind
    relations: tuple[Relation, ...]
    datatype: str
    """Local name of the XML Schema type of comparable values."""
    more: str
    """Clause about several entities whose value is above `{}`."""
    less: str
    most: tuple[str, ...]
    """Clauses about the one entity with the highest value."""
    least: tuple[str, ...]


def step(
    path: str, ask: Iterable[str], noun: Iterable[str] = (), clause: Iterable[str] = (), *, many: bool = False
) -> Step:
    """Build a step from a path written as `domain -> relation -> … -> range`."""
    domain, relations, range = _read(path)
    return Step(relations, domain, range, many, tuple(ask), tuple(noun), tuple(clause))


def measure(path: str, more: str, less: str, most: Iterable[str], least: Iterable[str]) -> Measure:
    """Build a measure from a path written as `kind -> relation -> … -> datatype`."""
    kind, relations, datatype = _read(path)
    return Measure(kind, relations, datatype, more, less, tuple(most), tuple(least))


def phrase(template: str, thing: str, *, plural_thing: bool, plural_answer: bool, other: bool = False) -> str:
    """Resolve the inflections of a template and insert `thing`, which may contain any character."""

    def resolve(inflection: re.Match[str]) -> str:
        if inflection[0].startswith("["):
            return inflection[2] if plural_answer else inflection[1]
        if inflection[0].startswith("<"):
            return inflection[4] if plural_thing else inflection[3]
        return inflection[5] if other else ""

    before, _, after = _INFLECTION.sub(resolve, template).partition("{}")
    return before + thing + after


def _read(path: str) -> tuple[Kind, tuple[Relation, ...], Kind]:
    """Split a written path; `^` marks a relation that is followed against its direction."""
    start, *names, end = path.split(" -> ")
    relations = (Relation(name.removeprefix("^"), "in" if name.startswith("^") else "out") for name in names)
    return start, tuple(relations), end
