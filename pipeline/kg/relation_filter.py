"""Filters relations that never reach a prompt: bookkeeping, identifiers, links to other graphs (specification §8.4)."""

from __future__ import annotations

from dataclasses import dataclass

NOTABLE_TYPES = "common.topic.notable_types"

_DROPPED = ("type", "common", "freebase", "kg", "wikipedia", "dataworld")
_FOREIGN = ("#", "sameAs", "://")
"""Parts of names from outside Freebase: terms of RDF, RDFS and OWL, and links to other graphs."""


@dataclass(frozen=True, slots=True)
class RelationFilter:
    """Decides by the relation's name. A name without a dot has no domain and is kept."""

    keep_user: bool = False
    """Keep `user.*`, the relations of Freebase users' schemas."""
    keep_notable_types: bool = False
    """Keep `common.topic.notable_types`."""

    @property
    def dropped_domains(self) -> tuple[str, ...]:
        """Domains without any kept relation, which queries can exclude on the server."""
        dropped = _DROPPED if self.keep_user else (*_DROPPED, "user")
        return tuple(domain for domain in dropped if domain != "common" or not self.keep_notable_types)

    def keeps(self, relation: str) -> bool:
        """Return whether a relation may be shown."""
        domain, dot, _ = relation.partition(".")
        if dot and domain in self.dropped_domains:
            return False
        if dot and domain == "common":
            return relation == NOTABLE_TYPES
        return not any(part in relation for part in _FOREIGN)
