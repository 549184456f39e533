"""What prompts and replies name: texts as whole words, relations and numbers in values that were read from replies."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping, Set
from dataclasses import fields, is_dataclass
from functools import cache
from itertools import chain
from typing import Any

from pipeline.types import Relation

_BETWEEN = re.compile(r"^\W+")
"""What separates the head of a fact from its relation."""


def relations_in(value: object) -> Iterator[Relation]:
    """Yield the relations that a value holds, in collections and in the fields of dataclasses."""
    left: list[Any] = [value]
    while left:
        part = left.pop()
        if isinstance(part, Relation):
            yield part
        elif isinstance(part, str):  # first of all others, because nearly all parts are strings
            continue
        elif isinstance(part, list | tuple | set | frozenset):
            left.extend(part)
        elif isinstance(part, Mapping):
            left.extend(chain(part, part.values()))
        else:
            left.extend(getattr(part, name) for name in _field_names(part.__class__))


def is_numbers(value: object) -> bool:
    """Whether a value is a whole number, or a collection of nothing else."""
    parts = value if isinstance(value, list | tuple | set | frozenset) else [value]
    return bool(parts) and all(type(part) is int for part in parts)


@cache
def _field_names(kind: type) -> tuple[str, ...]:
    """Return the names of the fields of a dataclass; none for another type."""
    return tuple(field.name for field in fields(kind)) if is_dataclass(kind) else ()


def stands_in(name: str, text: str) -> bool:
    """Whether a text contains a name, and not only as part of a longer word or of a longer relation name."""
    return next(_mentions(name, text), None) is not None


def stands_behind(name: str, text: str, relations: Iterable[str], *, but_not: Iterable[str]) -> bool:
    """Whether `relations` lead to a node wherever a text names it, and no relation of `but_not` does.

    The relation of a node is the last one before its name in the same line. A relation of `but_not` right after the
    name counts, too, because a fact may begin with the node. If the text has some of the `relations` and none of
    `but_not`, the lines do not matter.
    """
    named = {relation for relation in relations if stands_in(relation, text)}
    others = {relation for relation in but_not if stands_in(relation, text)}
    if not (named and others):
        return bool(named)
    return all(_is_behind(text, start, start + len(name), named, others) for start in _mentions(name, text))


def _is_behind(text: str, start: int, end: int, relations: Set[str], others: Set[str]) -> bool:
    line = text[text.rfind("\n", 0, start) + 1 : start]
    last = {relation: max(_mentions(relation, line), default=-1) for relation in relations | others}
    nearest = max(last, key=last.__getitem__)
    after = _BETWEEN.sub("", text[end:].partition("\n")[0])
    return last[nearest] >= 0 and nearest in relations and not any(after.startswith(other) for other in others)


def _mentions(name: str, text: str) -> Iterator[int]:
    """Yield where a name stands in a text, without places where it is a part of a longer word or relation name."""
    start = text.find(name)
    while start >= 0:
        before, after = text[start - 1 : start], text[start + len(name) : start + len(name) + 2]
        if not (_continues(before) or before == ".") and not (
            _continues(after[:1]) or (after[:1] == "." and _continues(after[1:]))
        ):
            yield start
        start = text.find(name, start + 1)


def _continues(character: str) -> bool:
    return character.isalnum() or character == "_"
