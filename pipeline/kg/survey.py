"""What has to be learned of a graph server before it is relied on: row limit, query style, facts (methods.md §8.6)."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import TypeAlias

from pipeline.errors import ServiceError, UserError
from pipeline.kg.fingerprint import fingerprint as fingerprint_of
from pipeline.kg.fingerprint import rarest
from pipeline.kg.naming import is_true
from pipeline.kg.pool import Endpoint, Pool
from pipeline.kg.queries import Queries, Row, Style, node_cells
from pipeline.kg.reader import Reader, Tally
from pipeline.kg.terms import Terms
from pipeline.types import Relation, Triple

Fact: TypeAlias = tuple[str, ...]
Found: TypeAlias = set[Row] | None
"""The rows of a result; None for one that was cut, because any of its rows may be missing."""

_STYLES: tuple[Style, ...] = ("values", "filter_in", "union")
_SELF_TEST_FACTS = 20
_SELF_TEST_S = 10.0
"""A style that takes longer than this for a handful of ids has found a bad plan."""


@dataclass(frozen=True, slots=True)
class Survey:
    """What is known of the graph and its servers."""

    queries: Queries
    """In the style that all of the servers answer well."""
    row_limit: int
    counts: dict[str, int]
    """Facts per relation, of all relations in the graph's namespace."""
    mediator_types: frozenset[str]
    fingerprint: str
    counted: bool
    """Whether the fingerprint was computed, and not given as `kg.snapshot`."""
    sample: tuple[Sequence[Fact], list[Found] | None]
    """Some facts, and what the servers say about their nodes."""

    async def misfit(self, pool: Pool, endpoint: Endpoint) -> str | None:
        """Why a server that was away, or was not there at the start, cannot stand in for the others; None if it can.

        It passes through what the others did, for it may be another load by now, or one that is not finished.
        """
        reader = Reader(partial(pool.ask, only=endpoint), self.row_limit)
        facts, expected = self.sample
        try:
            if await _row_limit(reader, self.queries) < self.row_limit:
                return f"it cuts results before {self.row_limit:,} rows"
            if not _agree(expected, await _self_test(reader, self.queries, facts)):
                return "it answers otherwise than the other servers"
            if self.counted and (await _count(reader, self.queries))[1] != self.fingerprint:
                return "it holds another graph"
        except ServiceError as error:
            return str(error)
        return None


async def survey(pool: Pool, queries: Queries, *, style: Style | None, snapshot: str | None) -> Survey:
    """Question the servers that answer now. Raises UserError when they hold different graphs.

    `style` and `snapshot` (which stands for the fingerprint) are found out when they are None.
    """
    endpoints = [endpoint for endpoint in pool.endpoints if endpoint.healthy]
    readers = [Reader(partial(pool.ask, only=endpoint)) for endpoint in endpoints]
    row_limit = min(await asyncio.gather(*(_row_limit(reader, queries) for reader in readers)))
    readers = [replace(reader, row_limit=row_limit) for reader in readers]
    facts = await _some_facts(readers[0], queries)
    queries = replace(queries, style=style or await _choose_style(readers, queries, facts))
    answers = await asyncio.gather(*(_self_test(reader, queries, facts) for reader in readers))
    if snapshot is None:
        counted = await asyncio.gather(*(_count(reader, queries) for reader in readers))
    else:
        counted = [(await _counts(readers[0], queries), snapshot)] * len(readers)
    counts, fingerprint = counted[0]
    for endpoint, answer, (_, other) in zip(endpoints, answers, counted, strict=True):
        if other != fingerprint or not _agree(answers[0], answer):
            how = f" ({fingerprint} and {other})" if other != fingerprint else ""
            raise UserError(
                f"kg.endpoints: {endpoints[0].url} and {endpoint.url} hold different graphs{how}; load both from one "
                "database, or name one of them only"
            )
    return Survey(
        queries,
        row_limit,
        counts=counts,
        mediator_types=await _mediator_types(readers[0], queries),
        fingerprint=fingerprint,
        counted=snapshot is None,
        sample=(facts, answers[0]),
    )


async def _row_limit(reader: Reader, queries: Queries) -> int:
    """The number of rows at which a result may have been cut."""
    [(count,)], _ = await reader.rows(queries.count_any_facts(reader.row_limit), Tally())
    rows, _ = await reader.rows(queries.any_facts(), Tally())
    return len(rows) if len(rows) < int(count) else reader.row_limit


async def _some_facts(reader: Reader, queries: Queries) -> list[Fact]:
    rows, _ = await reader.rows(queries.any_facts(), Tally())
    return [fact for fact in (_names(row, queries.terms) for row in rows) if fact][:_SELF_TEST_FACTS]


async def _choose_style(readers: Sequence[Reader], queries: Queries, facts: Sequence[Fact]) -> Style:
    """The first style that every server answers as it answers single questions (which is what `union` amounts to)."""
    expected = await asyncio.gather(*(_self_test(reader, replace(queries, style="union"), facts) for reader in readers))
    for style in _STYLES:
        found = await asyncio.gather(*(_self_test(reader, replace(queries, style=style), facts) for reader in readers))
        if all(one is not None and _agree(one, other) for one, other in zip(found, expected, strict=True)):
            return style
    raise UserError("kg.endpoints: the graph server answers no style of query correctly; is it a SPARQL 1.1 server?")


async def _self_test(reader: Reader, queries: Queries, facts: Sequence[Fact]) -> list[Found] | None:
    """What the server says about some facts; None when it fails or takes too long."""
    if not facts:
        return []
    ids = list(dict.fromkeys(id for head, _, tail in facts for id in (head, tail)))
    outgoing = [(head, Relation(relation, "out")) for head, relation, _ in facts]
    incoming = [(tail, Relation(relation, "in")) for _, relation, tail in facts]
    asked = [queries.relations(ids), queries.neighbours(outgoing), queries.neighbours(incoming)]
    try:
        async with asyncio.timeout(_SELF_TEST_S):
            results = [await reader.rows(query, Tally()) for query in asked]
    except (ServiceError, TimeoutError):
        return None
    return [set(rows) if whole else None for rows, whole in results]


def _agree(one: list[Found] | None, other: list[Found] | None) -> bool:
    """Whether two servers say the same, as far as their results are whole."""
    if one is None or other is None:
        return one is other
    return all(a is None or b is None or a == b for a, b in zip(one, other, strict=True))


async def _counts(reader: Reader, queries: Queries) -> dict[str, int]:
    rows, whole = await reader.rows(queries.relation_counts(), Tally())
    if not whole:
        rows = await reader.ordered(queries.relation_counts(), Tally())
    named = ((queries.terms.from_iri(relation), int(count)) for relation, count in rows)
    return {relation: count for relation, count in named if relation is not None}


async def _count(reader: Reader, queries: Queries) -> tuple[dict[str, int], str]:
    """How often a server holds each relation, and its fingerprint."""
    counts = await _counts(reader, queries)
    facts = await reader.complete(queries.facts, rarest(counts), Tally())
    return counts, fingerprint_of(counts, (_line(row, queries.terms) for row in facts))


async def _mediator_types(reader: Reader, queries: Queries) -> frozenset[str]:
    types = await reader.ordered(queries.mediator_types(), Tally())
    marked = (queries.terms.from_iri(iri) for iri, flag in types if is_true(flag))
    return frozenset(type for type in marked if type is not None)


def _line(row: Row, terms: Terms) -> str:
    head, relation, *tail = row
    name = terms.from_iri(relation)
    assert name is not None
    return terms.n_triple(Triple(terms.node(head), name, node_cells(tail).node(terms)))


def _names(row: Row, terms: Terms) -> Fact | None:
    """The names in a row of IRIs, or None when one belongs to another namespace."""
    names = tuple(name for name in map(terms.from_iri, row) if name is not None)
    return names if len(names) == len(row) else None
