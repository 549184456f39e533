"""The constants of a query, and whether a text still has them (methods.md §7.3, step 6a)."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence

from pipeline.text import canonical_literal, normalise
from pipeline.training.parog.decompose import Atom
from pipeline.types import EntityId

_WORD = re.compile(r"[^\W_]+")
_DATE = re.compile(r"(-?[0-9]{4,})(?:-[0-9]{2}){1,2}")


def constants_of(atoms: Sequence[Atom], names: Mapping[EntityId, str]) -> tuple[str, ...]:
    """The names and values that a question has to mention to ask for these operations."""
    starts = (names[atom.start] for atom in atoms if atom.start is not None)
    values = (atom.value.value for atom in atoms if atom.value is not None)
    bounds = (atom.bound for atom in atoms if atom.bound is not None)
    return tuple(dict.fromkeys([*starts, *map(canonical_literal, [*values, *bounds])]))


def left_out(text: str, constants: Iterable[str]) -> list[str]:
    """Those that a text does not mention, after normalisation. Of a date its year is enough."""
    plain, bare = normalise(text), _bare(text)
    return [one for one in constants if not _is_in(one, plain, bare)]


def _is_in(constant: str, plain: str, bare: str) -> bool:
    if date := _DATE.fullmatch(constant):
        constant = date[1]
    return f" {normalise(constant)} " in f" {plain} " or _bare(constant) in bare


def _bare(text: str) -> str:
    """The words and numbers of a text alone, whatever marks stand between them; blanks around it."""
    return f" {' '.join(_WORD.findall(normalise(text)))} "
