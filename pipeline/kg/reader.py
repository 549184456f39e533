"""Complete results from servers that cut them: row limits are noticed, and what was cut is asked for again (§8.6)."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from typing import TypeAlias, TypeVar

from pipeline.errors import ServiceError
from pipeline.kg.pool import Reply
from pipeline.kg.queries import Query, Row, parse_tsv

T = TypeVar("T")

Ask: TypeAlias = Callable[[str], Awaitable[Reply]]

MOST_ROWS = 10_000
"""Rows that one query asks for, unless the server gives less. Virtuoso sorts no more than this."""


@dataclass(slots=True)
class Tally:
    """What answering a lookup took."""

    queries: int = 0
    endpoint: str | None = None


@dataclass(frozen=True, slots=True)
class Reader:
    """Reads results through `ask`."""

    ask: Ask
    row_limit: int = MOST_ROWS
    """A result of so many rows may have been cut."""

    async def rows(self, query: Query, tally: Tally) -> tuple[list[Row], bool]:
        """The rows in any order, and whether they are all."""
        reply, rows = await self._read(query.text(self.row_limit), tally)
        return rows, len(rows) < self.row_limit and not (reply.cut or reply.interrupted)

    async def ordered(self, query: Query, tally: Tally, at_least: int | None = None) -> list[Row]:
        """All distinct rows in byte order, or at least the first `at_least`, page by page.

        Raises ServiceError when the server runs out of time: rows of an interrupted sort are not the first ones.
        """
        found: dict[Row, None] = {}
        offset = 0
        while at_least is None or len(found) < at_least:
            size = self.row_limit if at_least is None else min(self.row_limit, at_least - len(found))
            reply, rows = await self._read(query.page(size, offset), tally)
            if reply.interrupted:
                raise ServiceError(f"{reply.endpoint} ran out of time sorting a long result")
            found.update(dict.fromkeys(rows))
            offset += len(rows)
            if not rows or (len(rows) < size and not reply.cut):
                break
        return list(found)

    async def complete(self, build: Callable[[Sequence[T]], Query], items: Sequence[T], tally: Tally) -> list[Row]:
        """All rows of the query about some items; one whose result is cut is asked again in halves, then in pages."""
        if not items:
            return []
        query = build(items)
        rows, whole = await self.rows(query, tally)
        if whole:
            return rows
        if len(items) == 1:
            return await self.ordered(query, tally)
        middle = len(items) // 2
        halves = (self.complete(build, half, tally) for half in (items[:middle], items[middle:]))
        first, second = await asyncio.gather(*halves)
        return first + second

    async def _read(self, text: str, tally: Tally) -> tuple[Reply, list[Row]]:
        reply = await self.ask(text)
        tally.queries += 1
        tally.endpoint = reply.endpoint
        return reply, parse_tsv(reply.body)
