"""`kg=sparql`: a graph behind one or more replicated SPARQL endpoints, such as Freebase in Virtuoso (specification §8).

A `BatchLoader` collects the lookups of all questions into batches. Each batch becomes one query, which `SparqlClient`
sends to a server. A result that may be incomplete is asked for again in parts.
"""

from __future__ import annotations

import asyncio
from collections import defaultdict
from collections.abc import Callable, Hashable, Mapping, Sequence
from dataclasses import replace
from functools import cache, partial
from typing import Annotated, Literal, Self, TypeVar

from pydantic import ConfigDict, Field, NonNegativeFloat, NonNegativeInt, PositiveFloat, PositiveInt
from pydantic.dataclasses import dataclass

from pipeline.datasets.inverses import Inverses
from pipeline.errors import ServiceError
from pipeline.kg.batch_loader import BatchLoader, Fetch
from pipeline.kg.interface import Batch, Hop, Neighbours, batch
from pipeline.kg.inverses import without_inverses
from pipeline.kg.labels import LabelCandidate, best_name, find_mediators, is_in
from pipeline.kg.node_order import NodeCandidate, keep_first
from pipeline.kg.paging import LookupCost, ResultReader
from pipeline.kg.queries import IN, OUT, TRUE, Queries, Style, node_cells
from pipeline.kg.redirects import current_ids, with_current_nodes
from pipeline.kg.relation_filter import RelationFilter
from pipeline.kg.relation_labels import labelled_nodes, offered_relations, shown_names
from pipeline.kg.results import Row
from pipeline.kg.server_check import check_servers
from pipeline.kg.sparql_client import SparqlClient, check_endpoints
from pipeline.kg.vocabulary import GraphVocabulary
from pipeline.net.server_stats import ServerStats
from pipeline.rdf_terms import Terms
from pipeline.types import RUNTIME_ONLY, Direction, EntityId, LiteralNode, Question, Relation

K = TypeVar("K", bound=Hashable)
V = TypeVar("V")

_NAMES_PER_QUERY = 20
"""A query by name has two branches per name, each of which takes Virtuoso a millisecond to compile."""
_DIRECTION: dict[str, Direction] = {OUT: "out", IN: "in"}


@dataclass(kw_only=True, config=ConfigDict(extra="forbid"))
class SparqlGraph:
    """A graph on replicated servers. The fields are described in `conf/kg/sparql.yaml`."""

    endpoints: Annotated[tuple[str, ...], Field(min_length=1), RUNTIME_ONLY]
    vocabulary: GraphVocabulary
    default_graph: str | None
    snapshot: str | None
    keep_literals: bool
    keep_user: bool
    keep_notable_types: bool
    keep_inverses: bool
    values_style: Annotated[Style | Literal["auto"], RUNTIME_ONLY]
    values_chunk: Annotated[PositiveInt, RUNTIME_ONLY]
    max_inflight: Annotated[PositiveInt, RUNTIME_ONLY]
    max_neighbours: Annotated[PositiveInt, RUNTIME_ONLY]
    batch_window_ms: Annotated[NonNegativeFloat, RUNTIME_ONLY]
    cache_size: Annotated[PositiveInt, RUNTIME_ONLY]
    timeout_s: Annotated[PositiveFloat, RUNTIME_ONLY]
    retries: Annotated[NonNegativeInt, RUNTIME_ONLY]
    hedge: Annotated[Annotated[float, Field(gt=0, lt=1)] | None, RUNTIME_ONLY]
    max_reply_mb: Annotated[PositiveFloat, RUNTIME_ONLY]

    def __post_init__(self) -> None:
        check_endpoints(self.endpoints)  # before a run folder is created

    async def __aenter__(self) -> Self:
        """Connect and check the servers. Raises UserError if none answers or they hold different graphs."""
        self.terms: Terms = self.vocabulary.terms
        self._filter = RelationFilter(self.vocabulary, self.keep_user, self.keep_notable_types)
        self._client = SparqlClient(
            self.endpoints,
            max_inflight=self.max_inflight,
            timeout_s=self.timeout_s,
            retries=self.retries,
            hedge=self.hedge,
            max_reply_mb=self.max_reply_mb,
        )
        await self._client.__aenter__()
        try:
            await self._check_servers()
        except BaseException:
            await self._client.__aexit__()
            raise
        self._shown_name: Callable[[str], str | None] = cache(self._read_shown_name)
        self._relations = self._loader(self._fetch_relations)
        self._neighbours = self._loader(self._fetch_neighbours)
        self._labels = self._loader(self._fetch_labels)
        self._types = self._loader(self._fetch_types)
        self._named = self._loader(self._fetch_named, batch_size=_NAMES_PER_QUERY)
        self._redirects = self._loader(self._fetch_redirects)
        return self

    async def __aexit__(self, *exc: object) -> None:
        for loader in (self._relations, self._neighbours, self._labels, self._types, self._named, self._redirects):
            await loader.close()
        await self._client.__aexit__()

    @property
    def server_stats(self) -> list[ServerStats]:
        """Statistics of each server."""
        return self._client.server_stats

    def for_question(self, question: Question) -> Self:
        return self

    async def relations(self, ids: Sequence[EntityId]) -> Batch[EntityId, list[Relation]]:
        return await self._relations(ids)

    async def neighbours(self, hops: Sequence[Hop], limit: int) -> Batch[Hop, Neighbours]:
        found = _without_limits(await self._neighbours([(hop, limit) for hop in hops]))
        return found if self.vocabulary.redirects is None else await with_current_nodes(found, self._redirects)

    async def labels(self, ids: Sequence[EntityId]) -> Batch[EntityId, str | None]:
        return await self._labels(ids)

    async def mediators(self, ids: Sequence[EntityId]) -> Batch[EntityId, bool]:
        return await find_mediators(self, ids, self.terms, self._mediator_types, self.vocabulary)

    async def find_by_name(self, names: Sequence[str], limit: int) -> Batch[str, list[EntityId]]:
        return _without_limits(await self._named([(name, limit) for name in names]))

    async def types(self, ids: Sequence[EntityId]) -> Batch[EntityId, list[str]]:
        return await self._types(ids)

    async def relation_names(self) -> list[str]:
        return offered_relations(self._counts, self._filter.keeps, self.terms)

    async def inverses(self) -> Inverses:
        return self._inverses

    async def current_ids(self, ids: Sequence[EntityId]) -> Batch[EntityId, EntityId]:
        return await current_ids(ids, self._redirects if self.vocabulary.redirects else None)

    def _loader(self, fetch: Fetch[K, V], batch_size: int | None = None) -> BatchLoader[K, V]:
        return BatchLoader(
            fetch,
            batch_size=batch_size or self.values_chunk,
            window_s=self.batch_window_ms / 1000,
            cache_size=self.cache_size,
        )

    async def _check_servers(self) -> None:
        virtuoso = all(server.software.startswith("Virtuoso") for server in self._client.healthy_servers)
        queries = Queries(self.terms, self._filter, virtuoso=virtuoso, graph=self.default_graph)
        style = None if self.values_style == "auto" else self.values_style
        self.check = check = await check_servers(self._client, queries, style=style, snapshot=self.snapshot)
        self._client.admit_by(partial(check.incompatibility, self._client), check.servers)
        self._queries = check.queries
        self._reader = ResultReader(self._client.ask, check.row_limit)
        self._counts = check.identity.counts
        self._mediator_types = check.mediator_types
        self.fingerprint: str = check.identity.fingerprint
        if self.vocabulary.relation_labels:
            await self._label_relations()
        declared = {} if self.keep_inverses else check.inverses
        shown = self.terms.relation_labels
        self._inverses: Inverses = {shown.get(one, one): shown.get(other, other) for one, other in declared.items()}

    async def _label_relations(self) -> None:
        """Look up the labels of all relations, under which they are shown."""
        nodes = labelled_nodes(filter(self._filter.keeps, self._counts), self.terms)
        ids = sorted(filter(self.terms.storable, set(nodes.values())))
        size = self.values_chunk
        found = await asyncio.gather(
            *(self._names(ids[at : at + size], LookupCost()) for at in range(0, len(ids), size))
        )
        labels = {id: name for part in found for id, name in part.items()}
        self.terms = replace(self.terms, relation_labels=shown_names(nodes, labels, self.terms))
        self._queries = replace(self._queries, terms=self.terms)

    async def _fetch_relations(self, ids: Sequence[EntityId]) -> Batch[EntityId, list[Relation]]:
        cost, iris = LookupCost(), self._iris(ids)
        found: defaultdict[EntityId, set[Relation]] = defaultdict(set)
        for entity, relation, direction in await self._reader.complete(
            self._queries.relations, list(iris.values()), cost
        ):
            if (name := self._shown_name(relation)) is not None:
                found[iris[entity]].add(Relation(name, _DIRECTION[direction]))
        return _fetched({id: without_inverses(found[id], self._inverses) for id in ids}, cost)

    async def _fetch_neighbours(self, asked: Sequence[tuple[Hop, int]]) -> Batch[tuple[Hop, int], Neighbours]:
        limits: dict[Hop, int] = {}
        for hop, limit in asked:
            if self.terms.storable(hop[0]) and self.terms.storable_relation(hop[1].name):
                limits[hop] = max(limit, limits.get(hop, 0))
        cost = LookupCost()
        found = await self._nodes(limits, cost)
        return _fetched({(hop, limit): keep_first(found.get(hop, ()), limit, self.terms) for hop, limit in asked}, cost)

    async def _nodes(self, limits: Mapping[Hop, int], cost: LookupCost) -> dict[Hop, list[NodeCandidate]]:
        """Return all nodes of each hop, or at least the first `limit + 1` of a large hop."""
        if not limits:
            return {}
        hops = list(limits)
        rows, complete = await self._reader.rows(self._queries.neighbours(hops), cost)
        found = self._by_hop(hops, rows)
        if complete:
            return found
        # The result was cut at an unknown row. Large hops are fetched alone and in order, the others again. Few results
        # are cut, so this needs fewer queries than counting the rows of all hops first (specification §8.6, rule 3).
        large = {hop for hop in hops if len(found[hop]) > self.max_neighbours or len(hops) == 1}
        rest = [hop for hop in hops if hop not in large]
        middle = len(rest) if large else len(rest) // 2
        parts = [
            *(self._large_hop(hop, limits[hop], cost) for hop in large),
            *(self._nodes({hop: limits[hop] for hop in part}, cost) for part in (rest[:middle], rest[middle:])),
        ]
        return {hop: nodes for part in await asyncio.gather(*parts) for hop, nodes in part.items()}

    async def _large_hop(self, hop: Hop, limit: int, cost: LookupCost) -> dict[Hop, list[NodeCandidate]]:
        rows = await self._reader.ordered(self._queries.neighbours([hop]), cost, at_least=limit + 1)
        return self._by_hop([hop], rows)

    def _by_hop(self, hops: Sequence[Hop], rows: Sequence[Row]) -> dict[Hop, list[NodeCandidate]]:
        to_iri, relation_iri = self.terms.to_iri, self.terms.relation_iri
        key = {
            (to_iri(id), relation_iri(name), direction): (id, Relation(name, direction))
            for id, (name, direction) in hops
        }
        found: dict[Hop, list[NodeCandidate]] = {hop: [] for hop in hops}
        for entity, relation, direction, *node in rows:
            candidate = node_cells(node)
            # Literals sort last, so dropping them here loses no entity of an ordered result that was cut.
            if self.keep_literals or not candidate.is_literal:
                try:
                    found[key[entity, relation, _DIRECTION[direction]]].append(candidate)
                except KeyError:
                    raise ServiceError("a graph server sent nodes of another hop than the queried ones") from None
        return found

    async def _fetch_labels(self, ids: Sequence[EntityId]) -> Batch[EntityId, str | None]:
        cost = LookupCost()
        names = await self._names(ids, cost)
        return _fetched({id: self.terms.own_name(id) if name is None else name for id, name in names.items()}, cost)

    async def named_in_languages(self, ids: Sequence[EntityId]) -> set[EntityId]:
        """Return the entities that have a name or an alias in the languages of the vocabulary."""
        texts = await self._texts(ids, LookupCost())
        languages = self.vocabulary.languages
        return {id for id, candidates in texts.items() if any(is_in(each, languages) for each in candidates)}

    async def _names(self, ids: Sequence[EntityId], cost: LookupCost) -> dict[EntityId, str | None]:
        """Look up the name of each entity, however its id is written."""
        texts = await self._texts(ids, cost)
        return {id: best_name(texts.get(id, ()), self.vocabulary.languages) for id in ids}

    async def _texts(self, ids: Sequence[EntityId], cost: LookupCost) -> Mapping[EntityId, list[LabelCandidate]]:
        """Look up the names of each entity in the languages; of one without any, its aliases and all its names."""
        texts: defaultdict[EntityId, list[LabelCandidate]] = defaultdict(list)
        if self.check.named:
            iris = self._iris(ids)
            for entity, text, lang in await self._reader.complete(
                self._queries.preferred_names, list(iris.values()), cost
            ):
                texts[iris[entity]].append((False, _text(text, lang)))
            unnamed = [id for id in iris.values() if id not in texts]
            rows = await self._reader.complete(self._queries.other_names, unnamed, cost)
            for entity, text, lang, predicate, is_literal in rows:
                if is_literal in TRUE:
                    texts[iris[entity]].append((predicate in self._queries.aliases, _text(text, lang)))
        return texts

    async def _fetch_types(self, ids: Sequence[EntityId]) -> Batch[EntityId, list[str]]:
        cost, iris = LookupCost(), {} if self.vocabulary.types is None else self._iris(ids)
        found: defaultdict[EntityId, set[str]] = defaultdict(set)
        for entity, type, is_literal in await self._reader.complete(self._queries.types, list(iris.values()), cost):
            if is_literal not in TRUE and (name := self.terms.from_iri(type)) is not None:
                found[iris[entity]].add(name)
        return _fetched({id: sorted(found[id]) for id in ids}, cost)

    async def _fetch_named(self, asked: Sequence[tuple[str, int]]) -> Batch[tuple[str, int], list[EntityId]]:
        cost = LookupCost()
        names = list(dict.fromkeys(name for name, _ in asked))
        numbered = [(number, name) for number, name in enumerate(names) if self.terms.storable(LiteralNode(name))]
        found: defaultdict[str, set[EntityId]] = defaultdict(set)
        for number, entity in await self._reader.complete(self._queries.named, numbered, cost):
            if (id := self.terms.from_iri(entity)) is not None:
                found[names[int(number)]].add(id)
        nodes = await self._relations([name for name in names if self.terms.own_name(name) is not None])
        cost.queries += nodes.queries
        for name, relations in nodes.items():
            if relations:
                found[name].add(name)
        return _fetched({(name, limit): sorted(found[name])[:limit] for name, limit in asked}, cost)

    async def _fetch_redirects(self, ids: Sequence[EntityId]) -> Batch[EntityId, EntityId | None]:
        cost, iris = LookupCost(), {} if self.vocabulary.redirects is None else self._iris(ids)
        rows = await self._reader.complete(self._queries.redirects, list(iris.values()), cost)
        # Nothing forbids an id with several targets: the first one is taken.
        targets = {iris[entity]: self.terms.from_iri(target) for entity, target in sorted(rows, reverse=True)}
        return _fetched({id: targets.get(id) for id in ids}, cost)

    def _iris(self, ids: Sequence[EntityId]) -> dict[str, EntityId]:
        """Return the storable ids by their IRIs."""
        return {self.terms.to_iri(id): id for id in ids if self.terms.storable(id)}

    def _read_shown_name(self, relation: str) -> str | None:
        """Return the name of a relation by its IRI; None if the relation is filtered."""
        name = self.terms.plain_relation(relation)
        return self.terms.relation_name(relation) if name is not None and self._filter.keeps(name) else None


def _fetched(values: dict[K, V], cost: LookupCost) -> Batch[K, V]:
    return batch(values, queries=cost.queries, endpoint=cost.endpoint)


def _text(value: str, lang: str) -> LiteralNode:
    return LiteralNode(value, lang=lang.lower() or None)


def _without_limits(found: Batch[tuple[K, int], V]) -> Batch[K, V]:
    """Return the values by hop or name, without the limit in the key."""
    return batch({key: value for (key, _), value in found.items()}, queries=found.queries, endpoint=found.endpoint)
