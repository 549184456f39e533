"""Names and mediators of entities, from the predicates of a vocabulary that backends interpret (specification §8.5)."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from typing import TypeAlias, TypeVar

from pipeline.kg.interface import Batch, KnowledgeGraph, batch
from pipeline.kg.vocabulary import GraphVocabulary
from pipeline.rdf_terms import Terms
from pipeline.types import EntityId, LiteralNode

V = TypeVar("V")

LabelCandidate: TypeAlias = tuple[bool, LiteralNode]
"""Whether a text is an alias, and the text."""


def best_name(candidates: Iterable[LabelCandidate], languages: Sequence[str]) -> str | None:
    """Return the name to print: in the first of the languages that there is one in, else an alias, else another name.

    A text without a language counts as one in the first language, but texts marked with it come first. An alias in none
    of the languages is never the name. Ties are broken by the text.
    """
    ranked = [rank for candidate in candidates if (rank := _rank(candidate, languages)) is not None]
    return min(ranked)[-1] if ranked else None


def is_in(candidate: LabelCandidate, languages: Sequence[str]) -> bool:
    """Return whether a text is a name or an alias in one of the languages, or without a language."""
    rank = _rank(candidate, languages)
    return rank is not None and rank[0] < 2 * len(languages)


def is_true(flag: str) -> bool:
    """Return whether a flag is set. Some databases store `true` as a text."""
    return flag.lower() in {"true", "1"}


async def find_mediators(
    kg: KnowledgeGraph,
    ids: Sequence[EntityId],
    terms: Terms,
    mediator_types: frozenset[str],
    vocabulary: GraphVocabulary,
) -> Batch[EntityId, bool]:
    """Return which entities are mediators: by their id or a type, or unnamed with an outgoing relation (§8.5)."""
    by_id = re.compile(vocabulary.mediator_ids).match if vocabulary.mediator_ids is not None else None
    result = batch({id: by_id is not None and by_id(id) is not None for id in ids})
    undecided = [id for id in result if not result[id] and terms.own_name(id) is None]
    if mediator_types:
        types = _add_cost(result, await kg.types(undecided))
        result.update({id: not mediator_types.isdisjoint(types[id]) for id in undecided})
        undecided = [id for id in undecided if not result[id]]
    if not vocabulary.unnamed_mediators:
        return result
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


def _rank(candidate: LabelCandidate, languages: Sequence[str]) -> tuple[int, int, str] | None:
    is_alias, text = candidate
    for place, wanted in enumerate(languages):
        if text.lang == wanted:
            closeness = 0
        elif text.lang is None and not place:
            closeness = 1
        elif text.lang is not None and text.lang.startswith(f"{wanted}-"):
            closeness = 2
        else:
            continue
        return place + len(languages) * is_alias, closeness, text.value
    return None if is_alias else (2 * len(languages), 2, text.value)
