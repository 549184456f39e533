"""Filters relations that never reach a prompt: bookkeeping, identifiers, links to other graphs (specification §8.4)."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

from pipeline.kg.vocabulary import GraphVocabulary

NOTABLE_TYPES = "common.topic.notable_types"

_USER, _COMMON = "user.", "common."
_FOREIGN = ("#", "sameAs", "://")
"""Parts of names from outside Freebase: terms of RDF, RDFS and OWL, and links to other graphs."""


@dataclass(frozen=True)
class RelationFilter:
    """Decides by the relation's name, as it is made from its IRI. A name without a dot has no domain and is kept."""

    vocabulary: GraphVocabulary
    keep_user: bool = False
    """Keep `user.*`, the relations of Freebase users' schemas."""
    keep_notable_types: bool = False
    """Keep `common.topic.notable_types`."""

    @cached_property
    def meta(self) -> frozenset[str]:
        """The relations by which the vocabulary names and types nodes."""
        return frozenset(map(self.vocabulary.terms.predicate_name, self.vocabulary.meta_predicates))

    def is_hidden(self, relation: str) -> bool:
        """Whether the name of a relation starts with one of `kg.vocabulary.hidden`."""
        return relation.startswith(self._hidden)

    @property
    def dropped(self) -> tuple[str, ...]:
        """What only names of dropped relations start with, so that queries can exclude them on the server."""
        return tuple(start for start in self._hidden if start != _COMMON or not self.keep_notable_types)

    @property
    def _hidden(self) -> tuple[str, ...]:
        return tuple(start for start in self.vocabulary.hidden if start != _USER or not self.keep_user)

    def keeps(self, relation: str) -> bool:
        """Return whether a relation may be shown."""
        if relation in self.meta:
            return False
        if self.is_hidden(relation):
            return self.keep_notable_types and relation == NOTABLE_TYPES
        # In a graph of others, the prefix of its relations decides what is foreign.
        return not self.vocabulary.percent_encoded or not any(part in relation for part in _FOREIGN)
