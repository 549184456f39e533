"""What identifies the facts of a graph: how often each relation is used, and the facts of the rarest relations.

Two replicas of one database agree, and so do backends of different kinds over the same facts. It costs one count over
the graph. (methods.md §8.8: two loads of the same dump may be different graphs.)
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Iterable, Mapping

_SAMPLE_FACTS = 500
"""At most so many facts are looked at."""


def rarest(counts: Mapping[str, int]) -> list[str]:
    """The relations whose facts belong to the fingerprint, given the number of facts of each relation."""
    chosen, facts = [], 0
    for relation, count in sorted(counts.items(), key=lambda item: (item[1], item[0])):
        facts += count
        if facts > _SAMPLE_FACTS:
            break
        chosen.append(relation)
    return chosen


def fingerprint(counts: Mapping[str, int], lines: Iterable[str]) -> str:
    """`TRIPLES-HASH` of the counts and of the rarest relations' facts as lines of N-Triples, in any order."""
    content = hashlib.blake2b(digest_size=8)
    for part in (*(f"{relation}\t{count}" for relation, count in sorted(counts.items())), *sorted(set(lines))):
        content.update(part.encode("utf-8", errors="surrogatepass") + b"\0")
    return f"{sum(counts.values())}-{content.hexdigest()}"


def of_every_fact(found: str, total: int) -> str:
    """A fingerprint that also holds a sum over every fact, for a graph that is small enough to be read through."""
    return f"{found}-{total % 2**64:016x}"


def agree(one: str, other: str) -> bool:
    """Whether two fingerprints can be of one graph: they are the same, or one of them knows every fact besides."""
    shorter, longer = sorted((one, other), key=len)
    return shorter == longer or re.sub("-[0-9a-f]{16}$", "", longer) == shorter
