"""What has to be learned of a graph server before it is relied on: row limit, query style, facts (methods.md §8.6)."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import TypeAlias

from pipeline.errors import ServiceError, UserError
from pipeline.kg.fingerprint import fingerprint, rarest
from pipeline.kg.naming import is_true
from pipeline.kg.pool import Pool
from pipeline.kg.queries import Queries, Row, Style, node_cells
from pipeline.kg.reader import Reader, Tally
from pipeline.kg.terms import Terms
from pipeline.types import Relation, Triple

Found: TypeAlias = set[Row] | None
"""The rows of a result; None for one that was cut, because any of its rows may be missing."""

_STYLES: tuple[Style, ...] = ("values", "filter_in", "union")
_SELF_TEST_FACTS = 20
_SELF_TEST_S = 10.0
"""A style that takes longer than this for a handful of ids has found a bad plan."""


@dataclass(frozen=True, slots=True)
class Survey:
    """What is known of the graph and its servers."""

    style: Style
    row_limit: int
    counts: dict[str, int]
    """Facts per relation, of all relations in the graph's namespace."""
    mediator_types: frozenset[str]
    fingerprint: str


async def survey(pool: Pool, queries: Queries, *, style: Style | None, snapshot: str | None) -> Survey:
    """Question the servers that answer now. Raises UserError when they hold different graphs.

    `style` and `snapshot` (which stands for the fingerprint) are found out when they are None.
    """
    endpoints = [endpoint for endpoint in pool.endpoints if endpoint.healthy]
    readers = [Reader(partial(pool.ask, only=endpoint)) for endpoint in endpoints]
    row_limit = min(await asyncio.gather(*(_row_limit(reader, queries) for reader in readers)))
    readers = [replace(reader, row_limit=row_limit) for reader in readers]
    queries = replace(queries, style=style or await _choose_style(readers[0], queries))
    if snapshot is not None:
        counts = [await _counts(readers[0], queries)]
    else:
        counts = await asyncio.gather(*(_counts(reader, queries) for reader in readers))
        prints = await asyncio.gather(*(_fingerprint(*known, queries) for known in zip(readers, counts, strict=True)))
        for endpoint, other in zip(endpoints, prints, strict=True):
            if other != prints[0]:
                raise UserError(
                    f"kg.endpoints: {endpoints[0].url} and {endpoint.url} hold different graphs ({prints[0]} and "
                    f"{other}); load both from one database, or name one of them only"
                )
        snapshot = prints[0]
    return Survey(queries.style, row_limit, counts[0], await _mediator_types(readers[0], queries), snapshot)


async def _row_limit(reader: Reader, queries: Queries) -> int:
    """The number of rows at which a result may have been cut."""
    [(count,)], _ = await reader.rows(queries.count_any_facts(reader.row_limit), Tally())
    rows, _ = await reader.rows(queries.any_facts(), Tally())
    return len(rows) if len(rows) < int(count) else reader.row_limit


async def _choose_style(reader: Reader, queries: Queries) -> Style:
    """The first style that answers as single questions do (which is what `union` amounts to), and soon enough."""
    rows, _ = await reader.rows(queries.any_facts(), Tally())
    facts = [fact for fact in (_names(row, queries.terms) for row in rows) if fact][:_SELF_TEST_FACTS]
    if not facts:
        return "values"
    expected = await _self_test(reader, replace(queries, style="union"), facts)
    for style in _STYLES:
        found = await _self_test(reader, replace(queries, style=style), facts)
        if expected is not None and found is not None and all(map(_agree, expected, found)):
            return style
    raise UserError("kg.endpoints: the graph server answers no style of query correctly; is it a SPARQL 1.1 server?")


async def _self_test(reader: Reader, queries: Queries, facts: Sequence[tuple[str, ...]]) -> list[Found] | None:
    """What the server says about some facts; None when it fails or takes too long."""
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


def _agree(one: Found, other: Found) -> bool:
    return one is None or other is None or one == other


async def _counts(reader: Reader, queries: Queries) -> dict[str, int]:
    rows, whole = await reader.rows(queries.relation_counts(), Tally())
    if not whole:
        rows = await reader.ordered(queries.relation_counts(), Tally())
    named = ((queries.terms.from_iri(relation), int(count)) for relation, count in rows)
    return {relation: count for relation, count in named if relation is not None}


async def _fingerprint(reader: Reader, counts: dict[str, int], queries: Queries) -> str:
    facts = await reader.complete(queries.facts, rarest(counts), Tally())
    return fingerprint(counts, (_line(row, queries.terms) for row in facts))


async def _mediator_types(reader: Reader, queries: Queries) -> frozenset[str]:
    types = await reader.ordered(queries.mediator_types(), Tally())
    marked = (queries.terms.from_iri(iri) for iri, flag in types if is_true(flag))
    return frozenset(type for type in marked if type is not None)


def _line(row: Row, terms: Terms) -> str:
    head, relation, *tail = row
    name = terms.from_iri(relation)
    assert name is not None
    return terms.n_triple(Triple(terms.node(head), name, node_cells(tail).node(terms)))


def _names(row: Row, terms: Terms) -> tuple[str, ...] | None:
    """The names in a row of IRIs, or None when one belongs to another namespace."""
    names = tuple(name for name in map(terms.from_iri, row) if name is not None)
    return names if len(names) == len(row) else None
