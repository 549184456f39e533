"""The constants of a query, and the check that a text mentions them (specification §7.3, step 6a)."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence

from pipeline.normalisation import canonical_literal, normalise
from pipeline.training.parog.decompose import Atom
from pipeline.types import EntityId

_WORD = re.compile(r"[^\W_]+")
_DATE = re.compile(r"(-?[0-9]{4,})(?:-[0-9]{2}){1,2}")


def constants_of(atoms: Sequence[Atom], names: Mapping[EntityId, str]) -> tuple[str, ...]:
    """Return the names and values that a question has to mention to ask for these operations."""
    starts = (names[atom.start] for atom in atoms if atom.start is not None)
    values = (atom.value.value for atom in atoms if atom.value is not None)
    bounds = (atom.bound for atom in atoms if atom.bound and not atom.bound.startswith("#"))
    return tuple(dict.fromkeys([*starts, *map(canonical_literal, [*values, *bounds])]))


def missing_constants(text: str, constants: Iterable[str]) -> list[str]:
    """Return the constants that a text does not mention, after normalisation. The year of a date is enough."""
    plain, words = normalise(text), _words(text)
    return [constant for constant in constants if not _is_in(constant, plain, words)]


def _is_in(constant: str, plain: str, words: str) -> bool:
    if date := _DATE.fullmatch(constant):
        constant = date[1]
    return f" {normalise(constant)} " in f" {plain} " or _words(constant) in words


def _words(text: str) -> str:
    """Return the words and numbers of a text without punctuation, with a space before and after each."""
    return f" {' '.join(_WORD.findall(normalise(text)))} "
