"""Reads complete results from servers that cut them: detects row limits and splits queries (specification §8.6)."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from typing import TypeAlias, TypeVar

from pipeline.errors import ServiceError
from pipeline.kg.queries import Query
from pipeline.kg.results import Row, Select
from pipeline.kg.sparql_client import Reply

T = TypeVar("T")

Ask: TypeAlias = Callable[[Select], Awaitable[Reply]]

MAX_ROWS = 10_000
"""Rows that one query asks for, unless the server's limit is lower. Virtuoso sorts at most this many."""


@dataclass(slots=True)
class LookupCost:
    """The queries sent for one lookup."""

    queries: int = 0
    endpoint: str | None = None
    """The server that answered last."""


@dataclass(frozen=True, slots=True)
class ResultReader:
    """Reads results through `ask`. Each method adds the queries that it sends to a `LookupCost`."""

    ask: Ask
    row_limit: int = MAX_ROWS
    """A result with this many rows may be incomplete."""

    async def rows(self, query: Query, cost: LookupCost) -> tuple[list[Row], bool]:
        """Return the rows in any order, and whether they are complete."""
        reply = await self._read(query.text(self.row_limit), cost)
        return reply.rows, reply.is_complete(self.row_limit)

    async def ordered(self, query: Query, cost: LookupCost, at_least: int | None = None) -> list[Row]:
        """Return all distinct rows in byte order, or at least the first `at_least`, page by page.

        Raises ServiceError when the server runs out of time: rows of an interrupted sort are not the first ones.
        """
        found: dict[Row, None] = {}
        offset = 0
        while at_least is None or len(found) < at_least:
            size = self.row_limit if at_least is None else min(self.row_limit, at_least - len(found))
            reply = await self._read(query.page(size, offset), cost)
            if reply.time_limit_hit:
                raise ServiceError(f"{reply.endpoint} ran out of time sorting a long result")
            found.update(dict.fromkeys(reply.rows))
            offset += len(reply.rows)
            if not reply.rows or (len(reply.rows) < size and not reply.row_limit_hit):
                break
        return list(found)

    async def complete(self, build: Callable[[Sequence[T]], Query], items: Sequence[T], cost: LookupCost) -> list[Row]:
        """Return all rows of a query about items. An incomplete result is asked for in halves, then in pages."""
        if not items:
            return []
        query = build(items)
        rows, complete = await self.rows(query, cost)
        if complete:
            return rows
        if len(items) == 1:
            return await self.ordered(query, cost)
        middle = len(items) // 2
        halves = (self.complete(build, half, cost) for half in (items[:middle], items[middle:]))
        first, second = await asyncio.gather(*halves)
        return first + second

    async def _read(self, query: Select, cost: LookupCost) -> Reply:
        reply = await self.ask(query)
        cost.queries += 1
        cost.endpoint = reply.endpoint
        return reply
