"""Inverse relations: two relations that state the same fact from its two ends (specification §8.4).

Freebase states `film.director.film` of a director and `film.film.directed_by` of the film. A prompt that offers both
shows each fact twice. A graph declares such a pair by a fact of the relation `INVERSE`.
"""

from __future__ import annotations

import csv
from collections.abc import Iterable, Iterator, Mapping
from typing import TypeAlias

from pipeline.datasets.files import lines
from pipeline.datasets.remote import AnyPath
from pipeline.errors import UserError
from pipeline.types import Node, Triple

INVERSE = "type.property.reverse_property"
"""The relation from a relation to its inverse."""

Inverses: TypeAlias = Mapping[str, str]
"""Relation → its inverse, for both relations of each pair."""


def inverse_pairs(declared: Iterable[tuple[Node, Node]]) -> Inverses:
    """Return the pairs as a mapping in both directions. A relation with several inverses keeps the first by name."""
    inverses: dict[str, str] = {}
    texts = ((one, other) for one, other in declared if isinstance(one, str) and isinstance(other, str))
    for one, other in sorted(texts):
        if one != other and one not in inverses and other not in inverses:
            inverses |= {one: other, other: one}
    return inverses


def read_inverses(file: AnyPath) -> Inverses:
    """Read the pairs of a tab-separated file with the columns `relation` and `reverse`, among any others.

    A row without a reverse is skipped. Raises UserError for a missing file, and for a file without these columns.
    """
    texts = (line.decode(errors="replace") for _, line in lines(file))
    rows = csv.DictReader(texts, delimiter="\t", quoting=csv.QUOTE_NONE)
    if not {"relation", "reverse"} <= set(rows.fieldnames or ()):
        raise UserError(f"{file} needs a first line with the columns relation and reverse, separated by tabs")
    return inverse_pairs((row["relation"], row["reverse"]) for row in rows if row["relation"] and row["reverse"])


def in_both_directions(facts: Iterable[Triple], inverses: Inverses) -> Iterator[Triple]:
    """Yield the declarations, then each fact, from both ends if its relation has an inverse. A fact may come twice."""
    for one, other in inverses.items():
        yield Triple(one, INVERSE, other)
    for fact in facts:
        yield fact
        if isinstance(fact.tail, str) and (inverse := inverses.get(fact.relation)) is not None:
            yield Triple(fact.tail, inverse, fact.head)
