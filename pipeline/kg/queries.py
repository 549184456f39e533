"""Writes SPARQL queries, and says what their results may hold (specification §8.3, §8.6).

A query asks about many ids at once, in one of three equivalent styles, because servers differ in the styles that they
answer correctly and fast. Ids and relations are percent-encoded IRIs, and names are escaped literals, so that no string
can change the meaning of a query. In tab-separated results, which are faster than JSON, Virtuoso writes IRIs and
texts alike. Therefore a column that may contain both comes with columns for its kind, datatype and language.
"""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Literal, TypeAlias

from pipeline.kg.interface import Hop
from pipeline.kg.node_order import NodeCandidate
from pipeline.kg.relation_filter import RelationFilter
from pipeline.kg.results import Check, Row, Select, numbers
from pipeline.kg.vocabulary import GraphVocabulary
from pipeline.rdf_terms import Terms, literal
from pipeline.types import EntityId, LiteralNode

Style: TypeAlias = Literal["values", "filter_in", "union"]
OUT, IN = "1", "0"
"""Values of the direction column."""
TRUE = frozenset({"1", "true"})
"""Values of an "is literal" column for a literal."""
_DIRECTION = frozenset({OUT, IN}).issuperset
_FLAG = (TRUE | {"0", "false"}).issuperset

_IN_ORDER = 'define sql:select-option "order" '
"""Makes Virtuoso join from left to right, starting at the given ids. Otherwise it may scan the whole graph."""

_NODE = "?t, (isLITERAL(?t) AS ?x), (DATATYPE(?t) AS ?k), (LANG(?t) AS ?l)"
"""A node and the columns that distinguish IRIs from literals. (In Virtuoso even an IRI can have a datatype.)"""
_NODE_ORDER = "isLITERAL(?t) STR(?t) LANG(?t)"


@dataclass(frozen=True, slots=True)
class Query:
    """A query that can be sent as one, or page by page in a fixed order if the server would cut its result."""

    columns: str
    """The selected variables and expressions `(… AS ?v)`, separated by commas."""
    where: str
    order: str
    distinct: bool = False
    checks: Mapping[str, Check] = field(default_factory=dict)
    """Checks of the values of some columns, by the names of their variables."""
    prefix: str = ""
    """Server-specific options before `SELECT`."""
    graph: str = ""
    """The `FROM` clause, or an empty text."""

    def text(self, limit: int) -> Select:
        """Return the query for at most `limit` rows in any order."""
        return self._limited(f"{self.prefix}{self._select} {self.graph}WHERE {{ {self.where} }} LIMIT {limit}", limit)

    def page(self, limit: int, offset: int) -> Select:
        """Return the query for `limit` rows from `offset` on, in byte order."""
        ordered = f"WHERE {{ {self.where} }} ORDER BY {self.order}"
        if not offset:
            return self._limited(f"{self.prefix}{self._select} {self.graph}{ordered} LIMIT {limit}", limit)
        # Virtuoso refuses to sort for an OFFSET above 10,000, except in a nested query.
        variables = " ".join(f"?{name}" for name in self._names)
        nested = f"{{ {{ {self._select} {ordered} }} }}"
        text = f"{self.prefix}SELECT {variables} {self.graph}WHERE {nested} LIMIT {limit} OFFSET {offset}"
        return self._limited(text, limit)

    def _limited(self, text: str, limit: int) -> Select:
        return Select(text, self._names, limit, tuple(map(self.checks.get, self._names)))

    @property
    def _names(self) -> tuple[str, ...]:
        return tuple(column.rstrip(")").split()[-1].removeprefix("?") for column in self.columns.split(", "))

    @property
    def _select(self) -> str:
        return f"SELECT {'DISTINCT ' if self.distinct else ''}{self.columns.replace(',', '')}"


@dataclass(frozen=True, slots=True)
class Queries:
    """Writer of queries for one graph and one kind of server. Each method names the columns of its result."""

    terms: Terms
    hidden: RelationFilter
    """The filter of the relations, some of which are excluded on the server, and with it the vocabulary."""
    style: Style = "values"
    virtuoso: bool = False
    """Whether the server understands Virtuoso's options."""
    graph: str | None = None
    """IRI of the named graph to query; None queries all graphs."""

    def relations(self, ids: Sequence[EntityId]) -> Query:
        """Columns: entity, relation, direction.

        Each direction has its own DISTINCT, which Virtuoso answers from an index of (object, relation) pairs: in 0.1 s
        at a hub of three million incoming edges, where one DISTINCT over the union took 4 s.
        """
        entities = self._iris(ids)
        outgoing = f"SELECT DISTINCT ?e ?r ({OUT} AS ?d) {{ {self._over(('?e',), entities, '?e ?r ?o')} }}"
        incoming = f"SELECT DISTINCT ?e ?r ({IN} AS ?d) {{ {self._over(('?e',), entities, '?s ?r ?e')} }}"
        where = f"{{ {{ {outgoing} }} UNION {{ {incoming} }} }} {self._shown()}".rstrip()
        return self._query("?e, ?r, ?d", where, "STR(?e) STR(?r) ?d", {"e": self._among(ids), "d": _DIRECTION})

    def neighbours(self, hops: Sequence[Hop]) -> Query:
        """Columns: entity, relation, direction, node, is literal, datatype, language."""
        parts = []
        for direction, flag, pattern in (("out", OUT, "?e ?r ?t"), ("in", IN, "?t ?r ?e")):
            pairs = [(id, relation.name) for id, relation in hops if relation.direction == direction]
            if pairs:
                rows = [(self._iri(id), self._relation(name)) for id, name in pairs]
                found = self._over(("?e", "?r"), rows, pattern)
                parts.append(f"{{ SELECT ?e ?r ?t ({flag} AS ?d) {{ {found} }} }}")
        relations = frozenset(self.terms.relation_iri(relation.name) for _, relation in hops)
        checks = {"e": self._among(id for id, _ in hops), "r": relations.issuperset}
        order = f"STR(?e) STR(?r) ?d {_NODE_ORDER}"
        return self._query(f"?e, ?r, ?d, {_NODE}", " UNION ".join(parts), order, checks | {"d": _DIRECTION, "x": _FLAG})

    def preferred_names(self, ids: Sequence[EntityId]) -> Query:
        """Columns: entity, text, language. Names in the languages of the vocabulary or without a language."""
        named = [self._over(("?e",), self._iris(ids), f"?e {name} ?n {self._in_languages()}") for name in self._names]
        found = named[0] if len(named) == 1 else " UNION ".join(f"{{ {part} }}" for part in named)
        return self._query("?e, ?n, (LANG(?n) AS ?l)", found, "STR(?e) STR(?n) LANG(?n)", {"e": self._among(ids)})

    def other_names(self, ids: Sequence[EntityId]) -> Query:
        """Columns: entity, text, language, predicate, is literal. Aliases in the languages, and names in any one."""
        entities = self._iris(ids)
        aliases = (
            (name, self._over(("?e",), entities, f"?e {name} ?n {self._in_languages()}")) for name in self._aliases
        )
        names = ((name, self._over(("?e",), entities, f"?e {name} ?n")) for name in self._names)
        where = " UNION ".join(f"{{ {found} BIND({name} AS ?r) }}" for name, found in (*aliases, *names))
        checks = {"e": self._among(ids), "r": self.naming.issuperset, "x": _FLAG}
        return self._query(
            "?e, ?n, (LANG(?n) AS ?l), ?r, (isLITERAL(?n) AS ?x)", where, "STR(?e) STR(?n) LANG(?n) STR(?r)", checks
        )

    def types(self, ids: Sequence[EntityId]) -> Query:
        """Columns: entity, type, is literal. The vocabulary must have a predicate of types."""
        found = self._over(("?e",), self._iris(ids), f"?e {self._predicate(self._vocabulary.types)} ?c")
        return self._query(
            "?e, ?c, (isLITERAL(?c) AS ?x)", found, "STR(?e) STR(?c)", {"e": self._among(ids), "x": _FLAG}
        )

    def named(self, names: Sequence[tuple[int, str]]) -> Query:
        """Columns: number of the name, entity. Entities with exactly this name, in the languages or without a language.

        Always in the style `union`: with literals in VALUES, Virtuoso 7.2.5 loses rows and refuses long literals.
        """
        found = (
            f"{{ ?e {predicate} {literal(LiteralNode(name, lang=lang))} BIND({number} AS ?i) }}"
            for number, name in names
            for predicate in self._names
            for lang in (*self._vocabulary.languages, None)
        )
        checks = {"i": frozenset(str(number) for number, _ in names).issuperset}
        return self._query("?i, ?e", " UNION ".join(found), "?i STR(?e)", checks, distinct=True)

    def relation_counts(self) -> Query:
        """Columns: relation, number of facts."""
        counted = "{ SELECT ?r (COUNT(*) AS ?n) { ?s ?r ?o } GROUP BY ?r }"
        return self._query("?r, ?n", counted, "STR(?r)", {"n": numbers})

    def facts(self, relations: Sequence[str]) -> Query:
        """Columns: entity, relation, node, is literal, datatype, language. All facts of some relations."""
        found = self._over(("?r",), [(self._relation(name),) for name in relations], "?e ?r ?t")
        checks = {"r": frozenset(map(self.terms.relation_iri, relations)).issuperset, "x": _FLAG}
        return self._query(f"?e, ?r, {_NODE}", found, f"STR(?e) STR(?r) {_NODE_ORDER}", checks)

    def any_facts(self) -> Query:
        """Columns: entity, relation, entity. Arbitrary facts between entities."""
        return self._query("?e, ?r, ?t", "?e ?r ?t FILTER(isIRI(?t))", "STR(?e) STR(?r) STR(?t)")

    def count_any_facts(self, most: int) -> Query:
        """Columns: number of rows of `any_facts`, at most `most`."""
        some = f"{{ SELECT ?e WHERE {{ {self.any_facts().where} }} LIMIT {most} }}"
        return self._query("?n", f"{{ SELECT (COUNT(*) AS ?n) WHERE {{ {some} }} }}", "?n", {"n": numbers})

    def marked_types(self) -> Query:
        """Columns: type, flag. The vocabulary must have a predicate that marks mediators."""
        return self._pairs(self._vocabulary.mediator_flag)

    def inverses(self) -> Query:
        """Columns: relation, its inverse. The vocabulary must have a predicate of inverses."""
        return self._pairs(self._vocabulary.inverses)

    def redirects(self, ids: Sequence[EntityId]) -> Query:
        """Columns: entity, the entity that it is called today. The vocabulary must have a predicate of redirects."""
        found = self._over(("?e",), self._iris(ids), f"?e {self._predicate(self._vocabulary.redirects)} ?c")
        return self._query("?e, ?c", found, "STR(?e) STR(?c)", {"e": self._among(ids)})

    @property
    def aliases(self) -> frozenset[str]:
        """The IRIs of the predicates of aliases."""
        return frozenset(map(self.terms.predicate_iri, self._vocabulary.aliases))

    @property
    def naming(self) -> frozenset[str]:
        """The IRIs of the predicates of names and aliases."""
        return self.aliases.union(map(self.terms.predicate_iri, self._vocabulary.names))

    @property
    def meta(self) -> frozenset[str]:
        """The IRIs of all predicates by which the vocabulary names, types and redirects nodes."""
        return frozenset(map(self.terms.predicate_iri, self._vocabulary.meta_predicates))

    @property
    def _vocabulary(self) -> GraphVocabulary:
        return self.hidden.vocabulary

    @property
    def _names(self) -> tuple[str, ...]:
        return tuple(map(self._predicate, self._vocabulary.names))

    @property
    def _aliases(self) -> tuple[str, ...]:
        return tuple(map(self._predicate, self._vocabulary.aliases))

    def _predicate(self, name: str | None) -> str:
        assert name is not None, "the vocabulary has no such predicate"
        return f"<{self.terms.predicate_iri(name)}>"

    def _pairs(self, predicate: str | None) -> Query:
        return self._query("?c, ?v", f"?c {self._predicate(predicate)} ?v", "STR(?c) STR(?v)")

    def _in_languages(self) -> str:
        # No FILTER(isIRI) or FILTER(isLITERAL) in a union: Virtuoso 7.2.5 fails on some of them (error SP031).
        matching = (f'LANGMATCHES(LANG(?n), "{language}")' for language in self._vocabulary.languages)
        return f'FILTER(LANG(?n) = "" || {" || ".join(matching)})'

    def _shown(self) -> str:
        """Return a filter of the relations that may be shown, or an empty text."""
        if namespaces := self.terms.relations.values():
            return f'FILTER(REGEX(STR(?r), "^({"|".join(map(_regex, namespaces))})"))'
        if not (dropped := self.hidden.dropped):
            return ""
        dotted = all(start.endswith(".") for start in dropped)
        starts = "|".join(start[:-1] for start in dropped) if dotted else "|".join(map(_regex, dropped))
        return f'FILTER(!REGEX(STR(?r), "^{_regex(self.terms.namespace)}({starts}){"[.]" if dotted else ""}"))'

    def _query(
        self, columns: str, where: str, order: str, checks: Mapping[str, Check] | None = None, *, distinct: bool = False
    ) -> Query:
        prefix = _IN_ORDER if self.virtuoso else ""
        graph = f"FROM <{self.graph}> " if self.graph else ""
        return Query(columns, where, order, distinct, checks or {}, prefix, graph)

    def _among(self, names: Iterable[str]) -> Check:
        """Return a check that accepts the IRIs of these names."""
        return frozenset(map(self.terms.to_iri, names)).issuperset

    def _iri(self, name: str) -> str:
        return f"<{self.terms.to_iri(name)}>"

    def _relation(self, name: str) -> str:
        return f"<{self.terms.relation_iri(name)}>"

    def _iris(self, names: Iterable[str]) -> list[Row]:
        return [(self._iri(name),) for name in names]

    def _over(self, variables: Row, rows: Sequence[Row], pattern: str) -> str:
        """Return the pattern with the variables bound to each of the rows."""
        if self.style == "values":
            terms = " ".join(f"({' '.join(row)})" for row in rows)
            return f"VALUES ({' '.join(variables)}) {{ {terms} }} {pattern}"
        if self.style == "union":
            return " UNION ".join(f"{{ {_bound(variables, row, pattern)} }}" for row in rows)
        groups: defaultdict[Row, list[str]] = defaultdict(list)
        for first, *others in rows:
            groups[tuple(others)].append(first)
        return " UNION ".join(
            f"{{ {_bound(variables[1:], others, pattern)} FILTER({variables[0]} IN ({', '.join(firsts)})) }}"
            # Virtuoso fails on an IN with one member.
            if len(firsts) > 1
            else f"{{ {_bound(variables, (firsts[0], *others), pattern)} }}"
            for others, firsts in groups.items()
        )


def node_cells(cells: Sequence[str]) -> NodeCandidate:
    """Return the node that four columns describe: text, is literal, datatype, language."""
    text, is_literal, datatype, lang = cells
    return NodeCandidate.from_literal(text, datatype, lang) if is_literal in TRUE else NodeCandidate(False, text)


def _bound(variables: Sequence[str], row: Sequence[str], pattern: str) -> str:
    """Return the pattern with the row's terms instead of the variables, which are bound to them afterwards."""
    for variable, term in zip(variables, row, strict=True):
        pattern = f"{pattern.replace(variable, term)} BIND({term} AS {variable})"
    return pattern


def _regex(text: str) -> str:
    """Return the text as a regular expression inside a SPARQL string."""
    return re.sub(r"[^A-Za-z0-9/:]", lambda match: f"[{match[0]}]", text)
