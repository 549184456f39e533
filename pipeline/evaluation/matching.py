"""Matches predictions with gold answers (specification §9.2).

When two names are equal is decided in `pipeline/normalisation.py`: not only scores need it.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence, Set
from dataclasses import dataclass

import numpy as np

from pipeline.normalisation import normalise
from pipeline.types import EntityId, Gold, Prediction


@dataclass(frozen=True, slots=True)
class AnswerCandidate:
    """A predicted answer, with duplicates merged into it."""

    name: str
    """The normalised text; never empty."""
    ids: tuple[EntityId, ...]
    """The ids that were predicted with this text."""


@dataclass(frozen=True, slots=True)
class GoldGroups:
    """The gold answers as numbered groups of accepted names and ids.

    Gold answers whose normalised names are equal form one group, because a text cannot distinguish them.
    """

    count: int
    by_name: Mapping[str, Set[int]]
    by_id: Mapping[EntityId, Set[int]]

    def matched_by(self, candidate: AnswerCandidate) -> Set[int]:
        """Return the groups that a candidate matches, by name or by id."""
        groups = self.by_name.get(candidate.name, frozenset())
        for id in candidate.ids:
            groups = groups | self.by_id.get(id, frozenset())
        return groups


def group_gold(gold: Gold, *, strip_accents: bool = True) -> GoldGroups:
    """Group the gold answers, numbered by first occurrence of their names. Skip answers without name and id."""
    numbers: dict[str, int] = {}
    by_name: dict[str, set[int]] = {}
    by_id: dict[EntityId, set[int]] = {}
    for answer in gold.answers:
        name = normalise(answer.name or answer.id or "", strip_accents=strip_accents)
        if not name:
            continue
        number = numbers.setdefault(name, len(numbers))
        # A method writes the id of a node that has no name.
        others = (normalise(text, strip_accents=strip_accents) for text in (answer.id or "", *answer.aliases))
        for text in filter(None, (name, *others)):
            by_name.setdefault(text, set()).add(number)
        if answer.id is not None:
            by_id.setdefault(answer.id, set()).add(number)
    return GoldGroups(len(numbers), by_name, by_id)


def distinct(predictions: Sequence[Prediction], *, strip_accents: bool = True) -> tuple[AnswerCandidate, ...]:
    """Return the predictions in rank order, without empty texts and duplicates after normalisation."""
    ids: dict[str, list[EntityId]] = {}
    for prediction in predictions:
        if name := normalise(prediction.text, strip_accents=strip_accents):
            ids_of_name = ids.setdefault(name, [])
            if prediction.id is not None:
                ids_of_name.append(prediction.id)
    return tuple(AnswerCandidate(name, tuple(ids_of_name)) for name, ids_of_name in ids.items())


def matching_size(matches: Sequence[Set[int]]) -> int:
    """Return the size of a maximum one-to-one matching, given the gold groups that each candidate matches."""
    if all(len(groups) < 2 for groups in matches):
        return len(set().union(*matches))
    # Only shared aliases let a candidate match several groups, which is rare. Otherwise counting is enough.
    from scipy.sparse import csr_array
    from scipy.sparse.csgraph import maximum_bipartite_matching

    columns = [group for groups in matches for group in sorted(groups)]
    rows = np.repeat(np.arange(len(matches)), [len(groups) for groups in matches])
    edges = csr_array((np.ones(len(columns), dtype=bool), (rows, columns)))
    return int((maximum_bipartite_matching(edges, perm_type="column") >= 0).sum())
