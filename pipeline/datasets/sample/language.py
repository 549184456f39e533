"""How a relation is spoken of: steps, the measures that entities are compared by, and the marks in their phrases.

A phrase holds one `{}` for the thing asked about, and marks. `[one|many]` follows the number of the answers,
`<one|many>` the number of the thing asked about, and `(other )` is kept only where the thing asked about might be taken
for an answer too.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

from pipeline.datasets.sample.facts import Kind
from pipeline.types import Relation

_MARK = re.compile(r"\[([^|\]]*)\|([^\]]*)\]|<([^|>]*)\|([^>]*)>|\((\w+ )\)")


@dataclass(frozen=True, slots=True)
class Step:
    """One relation in the sense of a speaker; one through a mediator is two relations of the graph."""

    relations: tuple[Relation, ...]
    domain: Kind
    range: Kind
    """The kind of the answers, `literal` for values."""
    many: bool
    """Whether one thing usually has several answers."""
    ask: tuple[str, ...]
    """Questions for the answers."""
    noun: tuple[str, ...]
    """Noun phrases that stand for the answers; none where no question goes on from them."""
    clause: tuple[str, ...]
    """What can be said of the answers after `which …` or `that …`, in the plural."""


@dataclass(frozen=True, slots=True)
class Measure:
    """A literal by which entities of a kind are compared."""

    kind: Kind
    relations: tuple[Relation, ...]
    datatype: str
    """Local name of the XML Schema type that comparable values have."""
    more: str
    """Said of several entities whose value is above `{}`."""
    less: str
    most: tuple[str, ...]
    """Said of the one entity with the highest value."""
    least: tuple[str, ...]


def step(
    path: str,
    *ask: str,
    noun: tuple[str, ...] = (),
    clause: tuple[str, ...] = (),
    many: bool = False,
) -> Step:
    """Read a step whose path is written `domain -> relation -> … -> range`."""
    domain, relations, range = _read(path)
    return Step(relations, domain, range, many, ask, noun, clause)


def measure(path: str, more: str, less: str, most: tuple[str, ...], least: tuple[str, ...]) -> Measure:
    """Read a measure whose path is written `kind -> relation -> … -> datatype`."""
    kind, relations, datatype = _read(path)
    return Measure(kind, relations, datatype, more, less, most, least)


def phrase(template: str, thing: str, *, plural_thing: bool, plural_answer: bool, other: bool = False) -> str:
    """Resolve the marks of a template and put `thing`, which may hold any character, in its place."""

    def resolve(mark: re.Match[str]) -> str:
        if mark[0].startswith("["):
            return mark[2] if plural_answer else mark[1]
        if mark[0].startswith("<"):
            return mark[4] if plural_thing else mark[3]
        return mark[5] if other else ""

    before, _, after = _MARK.sub(resolve, template).partition("{}")
    return before + thing + after


def _read(path: str) -> tuple[Kind, tuple[Relation, ...], Kind]:
    """Split a written path; `^` before a relation means against its direction."""
    start, *names, end = path.split(" -> ")
    relations = (Relation(name.removeprefix("^"), "in" if name.startswith("^") else "out") for name in names)
    return start, tuple(relations), end
