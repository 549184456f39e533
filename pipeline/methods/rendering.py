"""Printing for prompts: nodes, facts, paths and questions, one way for every method (methods.md §8.5)."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from functools import lru_cache
from typing import TypeAlias

from pipeline.text import canonical_literal
from pipeline.types import EntityId, LiteralNode, Node, Triple

Names: TypeAlias = Mapping[EntityId, str | None]
"""The name of each entity that was looked up; None for an unnamed one."""

Fact: TypeAlias = tuple[str, str, str]
"""A printed fact: subject, relation, object."""

_encode = json.JSONEncoder(ensure_ascii=False).encode


class Printer:
    """Prints nodes and facts for one prompt. Unnamed nodes are numbered in the order in which they are printed."""

    def __init__(self, names: Names, *, unnamed: str = "<cvt {n}>") -> None:
        """Print by `names`; `unnamed` is what stands for an unnamed node, `{n}` for its number."""
        self._names = names
        self._unnamed = unnamed
        self._numbers: dict[EntityId, int] = {}

    def node(self, node: Node) -> str:
        """A name, a literal in canonical form, or the placeholder of an unnamed node."""
        name = node_name(node, self._names)
        if name is not None:
            return name
        assert isinstance(node, str)
        return self._unnamed.format(n=self._numbers.setdefault(node, len(self._numbers) + 1))

    def fact(self, triple: Triple) -> Fact:
        """A fact in the graph's own order."""
        return self.node(triple.head), triple.relation, self.node(triple.tail)

    def chain(self, triples: Iterable[Triple]) -> str:
        """A chain of facts on one line: `[("h", "r", "t"), ("t", "r2", "u")]`."""
        return print_facts(map(self.fact, triples))


def print_facts(facts: Iterable[Fact]) -> str:
    """A list of facts on one line, every part quoted and escaped."""
    return f"[{', '.join(map(_print_fact, facts))}]"


@lru_cache(16_384)
def _print_fact(fact: Fact) -> str:
    """Remembered: call after call of a question shows the same facts, and at every point of a sweep again."""
    return f"({', '.join(map(quoted, fact))})"


def node_name(node: Node, names: Names) -> str | None:
    """What a node is called: its name, the canonical text of a literal, or None for an unnamed entity."""
    return canonical_literal(node.value) if isinstance(node, LiteralNode) else names.get(node)


def names_of(nodes: Iterable[Node], names: Names) -> dict[Node, str]:
    """What the nodes are called, in their order; unnamed ones are left out."""
    named = ((node, node_name(node, names)) for node in nodes)
    return {node: name for node, name in named if name}


def quoted(text: str) -> str:
    """A JSON string: quotes, backslashes and line breaks are escaped, other scripts stay readable."""
    return _encode(text)


def one_line(text: str) -> str:
    """The text with every run of white space, line breaks included, made one space."""
    return " ".join(text.split())


def as_question(text: str) -> str:
    """A question on one line, with a question mark if it has no closing mark of its own."""
    text = one_line(text)
    return text if text.endswith(("?", ".", "!")) else f"{text}?"


def print_path(name: str, path: Iterable[str]) -> str:
    """`name -> r1 -> r2`."""
    return " -> ".join((one_line(name), *path))
