"""Classifies gold queries into the five types of questions of the PARoG paper (specification §9.6)."""

from __future__ import annotations

from functools import cache
from pathlib import Path
from typing import Literal, TypeAlias

from pipeline.datasets.gold_paths import CLASS_RELATIONS, Pattern, Variable
from pipeline.datasets.query_shapes import parsed_shape, query_shape
from pipeline.text import load_yaml

QueryType: TypeAlias = Literal["linear", "composition", "conjunction", "comparative", "superlative"]


def query_type(sparql: str) -> QueryType | None:
    """Return the first of superlative, comparative, conjunction, composition and linear that applies (§7.3, step 4).

    Whether a variable is a mediator is told from its relations, without a graph. Conditions inside `EXISTS` and
    `NOT EXISTS` are not comparisons. Returns None for a query that cannot be parsed.
    """
    shape = query_shape(sparql)
    parsed = parsed_shape(shape.sparql)
    if parsed is None:
        return None
    if parsed.superlative:
        return "superlative"
    if parsed.comparative:
        return "comparative"
    graph = parsed.graph.renamed(shape.names)
    patterns = [pattern for pattern in graph.patterns if not is_of_class(pattern)]
    ends = [term for pattern in patterns for term in (pattern.subject, pattern.object)]
    if len({term for term in ends if not isinstance(term, Variable)}) + parsed.equalities > 1:
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
