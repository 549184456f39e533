"""Renders nodes, facts, paths and questions as text for prompts, the same way in every method (specification §8.5)."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import lru_cache
from typing import TypeAlias, TypeVar

from pipeline.methods.parsing import QUOTES, contains_arrow
from pipeline.normalisation import canonical_literal
from pipeline.types import EntityId, LiteralNode, Node, Triple

Names: TypeAlias = Mapping[EntityId, str | None]
"""The name of each entity that was looked up; None for an unnamed entity."""

Fact: TypeAlias = tuple[str, str, str]
"""A rendered fact: subject, relation, object."""

T = TypeVar("T")

CHARACTERS_PER_TOKEN = 4

_encode = json.JSONEncoder(ensure_ascii=False).encode


class Printer:
    """Renders nodes and facts for one prompt. Unnamed nodes are numbered in the order in which they are rendered."""

    def __init__(self, names: Names, *, unnamed: str = "<cvt {n}>") -> None:
        """`unnamed` is the placeholder of an unnamed node, in which `{n}` is its number."""
        self._names = names
        self._unnamed = unnamed
        self._numbers: dict[EntityId, int] = {}

    def node(self, node: Node) -> str:
        """Return a node's name, the canonical text of a literal, or the placeholder of an unnamed node."""
        name = node_name(node, self._names)
        if name is not None:
            return name
        assert isinstance(node, str)
        return self._unnamed.format(n=self._numbers.setdefault(node, len(self._numbers) + 1))

    def fact(self, triple: Triple) -> Fact:
        """Return a fact with the graph's own subject and object."""
        return self.node(triple.head), triple.relation, self.node(triple.tail)

    def chain(self, triples: Iterable[Triple]) -> str:
        """Return a chain of facts on one line: `[("h", "r", "t"), ("t", "r2", "u")]`."""
        return print_facts(map(self.fact, triples))


def print_facts(facts: Iterable[Fact]) -> str:
    """Return a list of facts on one line, every part quoted and escaped."""
    return f"[{', '.join(map(_print_fact, facts))}]"


@lru_cache(16_384)
def _print_fact(fact: Fact) -> str:
    """Return one fact. Cached: many calls of a question render the same facts, in every configuration of a sweep."""
    return f"({', '.join(map(quoted, fact))})"


def node_name(node: Node, names: Names) -> str | None:
    """Return the name of an entity or the canonical text of a literal; None for an unnamed entity."""
    return canonical_literal(node.value) if isinstance(node, LiteralNode) else names.get(node)


def names_of(nodes: Iterable[Node], names: Names) -> dict[Node, str]:
    """Return the name of each node, in order. Unnamed nodes are left out."""
    named = ((node, node_name(node, names)) for node in nodes)
    return {node: name for node, name in named if name}


def quoted(text: str) -> str:
    """Return the text as a JSON string. Quotes, backslashes and line breaks are escaped; non-ASCII letters are kept."""
    return _encode(text)


def one_line(text: str) -> str:
    """Replace every run of white space, line breaks included, by one space."""
    return " ".join(text.split())


def as_question(text: str) -> str:
    """Return a question on one line. Add a question mark if it ends without `?`, `.` or `!`."""
    text = one_line(text)
    return text if text.endswith(("?", ".", "!")) else f"{text}?"


def print_path(name: str, path: Iterable[str]) -> str:
    """Return a relation path as `name -> r1 -> r2`. A relation that contains an arrow is in quotes."""
    return " -> ".join((one_line(name), *map(print_step, path)))


def print_step(relation: str) -> str:
    """Return a relation as a part of a path, in quotes if it contains an arrow or begins with a quote."""
    return quoted(relation) if contains_arrow(relation) or relation.startswith(tuple(QUOTES)) else relation


def fit(items: Sequence[T], text: Callable[[T], str], max_tokens: int) -> tuple[T, ...]:
    """Return the longest run of first items whose texts have at most `max_tokens` tokens, four characters each."""
    characters = max_tokens * CHARACTERS_PER_TOKEN
    for count, item in enumerate(items):
        characters -= len(text(item)) + 1
        if characters < 0:
            return tuple(items[:count])
    return tuple(items)
