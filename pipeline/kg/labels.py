"""Names and mediators of entities, from the relations of Freebase that backends interpret (specification §8.5)."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import TypeAlias, TypeVar

from pipeline.kg.interface import Batch, KnowledgeGraph, batch
from pipeline.rdf_terms import Terms
from pipeline.types import EntityId, LiteralNode

V = TypeVar("V")

NAME = "type.object.name"
ALIAS = "common.topic.alias"
TYPE = "type.object.type"
MEDIATOR = "freebase.type_hints.mediator"

LabelCandidate: TypeAlias = tuple[str, LiteralNode]
"""A relation (`NAME` or `ALIAS`) and the text that it gives to an entity."""

_ENGLISH_FIRST = {"en": 0, None: 1}


def best_name(candidates: Iterable[LabelCandidate]) -> str | None:
    """Return the name to print: an English name, else an English alias, else a name in another language, else None.

    A text without a language counts as English, but texts marked as English come first. Ties are broken by the text.
    """
    ranked = [rank for rank in map(_rank, candidates) if rank is not None]
    return min(ranked)[-1] if ranked else None


def is_true(flag: str) -> bool:
    """Return whether a flag is set. Some databases store `true` as a text."""
    return flag.lower() in {"true", "1"}


async def find_mediators(
    kg: KnowledgeGraph, ids: Sequence[EntityId], terms: Terms, mediator_types: frozenset[str]
) -> Batch[EntityId, bool]:
    """Return which entities are mediators: by a mediator type, or unnamed with an outgoing relation (§8.5)."""
    result = batch(dict.fromkeys(ids, False))
    undecided = [id for id in result if terms.own_name(id) is None]
    if mediator_types:
        types = _add_cost(result, await kg.types(undecided))
        result.update({id: not mediator_types.isdisjoint(types[id]) for id in undecided})
        undecided = [id for id in undecided if not result[id]]
    names = _add_cost(result, await kg.labels(undecided))
    unnamed = [id for id in undecided if names[id] is None]
    relations = _add_cost(result, await kg.relations(unnamed))
    result.update({id: any(relation.direction == "out" for relation in relations[id]) for id in unnamed})
    return result


def _add_cost(result: Batch[EntityId, bool], part: Batch[EntityId, V]) -> Batch[EntityId, V]:
    """Add the queries of `part` to those of `result`, and return `part`."""
    result.queries += part.queries
    result.endpoint = part.endpoint or result.endpoint
    return part


def _rank(candidate: LabelCandidate) -> tuple[int, int, str] | None:
    relation, text = candidate
    english = text.lang is None or text.lang.partition("-")[0] == "en"
    if not english and relation == ALIAS:
        return None
    tier = 2 if not english else 0 if relation == NAME else 1
    return tier, _ENGLISH_FIRST.get(text.lang, 2), text.value
