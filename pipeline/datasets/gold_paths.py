"""Relation paths read off gold SPARQL: from each topic constant to the answer variable (methods.md §7.1, step 2a).

A query is reduced to its graph: variables and constants, joined by triple patterns. Filters, orders, limits,
`MINUS` and `(NOT) EXISTS` are dropped, so a path may reach more than the answers; whoever uses one verifies it.
"""

from __future__ import annotations

import logging
from collections import deque
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Any, Literal, NamedTuple, TypeAlias

import pyparsing
import rdflib
from rdflib.plugins.sparql.algebra import translateQuery
from rdflib.plugins.sparql.parser import parseQuery
from rdflib.plugins.sparql.parserutils import CompValue

from pipeline.errors import ParseError
from pipeline.kg.paths import RelationPath
from pipeline.kg.terms import Terms
from pipeline.types import EntityId, LiteralNode, Node, Relation

_FREEBASE = Terms()
_SIDES: dict[str, Literal["above", "below"]] = {">": "above", ">=": "above", "<": "below", "<=": "below"}
CLASS_RELATIONS = frozenset({"type.object.type", "common.topic.notable_types"})
"""What queries restrict a variable to a class with."""

_QUOTED = pyparsing.QuotedString('"', esc_char="\\", unquote_results=False) | pyparsing.QuotedString(
    "'", esc_char="\\", unquote_results=False
)
_OR = pyparsing.Keyword("OR", ident_chars=pyparsing.alphanums + "_$:.-?").set_parse_action(lambda: "||")
_TO_STANDARD = _QUOTED | pyparsing.Regex(r"<[^<>\s]*>") | _OR
"""Virtuoso reads `OR` as `||`, and nearly all gold queries use it; rdflib, like the standard, does not."""

# Gold queries hold dates such as "1998"^^xsd:dateTime, which rdflib warns of; their values are never read here.
logging.getLogger("rdflib.term").setLevel(logging.ERROR)


class Variable(NamedTuple):
    """A variable of a query, without its question mark."""

    name: str


Term: TypeAlias = Variable | Node


class Pattern(NamedTuple):
    """A triple pattern whose relation is known."""

    subject: Term
    relation: str
    object: Term


@dataclass(frozen=True, slots=True)
class QueryGraph:
    """The triple patterns of a query and the variable that it asks for."""

    patterns: tuple[Pattern, ...]
    """In a fixed order, not the query's; a variable that `VALUES` binds is replaced by its constants."""
    answer: Variable

    def paths_from(self, start: Term) -> list[RelationPath]:
        """All simple paths from `start` over variables to the answer, shortest first."""
        found: list[RelationPath] = []
        queue: deque[tuple[Term, RelationPath, frozenset[Term]]] = deque([(start, (), frozenset({start}))])
        while queue:
            here, path, seen = queue.popleft()
            for relation, there in self._steps(here):
                if there == self.answer:
                    found.append((*path, relation))
                elif isinstance(there, Variable) and there not in seen:
                    queue.append((there, (*path, relation), seen | {there}))
        return list(dict.fromkeys(found))

    def topics(self) -> tuple[EntityId, ...]:
        """The entities that the query names, without the classes that it restricts a variable to."""
        terms = (
            term
            for pattern in self.patterns
            if pattern.relation not in CLASS_RELATIONS
            for term in (pattern.subject, pattern.object)
        )
        return tuple(dict.fromkeys(term for term in terms if isinstance(term, str)))

    def _steps(self, here: Term) -> Iterator[tuple[Relation, Term]]:
        for subject, relation, object in self.patterns:
            if subject == here:
                yield Relation(relation, "out"), object
            if object == here:
                yield Relation(relation, "in"), subject


class SparqlPaths(Mapping[EntityId, tuple[RelationPath, ...]]):
    """The gold paths per topic entity, as `Gold.paths` wants them; parsed (about 10 ms a query) when first read."""

    def __init__(
        self,
        queries: tuple[str, ...],
        topics: Mapping[str, EntityId],
        *,
        unverified: tuple[RelationPath, ...] = (),
    ) -> None:
        """Read lazily.

        Args:
            queries: Gold SPARQL; a query that cannot be parsed gives no path.
            topics: The id that a topic has in the queries → its id in the graph.
            unverified: Further candidates, tried from every topic entity after those of the queries.
        """
        self._queries = queries
        self._topics = topics
        self._unverified = unverified

    @property
    def topics(self) -> Mapping[str, EntityId]:
        """The id that a topic has in the queries → its id in the graph."""
        return self._topics

    def __getitem__(self, topic: EntityId) -> tuple[RelationPath, ...]:
        return self._found[topic]

    def __iter__(self) -> Iterator[EntityId]:
        return iter(self._found)

    def __len__(self) -> int:
        return len(self._found)

    @cached_property
    def _found(self) -> dict[EntityId, tuple[RelationPath, ...]]:
        graphs = [graph for query in self._queries if (graph := query_graph(query))]
        found: dict[EntityId, tuple[RelationPath, ...]] = {}
        for constant, topic in self._topics.items():
            read = sorted((path for graph in graphs for path in graph.paths_from(constant)), key=len)
            if paths := tuple(dict.fromkeys([*read, *self._unverified])):
                found[topic] = paths
        return found


@dataclass(frozen=True, slots=True)
class Operation:
    """What a query does with the nodes that its paths reach: it counts them, or picks some by a value of theirs."""

    kind: Literal["count", "highest", "lowest", "above", "below"]
    path: RelationPath = ()
    """From such a node to the value; empty for a count."""
    bound: str | None = None
    """What the value is above or below."""


def query_operation(sparql: str) -> Operation | None:
    """The count, the order with its limit of one, or the comparison with a constant that a query makes, if any."""
    query = _algebra(sparql)
    if query is None:
        return None
    graph, nodes = _graph(query), list(_expressions(query.p))
    if any(node.name == "Aggregate_Count" for node in nodes):
        return Operation("count")
    limited = any(node.name == "Slice" and node.length == 1 for node in nodes)
    for node in nodes:
        if node.name == "OrderCondition" and limited and (path := _value_path(graph, node.expr)):
            return Operation("highest" if node.order == "DESC" else "lowest", path)
        compares = node.name == "RelationalExpression" and node.op in _SIDES and isinstance(node.other, rdflib.Literal)
        if compares and (path := _value_path(graph, node.expr)):
            return Operation(_SIDES[node.op], path, str(node.other))
    return None


def query_graph(sparql: str) -> QueryGraph | None:
    """The graph of a SELECT query over Freebase names, or None when it cannot be parsed."""
    query = _algebra(sparql)
    return None if query is None else _graph(query)


def _graph(query: Any) -> QueryGraph:
    triples: list[tuple[Any, Any, Any]] = []
    constants: dict[Any, list[Any]] = {}
    aliases: dict[Any, Any] = {}
    for operator in _operators(query.p):
        if operator.name == "BGP":
            triples += operator.triples
        elif operator.name == "values":
            for variable, value in (item for row in operator.res for item in row.items()):
                constants.setdefault(variable, []).append(value)
        elif operator.name == "Extend":
            aliases[operator.var] = operator.expr
    patterns = (
        Pattern(term_of(subject), relation, term_of(object))
        for head, predicate, tail in triples
        if (relation := relation_name(predicate))
        for subject in constants.get(head, [head])
        for object in constants.get(tail, [tail])
    )
    return QueryGraph(tuple(dict.fromkeys(patterns)), Variable(str(aliases.get(query.PV[0], query.PV[0]))))


def algebra(sparql: str) -> Any:
    """The algebra of a query that selects something, as rdflib has it. Raises ParseError, saying why there is none."""
    try:
        parsed = parseQuery(_TO_STANDARD.transform_string(sparql))
        query = translateQuery(parsed, initNs={"xsd": rdflib.XSD}).algebra
    except Exception as error:  # noqa: BLE001  rdflib raises plain Exception, for instance for an unknown prefix
        raise ParseError(" ".join(str(error).split())) from None
    if not query.PV:
        raise ParseError("it selects nothing")
    return query


def _algebra(sparql: str) -> Any | None:
    try:
        return algebra(sparql)
    except ParseError:
        return None


def _expressions(node: Any) -> Iterator[Any]:
    """A node of the algebra and all below it, expressions included."""
    if isinstance(node, CompValue):
        yield node
        for key in sorted(key for key in node if key != "_vars"):
            yield from _expressions(node[key])
    elif isinstance(node, list):
        for item in node:
            yield from _expressions(item)


def _value_path(graph: QueryGraph, compared: Any) -> RelationPath:
    """The relations from the answer variable to a compared one, cast or not; empty when they do not hang together."""
    if isinstance(compared, CompValue) and compared.name == "Function" and len(compared.expr) == 1:
        (compared,) = compared.expr
    if not isinstance(compared, rdflib.Variable):
        return ()
    return next(iter(QueryGraph(graph.patterns, Variable(str(compared))).paths_from(graph.answer)), ())


def _operators(operator: Any) -> Iterator[Any]:
    """The algebra at and below `operator` that binds variables."""
    yield operator
    for part in ("p", "p1") if operator.name == "Minus" else ("p", "p1", "p2"):
        if part in operator:
            yield from _operators(operator[part])


def relation_name(predicate: Any) -> str | None:
    """The relation that a predicate is, or None for a variable or another graph's."""
    return _FREEBASE.from_iri(str(predicate)) if isinstance(predicate, rdflib.URIRef) else None


def term_of(term: Any) -> Term:
    """A term of rdflib's in our own words."""
    if isinstance(term, rdflib.URIRef):
        return _FREEBASE.from_iri(str(term)) or str(term)
    if isinstance(term, rdflib.Literal):
        return LiteralNode(str(term), str(term.datatype) if term.datatype else None, term.language)
    return Variable(str(term))
