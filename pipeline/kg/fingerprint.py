"""Computes fingerprints of graphs from the number of facts per relation and the facts of the rarest relations.

Replicas of one database have the same fingerprint. Different backends over the same facts have the same one, too. A
fingerprint costs one count over the graph. Two loads of the same dump may be different graphs (specification §8.8).
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Iterable, Iterator, Mapping

from pipeline.kg.vocabulary import GraphVocabulary

_SAMPLE_FACTS = 500
"""Upper limit of the facts that are read."""


def rarest(counts: Mapping[str, int]) -> list[str]:
    """Return the relations whose facts belong to the fingerprint, given the number of facts per relation."""
    chosen, facts = [], 0
    for relation, count in sorted(counts.items(), key=lambda item: (item[1], item[0])):
        facts += count
        if facts > _SAMPLE_FACTS:
            break
        chosen.append(relation)
    return chosen


def fingerprint(counts: Mapping[str, int], lines: Iterable[str]) -> str:
    """Return `TRIPLES-HASH`, from the counts and lines in any order: the facts of the rarest relations, and marks."""
    content = hashlib.blake2b(digest_size=8)
    for part in (*(f"{relation}\t{count}" for relation, count in sorted(counts.items())), *sorted(set(lines))):
        content.update(part.encode("utf-8", errors="surrogatepass") + b"\0")
    return f"{sum(counts.values())}-{content.hexdigest()}"


def vocabulary_marks(vocabulary: GraphVocabulary, counts: Mapping[str, int]) -> Iterator[str]:
    """Yield lines for a fingerprint: how the graph is read, and its number of facts per predicate of the vocabulary.

    `counts` are by IRI. Relations of the graph are left out, because they are counted with the others, and so is what
    all graphs had in common before vocabularies.
    """
    yield from vocabulary.marks()
    foreign = (predicate for predicate in counts if vocabulary.terms.plain_relation(predicate) is None)
    yield from (f"{predicate}\t{counts[predicate]}" for predicate in foreign)


def of_every_fact(partial: str, total: int) -> str:
    """Extend a fingerprint by a sum over all facts, for a graph that is small enough to be read completely."""
    return f"{partial}-{total % 2**64:016x}"


def may_be_same_graph(one: str, other: str) -> bool:
    """Return whether two fingerprints can belong to one graph: they are equal, or one of them also covers all facts."""
    shorter, longer = sorted((one, other), key=len)
    return shorter == longer or re.sub("-[0-9a-f]{16}$", "", longer) == shorter
