"""The constants of a query, and whether a text still has them (methods.md §7.3, step 6a)."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence

from pipeline.text import canonical_literal, normalise
from pipeline.training.parog.decompose import Atom
from pipeline.types import EntityId

_DATE = re.compile(r"(-?[0-9]{4,})(?:-[0-9]{2}){1,2}")


def constants_of(atoms: Sequence[Atom], names: Mapping[EntityId, str]) -> tuple[str, ...]:
    """The names and values that a question has to mention to ask for these operations."""
    starts = (names[atom.start] for atom in atoms if atom.start is not None)
    values = (atom.value.value for atom in atoms if atom.value is not None)
    bounds = (atom.bound for atom in atoms if atom.bound is not None)
    return tuple(dict.fromkeys([*starts, *map(canonical_literal, [*values, *bounds])]))


def left_out(text: str, constants: Iterable[str]) -> list[str]:
    """Those that a text does not mention, after normalisation. Of a date its year is enough: dates are worded freely."""
    words = f" {normalise(text)} "
    bare = f" {' '.join(re.findall(r'[^\W_]+', words))} "
    return [one for one in constants if not _is_in(one, words, bare)]


def _is_in(constant: str, words: str, bare: str) -> bool:
    if date := _DATE.fullmatch(constant):
        constant = date[1]
    plain = normalise(constant)
    return f" {plain} " in words or f" {' '.join(re.findall(r'[^\W_]+', plain))} " in bare
