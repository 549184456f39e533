"""Reads what gold queries of one shape share from one of them, because rdflib takes tens of milliseconds for a query.

Queries have one shape if they differ only in their names, in their strings with their datatypes, in spaces, in the
directions of orders and comparisons, and in filters that say that two terms differ. Most data sets have few shapes.
"""

from __future__ import annotations

import re
import threading
from collections.abc import Mapping
from functools import lru_cache
from typing import NamedTuple

import rdflib

from pipeline.datasets.gold_paths import CLASS_RELATIONS, QUOTED, QueryGraph, algebra, expressions, graph_of
from pipeline.errors import ParseError

_VARYING = re.compile(rf"(?:{QUOTED})(?:\^\^<[^<>\s]*>|\^\^\w*:\w+)?|(?<=[:/])\w+(?:\.\w+)+(?=[\s>)])")
"""The strings of a query, and its names of Freebase."""
_DIRECTION = re.compile(r"(?<=\?)(\w+\s)<(?=\s\")|\bDESC(?=\s*\(\?\w+\))", re.IGNORECASE)
"""A comparison of a variable with a string by `<`, and a descending order."""
_TERM = r"(?:\?\w+|<[^<>\s]*>|\w*:[\w.]+)"
_INEQUALITIES = re.compile(rf"([.{{}}]\s*)(?:FILTER\s*\(\s*{_TERM}\s*!=\s*{_TERM}\s*\)\s*\.?\s*)+", re.IGNORECASE)
"""Filters that say that two terms differ, where they do not separate two triple patterns."""
_ORDERS = frozenset({"<", "<=", ">", ">="})
_PARSING = threading.Lock()
"""Threads that ask for the same shape at once wait for the first, which parses it."""


class QueryShape(NamedTuple):
    """A query with other names and strings, and what each of them stands for."""

    sparql: str
    """Names and strings have numbers, in the order of their first mention."""
    names: Mapping[str, str]
    """A name of `sparql` → the name in the query."""


class ParsedShape(NamedTuple):
    """What the queries of a shape have in common."""

    graph: QueryGraph
    """With the names of the shape."""
    superlative: bool
    """Whether it takes the highest or lowest: a maximum, a minimum, or the first of an order."""
    comparative: bool
    """Whether it compares by order. Conditions inside `EXISTS` and `NOT EXISTS` do not count, here and below."""
    equalities: int
    """How many values it demands by `=`, except languages."""


_PARSED: dict[str, ParsedShape | None] = {}
"""The shapes that were parsed."""


def gold_relations(sparql: str | None) -> tuple[str, ...] | None:
    """Return the relations of a gold query, sorted, without those that restrict a variable to a class.

    None if there is no query, or it cannot be parsed. Queries over other graphs than Freebase's are rewritten before.
    """
    if not sparql:
        return None
    shape = query_shape(sparql)
    parsed = parsed_shape(shape.sparql)
    patterns = parsed.graph.patterns if parsed else ()
    relations = {shape.names.get(pattern.relation, pattern.relation) for pattern in patterns} - CLASS_RELATIONS
    return tuple(sorted(relations)) or None


@lru_cache(maxsize=1024)
def query_shape(sparql: str) -> QueryShape:
    """Return the shape of a query."""
    numbered: dict[str, str] = {}

    def replaced(found: re.Match[str]) -> str:
        if found[0] not in numbered:
            is_string = found[0][0] in "\"'"
            numbered[found[0]] = f'"{len(numbered)}"' if is_string else f"n.{len(numbered)}"
        return numbered[found[0]]

    shape = re.sub(r"\s*\n\s*", "\n", _INEQUALITIES.sub(r"\1", _VARYING.sub(replaced, sparql)))
    shape = _DIRECTION.sub(lambda found: f"{found[1]}>" if found[1] else "ASC", shape)
    return QueryShape(shape, {other: name for name, other in numbered.items()})


def is_parsed(sparql: str) -> bool:
    """Whether a query of the shape of `sparql` was parsed, so that `gold_relations` takes no time."""
    return query_shape(sparql).sparql in _PARSED


def parsed_shape(shape: str) -> ParsedShape | None:
    """Return what rdflib makes of the query of a shape; None if it cannot be parsed."""
    if shape not in _PARSED:  # a known shape waits for no other one that a thread parses now
        with _PARSING:
            if shape not in _PARSED:
                _PARSED[shape] = _parse(shape)
    return _PARSED[shape]


def _parse(shape: str) -> ParsedShape | None:
    try:
        query = algebra(shape)
        graph = graph_of(query)
    except (ParseError, RecursionError):
        return None
    nodes = list(expressions(query.p, without=("Builtin_EXISTS", "Builtin_NOTEXISTS")))
    names = {node.name for node in nodes}
    is_limited = any(node.name == "Slice" and node.length == 1 for node in nodes)
    compared = [node for node in nodes if node.name == "RelationalExpression"]
    equal = [node for node in compared if node.op == "=" and isinstance(node.other, rdflib.Literal)]
    return ParsedShape(
        graph,
        superlative=bool(names & {"Aggregate_Max", "Aggregate_Min"}) or (is_limited and "OrderCondition" in names),
        comparative=any(node.op in _ORDERS for node in compared),
        equalities=sum(getattr(node.expr, "name", None) != "Builtin_LANG" for node in equal),
    )
