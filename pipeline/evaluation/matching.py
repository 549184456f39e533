"""Which predictions are which gold answers (methods.md §9.2)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence, Set
from dataclasses import dataclass

import numpy as np

from pipeline.text import normalise
from pipeline.types import EntityId, Gold, Prediction


@dataclass(frozen=True, slots=True)
class Candidate:
    """A predicted answer, after repetitions were folded into it."""

    name: str
    """Its text under N; never empty."""
    ids: tuple[EntityId, ...]
    """The ids that were predicted with it."""


@dataclass(frozen=True, slots=True)
class GoldGroups:
    """The gold answers as numbered groups of accepted names and ids.

    Gold answers whose names are equal under N are one group, because no text could tell them apart.
    """

    count: int
    by_name: Mapping[str, Set[int]]
    by_id: Mapping[EntityId, Set[int]]

    def of(self, candidate: Candidate) -> Set[int]:
        """The groups that a candidate matches, by name or by id."""
        groups = self.by_name.get(candidate.name, frozenset())
        for id in candidate.ids:
            groups = groups | self.by_id.get(id, frozenset())
        return groups


def group_gold(gold: Gold, *, strip_accents: bool = True) -> GoldGroups:
    """Number the gold answers by the first appearance of their names; an answer without any text is none."""
    numbers: dict[str, int] = {}
    by_name: dict[str, set[int]] = {}
    by_id: dict[EntityId, set[int]] = {}
    for answer in gold.answers:
        name = normalise(answer.name or answer.id or "", strip_accents=strip_accents)
        if not name:
            continue
        number = numbers.setdefault(name, len(numbers))
        for text in (name, *(normalise(alias, strip_accents=strip_accents) for alias in answer.aliases)):
            if text:
                by_name.setdefault(text, set()).add(number)
        if answer.id is not None:
            by_id.setdefault(answer.id, set()).add(number)
    return GoldGroups(len(numbers), by_name, by_id)


def distinct(predictions: Sequence[Prediction], *, strip_accents: bool = True) -> tuple[Candidate, ...]:
    """The predictions in rank order, without blanks and repetitions under N."""
    ids: dict[str, list[EntityId]] = {}
    for prediction in predictions:
        if name := normalise(prediction.text, strip_accents=strip_accents):
            of_name = ids.setdefault(name, [])
            if prediction.id is not None:
                of_name.append(prediction.id)
    return tuple(Candidate(name, tuple(of_name)) for name, of_name in ids.items())


def matching_size(matches: Sequence[Set[int]]) -> int:
    """Size of a maximum one-to-one matching, given the gold groups that each candidate matches."""
    if all(len(groups) < 2 for groups in matches):
        return len(set().union(*matches))
    # Aliases made groups overlap, which is rare: only then is a matching more than a count.
    from scipy.sparse import csr_array
    from scipy.sparse.csgraph import maximum_bipartite_matching

    columns = [group for groups in matches for group in sorted(groups)]
    rows = np.repeat(np.arange(len(matches)), [len(groups) for groups in matches])
    edges = csr_array((np.ones(len(columns), dtype=bool), (rows, columns)))
    return int((maximum_bipartite_matching(edges, perm_type="column") >= 0).sum())
