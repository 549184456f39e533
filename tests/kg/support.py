"""Small graphs for tests."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass

from pipeline.types import LiteralNode, Triple


@dataclass(frozen=True)
class Facts:
    """A dataset that is only a graph."""

    facts: Iterable[Triple]
    name: str = "facts"
    split: str = "test"

    def triples(self) -> Iterator[Triple]:
        return iter(self.facts)


_HOSTILE = [
    'a "quoted" name',
    "back\\slash \\u0041 %41",
    "line\nbreak\r\n\ttab",
    "<urn:x> . } INSERT DATA { <urn:a> <urn:b> <urn:c> } #",
    "ünï ☃ 😀 \u2028 \ufeff",
    "\x01\x7f",
    "' OR 1=1 --",
    "",
    "m" * 1800,
]

HOSTILE_FACTS = [
    *(Triple(name, "a.b", LiteralNode(name, lang="en")) for name in _HOSTILE),
    *(Triple(f"m.{n}", name, name) for n, name in enumerate(_HOSTILE)),
    Triple("m.1", "a.text", LiteralNode("é" * 500_000)),
]
"""Names and texts that a careless loader bends, takes for syntax or cuts."""
