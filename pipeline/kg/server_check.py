"""Checks graph servers before use: row limit, query style, and that they hold the same graph (specification §8.6)."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import TypeAlias

from pipeline.datasets.inverses import Inverses, inverse_pairs
from pipeline.errors import ServiceError, UserError
from pipeline.kg.fingerprint import fingerprint as fingerprint_of
from pipeline.kg.fingerprint import rarest, vocabulary_marks
from pipeline.kg.labels import is_true
from pipeline.kg.paging import LookupCost, ResultReader
from pipeline.kg.queries import Queries, Style, node_cells
from pipeline.kg.results import Row
from pipeline.kg.sparql_client import SparqlClient
from pipeline.net.server import Server
from pipeline.rdf_terms import Terms
from pipeline.text import counted
from pipeline.types import Relation, Triple

Fact: TypeAlias = tuple[str, ...]
RowSet: TypeAlias = set[Row] | None
"""The rows of a result; None if the result is incomplete, so that any rows may be missing."""

_STYLES: tuple[Style, ...] = ("values", "filter_in", "union")
_SELF_TEST_FACTS = 20
_SELF_TEST_TIMEOUT_S = 10.0
"""If a few ids take longer than this, the server has chosen a bad query plan for the style."""


@dataclass(frozen=True, slots=True)
class Identity:
    """What identifies the graph of a server. Two servers may serve one run only if theirs are equal.

    `kg.snapshot` replaces the fingerprint, but not the counts. They show that a server holds less than its name says.
    """

    counts: dict[str, int]
    """Facts per relation, of all relations of the vocabulary."""
    meta: dict[str, int]
    """Facts per predicate by which the vocabulary names and types nodes."""
    fingerprint: str

    def summary(self) -> str:
        """Return the fingerprint, and the numbers of facts of relations, and of facts that name and type nodes."""
        facts, meta = sum(self.counts.values()), sum(self.meta.values())
        return f"{self.fingerprint}: {counted(facts, 'fact')}; {meta:,} facts name and type nodes"


@dataclass(frozen=True, slots=True)
class ServerCheck:
    """The result of checking the servers: properties of the graph and of the servers."""

    servers: Sequence[Server]
    """The servers that were checked. A healthy server that failed at the first query is not among them."""
    queries: Queries
    """The queries in a style that all servers answer correctly."""
    row_limit: int
    identity: Identity
    named: bool
    """Whether the graph has names or aliases at all."""
    mediator_types: frozenset[str]
    inverses: Inverses
    snapshot: str | None
    """`kg.snapshot`, which is used as the fingerprint; None if that was computed."""
    sample: tuple[Sequence[Fact], list[RowSet] | None]
    """Some facts, and the servers' results for their nodes."""

    async def incompatibility(self, client: SparqlClient, server: Server) -> str | None:
        """Return why a server that recovered cannot replace the others, or None if it can.

        Re-run all start-up checks: the server may have been restarted with other data, or is still loading it.
        """
        reader = ResultReader(partial(client.ask, only=server), self.row_limit)
        facts, expected = self.sample
        try:
            if await _row_limit(reader, self.queries) < self.row_limit:
                return f"it cuts results before {self.row_limit:,} rows"
            if not _agree(expected, await _self_test(reader, self.queries, facts)):
                return "its results differ from those of the other servers"
            if await _identity(reader, self.queries, self.snapshot) != self.identity:
                return "it holds another graph"
        except ServiceError as error:
            return str(error)
        return None


async def check_servers(
    client: SparqlClient, queries: Queries, *, style: Style | None, snapshot: str | None
) -> ServerCheck:
    """Check all healthy servers. A server that answers no query is set aside if another one answers.

    Raises UserError when the servers hold different graphs, and ServiceError when one stops answering. A `style` of
    None is chosen by a test. A `snapshot` is used as the fingerprint; None computes one.
    """
    row_limits = await _row_limits(client, queries)
    servers, row_limit = list(row_limits), min(row_limits.values())
    readers = [ResultReader(partial(client.ask, only=server), row_limit) for server in servers]
    facts = await _some_facts(readers[0], queries)
    queries = replace(queries, style=style or await _choose_style(readers, queries, facts))
    results = await asyncio.gather(*(_self_test(reader, queries, facts) for reader in readers))
    identities = await asyncio.gather(*(_identity(reader, queries, snapshot) for reader in readers))
    for server, each in zip(servers, identities, strict=True):
        if not each.counts and not each.meta:
            raise UserError(
                f"kg.endpoints: the graph at {server.url} has no facts that this kg/vocabulary reads: name the one "
                "with which the graph was loaded, such as kg/vocabulary=rdfs, or see whether its file is empty"
            )
    identity = identities[0]
    for server, result, other in zip(servers, results, identities, strict=True):
        if other != identity or not _agree(results[0], result):
            how = f" ({identity.summary()} and {other.summary()})" if other != identity else ""
            raise UserError(
                f"kg.endpoints: {servers[0].url} and {server.url} hold different graphs{how}; load both from one "
                "database, or name only one of them"
            )
    return ServerCheck(
        servers,
        queries,
        row_limit,
        identity=identity,
        named=not identity.meta.keys().isdisjoint(queries.naming),
        mediator_types=await _mediator_types(readers[0], queries),
        inverses=await _inverses(readers[0], queries),
        snapshot=snapshot,
        sample=(facts, results[0]),
    )


async def _row_limits(client: SparqlClient, queries: Queries) -> dict[Server, int]:
    """Return the row limit of each healthy server that answers. The others become unhealthy, unless none is left."""
    servers = client.healthy_servers
    readers = [ResultReader(partial(client.ask, only=server)) for server in servers]
    found = await asyncio.gather(*(_row_limit(reader, queries) for reader in readers), return_exceptions=True)
    limits: dict[Server, int] = {}
    failures: dict[Server, ServiceError] = {}
    for server, each in zip(servers, found, strict=True):
        if isinstance(each, ServiceError):
            failures[server] = each
        elif isinstance(each, BaseException):
            raise each
        else:
            limits[server] = each
    if not limits:
        raise UserError(f"kg.endpoints: no graph server answers queries. {next(iter(failures.values()))}")
    for server, failure in failures.items():
        client.mark_unhealthy(server, str(failure))
    return limits


async def _row_limit(reader: ResultReader, queries: Queries) -> int:
    """Return the number of rows from which a result may be incomplete."""
    counted, _ = await reader.rows(queries.count_any_facts(reader.row_limit), LookupCost())
    if len(counted) != 1:
        raise ServiceError(f"kg.endpoints: a graph server answered a count with {len(counted)} rows")
    rows, _ = await reader.rows(queries.any_facts(), LookupCost())
    return len(rows) if len(rows) < int(counted[0][0]) else reader.row_limit


async def _some_facts(reader: ResultReader, queries: Queries) -> list[Fact]:
    rows, _ = await reader.rows(queries.any_facts(), LookupCost())
    return [fact for fact in (_names(row, queries.terms) for row in rows) if fact][:_SELF_TEST_FACTS]


async def _choose_style(readers: Sequence[ResultReader], queries: Queries, facts: Sequence[Fact]) -> Style:
    """Return the first style in which every server gives the same results as for single ids (style `union`)."""
    expected = await asyncio.gather(*(_self_test(reader, replace(queries, style="union"), facts) for reader in readers))
    for style in _STYLES:
        found = await asyncio.gather(*(_self_test(reader, replace(queries, style=style), facts) for reader in readers))
        if all(one is not None and _agree(one, other) for one, other in zip(found, expected, strict=True)):
            return style
    raise UserError("kg.endpoints: the graph server answers no query style correctly; is it a SPARQL 1.1 server?")


async def _self_test(reader: ResultReader, queries: Queries, facts: Sequence[Fact]) -> list[RowSet] | None:
    """Return the server's results for the nodes of some facts; None if it fails or takes too long."""
    if not facts:
        return []
    ids = list(dict.fromkeys(id for head, _, tail in facts for id in (head, tail)))
    outgoing = [(head, Relation(relation, "out")) for head, relation, _ in facts]
    incoming = [(tail, Relation(relation, "in")) for _, relation, tail in facts]
    tests = [queries.relations(ids), queries.neighbours(outgoing), queries.neighbours(incoming)]
    try:
        async with asyncio.timeout(_SELF_TEST_TIMEOUT_S):
            results = [await reader.rows(query, LookupCost()) for query in tests]
    except (ServiceError, TimeoutError):
        return None
    return [set(rows) if complete else None for rows, complete in results]


def _agree(one: list[RowSet] | None, other: list[RowSet] | None) -> bool:
    """Return whether two servers gave the same results, as far as these are complete."""
    if one is None or other is None:
        return one is other
    return all(a is None or b is None or a == b for a, b in zip(one, other, strict=True))


async def _counts(reader: ResultReader, queries: Queries) -> tuple[dict[str, int], dict[str, int]]:
    """Return the number of facts per relation, and per predicate by which the vocabulary names and types nodes."""
    rows, complete = await reader.rows(queries.relation_counts(), LookupCost())
    if not complete:
        rows = await reader.ordered(queries.relation_counts(), LookupCost())
    named = ((queries.terms.plain_relation(relation), int(count)) for relation, count in rows)
    meta = {predicate: int(count) for predicate, count in rows if predicate in queries.meta}
    return {relation: count for relation, count in named if relation is not None}, meta


async def _identity(reader: ResultReader, queries: Queries, snapshot: str | None) -> Identity:
    counts, meta = await _counts(reader, queries)
    if snapshot is not None:
        return Identity(counts, meta, snapshot)
    facts = await reader.complete(queries.facts, rarest(counts), LookupCost())
    marks = vocabulary_marks(queries.hidden.vocabulary, meta)
    return Identity(counts, meta, fingerprint_of(counts, (*(_line(row, queries.terms) for row in facts), *marks)))


async def _mediator_types(reader: ResultReader, queries: Queries) -> frozenset[str]:
    if queries.hidden.vocabulary.mediator_flag is None:
        return frozenset()
    types = await reader.ordered(queries.marked_types(), LookupCost())
    mediators = (queries.terms.from_iri(iri) for iri, flag in types if is_true(flag))
    return frozenset(type for type in mediators if type is not None)


async def _inverses(reader: ResultReader, queries: Queries) -> Inverses:
    if queries.hidden.vocabulary.inverses is None:
        return {}
    declared = await reader.ordered(queries.inverses(), LookupCost())
    return inverse_pairs((queries.terms.node(one), queries.terms.node(other)) for one, other in declared)


def _line(row: Row, terms: Terms) -> str:
    head, relation, *tail = row
    name = terms.plain_relation(relation)
    assert name is not None
    return terms.n_triple(Triple(terms.node(head), name, node_cells(tail).node(terms)))


def _names(row: Row, terms: Terms) -> Fact | None:
    """Return the names in a row of IRIs, or None if one belongs to another namespace."""
    head, relation, tail = row
    read = (terms.from_iri(head), terms.plain_relation(relation), terms.from_iri(tail))
    names = tuple(name for name in read if name is not None)
    return names if len(names) == len(row) else None
