"""Entities per second that the graph client expands, compared with SPARQLWrapper one by one as in the published code.

Every method starts with an expansion: the relations of an entity in both directions (specification §8.3). The published
code sends two queries for it, one per direction; it is also measured with one query for both, which favours it.
"""

from __future__ import annotations

import asyncio
import statistics
import time
from collections.abc import Callable, Sequence
from itertools import islice

from SPARQLWrapper import JSON, SPARQLWrapper

from pipeline.cli.benchmarks.world import served_world
from pipeline.config import default
from pipeline.kg.sparql import SparqlGraph
from pipeline.kg.virtuoso import GRAPH
from pipeline.kg.vocabulary import GraphVocabulary
from pipeline.rdf_terms import FREEBASE
from pipeline.types import EntityId

_TRIPLES = 200_000
_POOL_BATCH = 4_000
"""Entities looked up at the same time, as by a few hundred questions in flight."""


def graph() -> dict[str, float]:
    """Entities expanded per second by the client and by SPARQLWrapper one by one, on one Virtuoso started for it."""
    with served_world(_TRIPLES, 1) as ((server,), ids):
        return asyncio.run(measure([server.endpoint], ids, default_graph=GRAPH))


async def measure(
    endpoints: Sequence[str],
    ids: Sequence[EntityId],
    *,
    namespace: str = FREEBASE,
    default_graph: str | None = None,
    rounds: int = 5,
    one_by_one: int = 300,
) -> dict[str, float]:
    """Return expansions per second of each way on the same servers, and ratios: medians over `rounds` rounds.

    Each round takes fresh ids, `one_by_one` for each way of SPARQLWrapper and 4,000 for the client.
    """
    vocabulary = default(GraphVocabulary, namespace=namespace)
    terms = vocabulary.terms
    rates: dict[str, list[float]] = {"client": [], "wrapper": [], "wrapper_union": []}
    fresh = iter(ids)

    def take(count: int) -> list[EntityId]:
        taken = list(islice(fresh, count))
        if len(taken) < count:
            raise ValueError(f"needs {rounds * (_POOL_BATCH + 2 * one_by_one)} distinct ids, got {len(ids)}")
        return taken

    async with default(
        SparqlGraph,
        endpoints=tuple(endpoints),
        vocabulary=vocabulary,
        default_graph=default_graph,
        snapshot="benchmark",
    ) as graph:
        for _ in range(rounds):
            some = take(_POOL_BATCH)
            started = time.perf_counter()
            await graph.relations(some)
            rates["client"].append(len(some) / (time.perf_counter() - started))
            for name, texts in (("wrapper", _two_queries), ("wrapper_union", _one_query)):
                iris = [terms.to_iri(id) for id in take(one_by_one)]
                seconds = await asyncio.to_thread(_ask_one_by_one, endpoints[0], iris, texts)
                rates[name].append(len(iris) / seconds)
    client, wrapper, union = (statistics.median(rates[name]) for name in ("client", "wrapper", "wrapper_union"))
    return {
        "pool_expansions_per_s": client,
        "sparqlwrapper_expansions_per_s": wrapper,
        "sparqlwrapper_one_query_expansions_per_s": union,
        "ratio": client / wrapper,
        "ratio_one_query": client / union,
    }


def _ask_one_by_one(endpoint: str, iris: Sequence[str], texts: Callable[[str], Sequence[str]]) -> float:
    """Return the seconds taken by SPARQLWrapper, used as its documentation shows."""
    wrapper = SPARQLWrapper(endpoint)
    wrapper.setReturnFormat(JSON)
    started = time.perf_counter()
    for iri in iris:
        for text in texts(iri):
            wrapper.setQuery(text)
            wrapper.query().convert()
    return time.perf_counter() - started


def _two_queries(iri: str) -> Sequence[str]:
    return (f"SELECT DISTINCT ?r WHERE {{ <{iri}> ?r ?o }}", f"SELECT DISTINCT ?r WHERE {{ ?s ?r <{iri}> }}")


def _one_query(iri: str) -> Sequence[str]:
    return (
        f'SELECT DISTINCT ?r ?d WHERE {{ {{ <{iri}> ?r ?o BIND("out" AS ?d) }} UNION '
        f'{{ ?s ?r <{iri}> BIND("in" AS ?d) }} }}',
    )
