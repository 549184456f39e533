"""Classifies gold queries into the five types of questions of the PARoG paper (specification §9.6)."""

from __future__ import annotations

from functools import cache, lru_cache
from pathlib import Path
from typing import Literal, TypeAlias

import rdflib

from pipeline.datasets.gold_paths import (
    CLASS_RELATIONS,
    Pattern,
    Variable,
    algebra,
    expressions,
    graph_of,
    number_entities,
)
from pipeline.errors import ParseError
from pipeline.text import load_yaml

QueryType: TypeAlias = Literal["linear", "composition", "conjunction", "comparative", "superlative"]

_ORDERS = frozenset({"<", "<=", ">", ">="})


def query_type(sparql: str) -> QueryType | None:
    """Return the first of superlative, comparative, conjunction, composition and linear that applies (§7.3, step 4).

    Whether a variable is a mediator is told from its relations, without a graph. Conditions inside `EXISTS` and
    `NOT EXISTS` are not comparisons. Returns None for a query that cannot be parsed.
    """
    return _query_type(number_entities(sparql))


@lru_cache(4_096)
def _query_type(sparql: str) -> QueryType | None:
    try:
        query = algebra(sparql)
        graph = graph_of(query)
    except (ParseError, RecursionError):
        return None
    nodes = list(expressions(query.p, without=("Builtin_EXISTS", "Builtin_NOTEXISTS")))
    names = {node.name for node in nodes}
    is_limited = any(node.name == "Slice" and node.length == 1 for node in nodes)
    if names & {"Aggregate_Max", "Aggregate_Min"} or (is_limited and "OrderCondition" in names):
        return "superlative"
    compared = [node for node in nodes if node.name == "RelationalExpression"]
    if any(node.op in _ORDERS for node in compared):
        return "comparative"
    patterns = [pattern for pattern in graph.patterns if not is_of_class(pattern)]
    ends = [term for pattern in patterns for term in (pattern.subject, pattern.object)]
    equal = [node for node in compared if node.op == "=" and isinstance(node.other, rdflib.Literal)]
    equal = [node for node in equal if getattr(node.expr, "name", None) != "Builtin_LANG"]
    if len({term for term in ends if not isinstance(term, Variable)}) + len(equal) > 1:
        return "conjunction"
    between = {term for term in ends if isinstance(term, Variable) and ends.count(term) > 1 and term != graph.answer}
    return "composition" if any(not _is_mediator(term, patterns) for term in between) else "linear"


def _is_mediator(variable: Variable, patterns: list[Pattern]) -> bool:
    """Whether a relation of a variable is one that only mediators have, or one that leads to mediators."""
    mediators = _mediators()
    return any(
        (pattern.subject == variable and pattern.relation.rpartition(".")[0] in mediators)
        or (pattern.object == variable and pattern.relation in mediators)
        for pattern in patterns
    )


@cache
def _mediators() -> frozenset[str]:
    listed = load_yaml(Path(__file__).with_name("freebase_mediators.yaml").read_text(encoding="utf-8"))
    return frozenset([*listed["types"], *listed["relations"]])


def is_of_class(pattern: Pattern) -> bool:
    """Whether a pattern restricts a variable to a class."""
    return pattern.relation in CLASS_RELATIONS and not isinstance(pattern.object, Variable)
