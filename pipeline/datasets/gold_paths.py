"""Derives relation paths from gold SPARQL, from each topic to the answer variable (specification §7.1, step 2a).

A query is reduced to its graph of variables and constants, joined by triple patterns. Filters, orders, limits, `MINUS`
and `(NOT) EXISTS` are dropped, so a path may reach more than the answers; callers verify it over the graph.
"""

from __future__ import annotations

import logging
import re
import threading
from collections import deque
from collections.abc import Callable, Collection, Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property, lru_cache
from typing import Any, Literal, NamedTuple, TypeAlias

import rdflib

from pipeline.errors import ParseError
from pipeline.rdf_terms import Terms
from pipeline.types import EntityId, LiteralNode, Node, Relation, RelationPath

_FREEBASE = Terms()
_SIDES: dict[str, Literal["above", "below"]] = {">": "above", ">=": "above", "<": "below", "<=": "below"}
CLASS_RELATIONS = frozenset({"type.object.type", "common.topic.notable_types"})
"""Relations by which queries restrict a variable to a class."""

_PARSING = threading.Lock()
"""The parser of rdflib keeps state: two threads at once make it refuse good queries. Shards are written in threads."""
QUOTED = r""""(?:[^"\\\n]|\\.)*"|'(?:[^'\\\n]|\\.)*'"""
"""A string of a query, as a regular expression."""
_OR = re.compile(rf"({QUOTED}|<[^<>\s]*>)|(?<![\w$:.?-])OR(?![\w$:.?-])")
"""Virtuoso accepts `OR` for `||`, and nearly all gold queries use it; the standard and rdflib do not."""

# rdflib warns about dates such as "1998"^^xsd:dateTime in gold queries; their values are not used here.
logging.getLogger("rdflib.term").setLevel(logging.ERROR)


class Variable(NamedTuple):
    """A variable of a query, without its question mark."""

    name: str


Term: TypeAlias = Variable | Node


class Pattern(NamedTuple):
    """A triple pattern with a constant relation."""

    subject: Term
    relation: str
    object: Term


@dataclass(frozen=True, slots=True)
class QueryGraph:
    """The triple patterns of a query and its answer variable."""

    patterns: tuple[Pattern, ...]
    """In a fixed order, not the query's. A variable bound by `VALUES` is replaced by its constants."""
    answer: Variable

    def paths_from(self, start: Term) -> list[RelationPath]:
        """Return all simple paths from `start` over variables to the answer, shortest first."""
        found: list[RelationPath] = []
        queue: deque[tuple[Term, RelationPath, frozenset[Term]]] = deque([(start, (), frozenset({start}))])
        while queue:
            current, path, seen = queue.popleft()
            for relation, next_term in self._steps(current):
                if next_term == self.answer:
                    found.append((*path, relation))
                elif isinstance(next_term, Variable) and next_term not in seen:
                    queue.append((next_term, (*path, relation), seen | {next_term}))
        return list(dict.fromkeys(found))

    def topics(self) -> tuple[EntityId, ...]:
        """Return the entities that the query names, except classes."""
        terms = (
            term
            for pattern in self.patterns
            if pattern.relation not in CLASS_RELATIONS
            for term in (pattern.subject, pattern.object)
        )
        return tuple(dict.fromkeys(term for term in terms if isinstance(term, str)))

    def renamed(self, names: Mapping[str, str]) -> QueryGraph:
        """Return the graph with other names of relations and entities; a name that is not in `names` stays."""

        def name(term: Term) -> Term:
            return names.get(term, term) if isinstance(term, str) else term

        patterns = (
            Pattern(name(head), names.get(relation, relation), name(tail)) for head, relation, tail in self.patterns
        )
        return QueryGraph(tuple(patterns), self.answer)

    def _steps(self, current: Term) -> Iterator[tuple[Relation, Term]]:
        """Yield each relation that leads away from a term, and the term that it leads to."""
        for pattern in self.patterns:
            if pattern.subject == current:
                yield Relation(pattern.relation, "out"), pattern.object
            if pattern.object == current:
                yield Relation(pattern.relation, "in"), pattern.subject


class SparqlPaths(Mapping[EntityId, tuple[RelationPath, ...]]):
    """The gold paths per topic entity, for `Gold.paths`. Queries are parsed at first use (about 10 ms each)."""

    def __init__(
        self,
        queries: tuple[str, ...],
        topics: Mapping[str, EntityId],
        *,
        unverified: tuple[RelationPath, ...] = (),
    ) -> None:
        """Store the queries; nothing is parsed yet.

        Args:
            queries: Gold SPARQL; a query that cannot be parsed gives no path.
            topics: Id of a topic entity in the queries → its id in the graph.
            unverified: Further candidate paths for every topic entity, after those of the queries.
        """
        self._queries = queries
        self.topics = topics
        self.given = unverified
        """The paths that the dataset names itself, outside its queries. Their directions are not known."""

    def renamed(
        self,
        query: Callable[[str], str],
        topics: Mapping[str, EntityId],
        path: Callable[[RelationPath], RelationPath],
    ) -> SparqlPaths:
        """Return the paths with other names: each query and each further path renamed by a function."""
        return SparqlPaths(tuple(map(query, self._queries)), topics, unverified=tuple(map(path, self.given)))

    @property
    def given_relations(self) -> list[str]:
        """The relations that the dataset names itself, outside its queries, each once."""
        return list(dict.fromkeys(relation.name for path in self.given for relation in path))

    def __getitem__(self, topic: EntityId) -> tuple[RelationPath, ...]:
        return self._by_topic[topic]

    def __iter__(self) -> Iterator[EntityId]:
        return iter(self._by_topic)

    def __len__(self) -> int:
        return len(self._by_topic)

    @cached_property
    def _by_topic(self) -> dict[EntityId, tuple[RelationPath, ...]]:
        graphs = [graph for query in self._queries if (graph := query_graph(query))]
        found: dict[EntityId, tuple[RelationPath, ...]] = {}
        for constant, topic in self.topics.items():
            read = sorted((path for graph in graphs for path in graph.paths_from(constant)), key=len)
            if paths := tuple(dict.fromkeys([*read, *self.given])):
                found[topic] = paths
        return found


@dataclass(frozen=True, slots=True)
class Operation:
    """The operation of a query on the nodes that its paths reach: a count, or a selection by a value."""

    kind: Literal["count", "highest", "lowest", "above", "below"]
    path: RelationPath = ()
    """From a node to its value; empty for a count."""
    bound: str | None = None
    """The bound of a comparison (`above`, `below`)."""


def query_operation(sparql: str) -> Operation | None:
    """Return the count, the superlative (order with a limit of one) or the comparison with a constant, if any."""
    query = _algebra(sparql)
    if query is None:
        return None
    graph, nodes = graph_of(query), list(expressions(query.p))
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


@lru_cache(maxsize=1024)
def query_graph(sparql: str) -> QueryGraph | None:
    """Return the graph of a SELECT query over Freebase names; None if it cannot be parsed."""
    query = _algebra(sparql)
    return None if query is None else graph_of(query)


def graph_of(query: Any) -> QueryGraph:
    """Return the graph of a query's algebra."""
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
        elif operator.name == "AggregateJoin":  # the nodes that are counted are those that the paths reach
            aliases |= {aggregate.res: aggregate.vars for aggregate in operator.A}
    patterns = (
        Pattern(term_of(subject), relation, term_of(object))
        for head, predicate, tail in triples
        if (relation := relation_name(predicate))
        for subject in constants.get(head, [head])
        for object in constants.get(tail, [tail])
    )
    answer = query.PV[0]
    while isinstance(aliases.get(answer), rdflib.Variable):
        answer = aliases.pop(answer)
    return QueryGraph(tuple(dict.fromkeys(patterns)), Variable(str(answer)))


@lru_cache(maxsize=256)
def algebra(sparql: str) -> Any:
    """Return rdflib's algebra of a SELECT query, to read only. Raises ParseError with the reason if there is none."""
    # Here, because rdflib takes 0.1 s to build its grammar, and most runs have no query.
    from rdflib.plugins.sparql.algebra import translateQuery
    from rdflib.plugins.sparql.parser import parseQuery

    try:
        with _PARSING:
            parsed = parseQuery(_OR.sub(lambda found: found[1] or "||", sparql))
            query = translateQuery(parsed, initNs={"xsd": rdflib.XSD}).algebra
    except Exception as error:  # noqa: BLE001  rdflib raises plain Exception, for instance for an unknown prefix
        raise ParseError(" ".join(str(error).split())) from None
    if not query.PV:
        raise ParseError("it selects nothing")
    return query


def _is_operation(part: Any) -> bool:
    """Whether a part of the algebra is an operation: not a term, a list, or a row of `VALUES`."""
    from rdflib.plugins.sparql.parserutils import CompValue

    return isinstance(part, CompValue)


def _algebra(sparql: str) -> Any | None:
    try:
        return algebra(sparql)
    except ParseError:
        return None


def expressions(node: Any, *, without: Collection[str] = ()) -> Iterator[Any]:
    """Yield a node of the algebra and all its descendants, except operations named in `without` and all inside them."""
    if _is_operation(node) and node.name not in without:
        yield node
        for key in sorted(key for key in node if key != "_vars"):
            yield from expressions(node[key], without=without)
    elif isinstance(node, list):
        for item in node:
            yield from expressions(item, without=without)


def _value_path(graph: QueryGraph, compared: Any) -> RelationPath:
    """Return the relations from the answer variable to a compared variable; empty if they are not connected."""
    if _is_operation(compared) and compared.name == "Function" and len(compared.expr) == 1:
        (compared,) = compared.expr
    if not isinstance(compared, rdflib.Variable):
        return ()
    return next(iter(QueryGraph(graph.patterns, Variable(str(compared))).paths_from(graph.answer)), ())


def _operators(operator: Any) -> Iterator[Any]:
    """Yield `operator` and the operators below it that bind variables."""
    yield operator
    for part in ("p", "p1") if operator.name == "Minus" else ("p", "p1", "p2"):
        if part in operator:
            yield from _operators(operator[part])


def relation_name(predicate: Any) -> str | None:
    """Return the relation of a predicate; None for a variable or a predicate of another graph."""
    return _FREEBASE.from_iri(str(predicate)) if isinstance(predicate, rdflib.URIRef) else None


def term_of(term: Any) -> Term:
    """Convert a term of rdflib."""
    if isinstance(term, rdflib.URIRef):
        return _FREEBASE.from_iri(str(term)) or str(term)
    if isinstance(term, rdflib.Literal):
        return LiteralNode(str(term), str(term.datatype) if term.datatype else None, term.language)
    return Variable(str(term))
