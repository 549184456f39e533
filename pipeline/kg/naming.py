"""The few relations of Freebase that mean something to the backends themselves: names, types, mediators (§8.5)."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import TypeAlias, TypeVar

from pipeline.kg.port import Batch, KnowledgeGraph, batch
from pipeline.kg.terms import Terms
from pipeline.types import EntityId, LiteralNode

V = TypeVar("V")

NAME = "type.object.name"
ALIAS = "common.topic.alias"
TYPE = "type.object.type"
MEDIATOR = "freebase.type_hints.mediator"

Naming: TypeAlias = tuple[str, LiteralNode]
"""A relation (`NAME` or `ALIAS`) and a text that it gives an entity."""

_ENGLISH_FIRST = {"en": 0, None: 1}


def best_name(candidates: Iterable[Naming]) -> str | None:
    """The name to print: English name, else English alias, else a name in another language, else None.

    A text without a language counts as English, after those that say so; equals are settled by the alphabet.
    """
    ranked = [rank for rank in map(_rank, candidates) if rank is not None]
    return min(ranked)[-1] if ranked else None


def is_true(flag: str) -> bool:
    """Whether a flag is set; some loads store `true` as a text."""
    return flag.lower() in {"true", "1"}


async def find_mediators(
    kg: KnowledgeGraph, ids: Sequence[EntityId], terms: Terms, mediator_types: frozenset[str]
) -> Batch[EntityId, bool]:
    """Which entities are mediators: by a type that is marked as one, or unnamed with an outgoing relation (§8.5)."""
    result = batch(dict.fromkeys(ids, False))
    undecided = [id for id in result if terms.own_name(id) is None]
    if mediator_types:
        types = _charge(result, await kg.types(undecided))
        result.update({id: not mediator_types.isdisjoint(types[id]) for id in undecided})
        undecided = [id for id in undecided if not result[id]]
    names = _charge(result, await kg.labels(undecided))
    unnamed = [id for id in undecided if names[id] is None]
    relations = _charge(result, await kg.relations(unnamed))
    result.update({id: any(relation.direction == "out" for relation in relations[id]) for id in unnamed})
    return result


def _charge(result: Batch[EntityId, bool], part: Batch[EntityId, V]) -> Batch[EntityId, V]:
    """Count the queries of a part into the whole."""
    result.queries += part.queries
    result.endpoint = part.endpoint or result.endpoint
    return part


def _rank(candidate: Naming) -> tuple[int, int, str] | None:
    relation, text = candidate
    english = text.lang is None or text.lang.partition("-")[0] == "en"
    if not english and relation == ALIAS:
        return None
    tier = 2 if not english else 0 if relation == NAME else 1
    return tier, _ENGLISH_FIRST.get(text.lang, 2), text.value
