"""`kg=sparql`: a graph behind one or more replicated SPARQL endpoints, such as Freebase in Virtuoso (methods.md §8).

A lookup passes the memo, which gathers what all questions ask at the moment into buckets; a bucket becomes one query
here, goes through the pool, and comes back complete or is asked for again in parts. Nothing here trusts a result to be
whole because it looks so.
"""

from __future__ import annotations

import asyncio
from collections import defaultdict
from collections.abc import Hashable, Mapping, Sequence
from functools import partial
from typing import Annotated, Literal, Self, TypeVar

from pydantic import ConfigDict, Field, NonNegativeFloat, NonNegativeInt, PositiveFloat, PositiveInt
from pydantic.dataclasses import dataclass

from pipeline.kg.candidates import Candidate, keep_first
from pipeline.kg.memo import Fetched, Lookup
from pipeline.kg.naming import ALIAS, NAME, Naming, best_name, find_mediators
from pipeline.kg.pool import Pool, check_endpoint
from pipeline.kg.port import Batch, Hop, Neighbours, batch
from pipeline.kg.queries import IN, OUT, TRUE, Queries, Row, Style, node_cells
from pipeline.kg.reader import Reader, Tally
from pipeline.kg.relation_filter import RelationFilter
from pipeline.kg.survey import survey
from pipeline.kg.terms import FREEBASE, Terms
from pipeline.traffic import Traffic
from pipeline.types import Direction, EntityId, LiteralNode, Question, Relation

K = TypeVar("K", bound=Hashable)
V = TypeVar("V")

_NAMES_PER_QUERY = 20
"""A query by name has two branches per name, and Virtuoso takes a millisecond to compile each."""
_DIRECTION: dict[str, Direction] = {OUT: "out", IN: "in"}


@dataclass(kw_only=True, config=ConfigDict(extra="forbid"))
class SparqlGraph:
    """A replicated graph server. The fields are described in `conf/kg/sparql.yaml`."""

    endpoints: Annotated[tuple[str, ...], Field(min_length=1)]
    namespace: str = FREEBASE
    opaque_ids: str = r"[mg]\."
    default_graph: str | None = None
    snapshot: str | None = None
    keep_literals: bool = True
    keep_user: bool = False
    keep_notable_types: bool = False
    values_style: Style | Literal["auto"] = "auto"
    values_chunk: PositiveInt = 100
    max_inflight: PositiveInt = 8
    max_neighbours: PositiveInt = 500
    coalesce_ms: NonNegativeFloat = 2.0
    memo_entries: PositiveInt = 200_000
    timeout_s: PositiveFloat = 60.0
    retries: NonNegativeInt = 8
    hedge: Annotated[float, Field(gt=0, lt=1)] | None = 0.99

    def __post_init__(self) -> None:
        for url in self.endpoints:  # before a run folder is made
            check_endpoint(url)

    async def __aenter__(self) -> Self:
        """Connect and learn what the servers hold. Raises UserError when none answers or they hold different graphs."""
        self._terms = Terms(self.namespace, self.opaque_ids)
        self._filter = RelationFilter(self.keep_user, self.keep_notable_types)
        self._pool = Pool(
            self.endpoints,
            max_inflight=self.max_inflight,
            timeout_s=self.timeout_s,
            retries=self.retries,
            hedge=self.hedge,
        )
        await self._pool.__aenter__()
        try:
            await self._learn()
        except BaseException:
            await self._pool.__aexit__()
            raise
        self._shown: dict[str, str | None] = {}
        """Relation names by IRI; None for the hidden ones."""
        wait_s = self.coalesce_ms / 1000
        size, entries = self.values_chunk, self.memo_entries
        self._relations = Lookup(self._fetch_relations, size=size, wait_s=wait_s, entries=entries)
        self._neighbours = Lookup(self._fetch_neighbours, size=size, wait_s=wait_s, entries=entries)
        self._labels = Lookup(self._fetch_labels, size=size, wait_s=wait_s, entries=entries)
        self._types = Lookup(self._fetch_types, size=size, wait_s=wait_s, entries=entries)
        self._named = Lookup(self._fetch_named, size=_NAMES_PER_QUERY, wait_s=wait_s, entries=entries)
        return self

    async def __aexit__(self, *exc: object) -> None:
        for lookup in (self._relations, self._neighbours, self._labels, self._types, self._named):
            await lookup.close()
        await self._pool.__aexit__()

    @property
    def traffic(self) -> list[Traffic]:
        """Of each endpoint."""
        return [endpoint.traffic for endpoint in self._pool.endpoints]

    def for_question(self, question: Question) -> Self:
        return self

    async def relations(self, ids: Sequence[EntityId]) -> Batch[EntityId, list[Relation]]:
        """Distinct relations at each entity, both directions, after the relation filter (§8.4)."""
        return await self._relations(ids)

    async def neighbours(self, hops: Sequence[Hop], limit: int) -> Batch[Hop, Neighbours]:
        """The first `limit` nodes of each hop in the byte order of their IRIs and texts, sorted as the port says."""
        found = await self._neighbours([(hop, limit) for hop in hops])
        return _first_of_key(found)

    async def labels(self, ids: Sequence[EntityId]) -> Batch[EntityId, str | None]:
        """The name of each entity by the order of §8.5; a node that is a name carries itself."""
        return await self._labels(ids)

    async def mediators(self, ids: Sequence[EntityId]) -> Batch[EntityId, bool]:
        """Whether each entity is a mediator by the rule of §8.5, from the lookups of types, labels and relations."""
        return await find_mediators(self, ids, self._terms, self._mediator_types)

    async def find_by_name(self, names: Sequence[str], limit: int) -> Batch[str, list[EntityId]]:
        """At most `limit` entities with this very name in English or in no language, or whose id is the name."""
        found = await self._named([(name, limit) for name in names])
        return _first_of_key(found)

    async def types(self, ids: Sequence[EntityId]) -> Batch[EntityId, list[str]]:
        """The types of each entity."""
        return await self._types(ids)

    async def vocabulary(self) -> list[str]:
        """All relation names after the filter, as counted when the graph was opened."""
        return sorted(relation for relation in self._counts if self._filter.keeps(relation))

    async def _learn(self) -> None:
        virtuoso = all(endpoint.server.startswith("Virtuoso") for endpoint in self._pool.endpoints if endpoint.healthy)
        queries = Queries(
            self._terms,
            virtuoso=virtuoso,
            graph=self.default_graph,
            hidden=self._filter,
        )
        style = None if self.values_style == "auto" else self.values_style
        self.learned = learned = await survey(self._pool, queries, style=style, snapshot=self.snapshot)
        self._pool.admit_by(partial(learned.misfit, self._pool))
        self._queries = learned.queries
        self._reader = Reader(self._pool.ask, learned.row_limit)
        self._counts = learned.counts
        self._mediator_types = learned.mediator_types
        self.fingerprint: str = learned.fingerprint

    async def _fetch_relations(self, ids: Sequence[EntityId]) -> Fetched[EntityId, list[Relation]]:
        tally, iris = Tally(), self._iris(ids)
        found: defaultdict[EntityId, set[Relation]] = defaultdict(set)
        for entity, relation, direction in await self._reader.complete(
            self._queries.relations, list(iris.values()), tally
        ):
            if (name := self._shown_name(relation)) is not None:
                found[iris[entity]].add(Relation(name, _DIRECTION[direction]))
        return _fetched({id: sorted(found[id]) for id in ids}, tally)

    async def _fetch_neighbours(self, asked: Sequence[tuple[Hop, int]]) -> Fetched[tuple[Hop, int], Neighbours]:
        limits: dict[Hop, int] = {}
        for hop, limit in asked:
            if self._terms.storable(hop[0]) and self._terms.storable(hop[1].name):
                limits[hop] = max(limit, limits.get(hop, 0))
        tally = Tally()
        found = await self._nodes(limits, tally)
        return _fetched(
            {(hop, limit): keep_first(found.get(hop, ()), limit, self._terms) for hop, limit in asked}, tally
        )

    async def _nodes(self, limits: Mapping[Hop, int], tally: Tally) -> dict[Hop, list[Candidate]]:
        """All nodes of each hop, or at least the first `limit + 1` of a hop that has many."""
        if not limits:
            return {}
        hops = list(limits)
        rows, whole = await self._reader.rows(self._queries.neighbours(hops), tally)
        found = self._by_hop(hops, rows)
        if whole:
            return found
        # The result was cut, anywhere. What is seen to be large is fetched alone and in order, the rest again.
        large = {hop for hop in hops if len(found[hop]) > self.max_neighbours or len(hops) == 1}
        rest = [hop for hop in hops if hop not in large]
        middle = len(rest) if large else len(rest) // 2
        parts = [
            *(self._large(hop, limits[hop], tally) for hop in large),
            *(self._nodes({hop: limits[hop] for hop in part}, tally) for part in (rest[:middle], rest[middle:])),
        ]
        return {hop: nodes for part in await asyncio.gather(*parts) for hop, nodes in part.items()}

    async def _large(self, hop: Hop, limit: int, tally: Tally) -> dict[Hop, list[Candidate]]:
        rows = await self._reader.ordered(self._queries.neighbours([hop]), tally, at_least=limit + 1)
        return self._by_hop([hop], rows)

    def _by_hop(self, hops: Sequence[Hop], rows: Sequence[Row]) -> dict[Hop, list[Candidate]]:
        to_iri = self._terms.to_iri
        key = {(to_iri(id), to_iri(name), direction): (id, Relation(name, direction)) for id, (name, direction) in hops}
        found: dict[Hop, list[Candidate]] = {hop: [] for hop in hops}
        for entity, relation, direction, *node in rows:
            candidate = node_cells(node)
            # Literals sort last, so leaving them out here takes no entity from an ordered result that was cut.
            if self.keep_literals or not candidate.is_literal:
                found[key[entity, relation, _DIRECTION[direction]]].append(candidate)
        return found

    async def _fetch_labels(self, ids: Sequence[EntityId]) -> Fetched[EntityId, str | None]:
        tally = Tally()
        texts: defaultdict[EntityId, list[Naming]] = defaultdict(list)
        if not self._counts.keys().isdisjoint({NAME, ALIAS}):
            iris = self._iris(ids)
            for entity, text, lang in await self._reader.complete(
                self._queries.english_names, list(iris.values()), tally
            ):
                texts[iris[entity]].append((NAME, LiteralNode(text, lang=lang or None)))
            unnamed = [id for id in iris.values() if id not in texts]
            rows = await self._reader.complete(self._queries.other_names, unnamed, tally)
            for entity, text, lang, relation, is_literal in rows:
                if is_literal in TRUE:
                    naming = ALIAS if relation == self._terms.to_iri(ALIAS) else NAME
                    texts[iris[entity]].append((naming, LiteralNode(text, lang=lang or None)))
        names = {id: best_name(texts[id]) for id in ids}
        return _fetched({id: self._terms.own_name(id) if name is None else name for id, name in names.items()}, tally)

    async def _fetch_types(self, ids: Sequence[EntityId]) -> Fetched[EntityId, list[str]]:
        tally, iris = Tally(), self._iris(ids)
        found: defaultdict[EntityId, set[str]] = defaultdict(set)
        for entity, type, is_literal in await self._reader.complete(self._queries.types, list(iris.values()), tally):
            if is_literal not in TRUE and (name := self._terms.from_iri(type)) is not None:
                found[iris[entity]].add(name)
        return _fetched({id: sorted(found[id]) for id in ids}, tally)

    async def _fetch_named(self, asked: Sequence[tuple[str, int]]) -> Fetched[tuple[str, int], list[EntityId]]:
        tally = Tally()
        names = list(dict.fromkeys(name for name, _ in asked))
        numbered = [(number, name) for number, name in enumerate(names) if self._terms.storable(LiteralNode(name))]
        found: defaultdict[str, set[EntityId]] = defaultdict(set)
        for number, entity in await self._reader.complete(self._queries.named, numbered, tally):
            if (id := self._terms.from_iri(entity)) is not None:
                found[names[int(number)]].add(id)
        nodes = await self._relations([name for name in names if self._terms.own_name(name) is not None])
        tally.queries += nodes.queries
        for name, relations in nodes.items():
            if relations:
                found[name].add(name)
        return _fetched({(name, limit): sorted(found[name])[:limit] for name, limit in asked}, tally)

    def _iris(self, ids: Sequence[EntityId]) -> dict[str, EntityId]:
        """The ids that a store can hold, by their IRIs."""
        return {self._terms.to_iri(id): id for id in ids if self._terms.storable(id)}

    def _shown_name(self, relation: str) -> str | None:
        """The name behind a relation's IRI, or None when it is not to be shown."""
        if relation not in self._shown:
            name = self._terms.from_iri(relation)
            self._shown[relation] = name if name is not None and self._filter.keeps(name) else None
        return self._shown[relation]


def _fetched(values: dict[K, V], tally: Tally) -> Fetched[K, V]:
    return Fetched(values, tally.queries, tally.endpoint)


def _first_of_key(found: Batch[tuple[K, int], V]) -> Batch[K, V]:
    """Answers by what was asked, without the limit."""
    return batch({key: value for (key, _), value in found.items()}, queries=found.queries, endpoint=found.endpoint)
