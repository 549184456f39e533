"""Checks each graph server: it is up, answers its query style correctly, and holds the same facts as the others."""

from __future__ import annotations

import asyncio
import json
import time
from dataclasses import replace
from typing import Any

from SPARQLWrapper import DIGEST, JSON, POST, SPARQLWrapper

from pipeline import config
from pipeline.datasets.custom import Custom
from pipeline.datasets.interface import Dataset
from pipeline.datasets.remote import is_file
from pipeline.datasets.triples import header_doubt, read_triples
from pipeline.engine.configuration import Configuration
from pipeline.engine.doctor.finding import Finding, compared, ok, problem, warning
from pipeline.errors import KgqaError, UserError
from pipeline.kg.interface import KnowledgeGraph
from pipeline.kg.paging import MAX_ROWS
from pipeline.kg.sparql import SparqlGraph
from pipeline.kg.sparql_client import account_of_user
from pipeline.retrieval.compressed import TARGET
from pipeline.retrieval.search import Search
from pipeline.text import counted

_TIMEOUT_S = 30.0
_WRAPPER_TIMEOUT_S = 10
_MOST_BYTES = 64 << 10
"""Of the answer to SPARQLWrapper, which reads one of any length."""


async def graphs(configuration: Configuration) -> list[Finding]:
    """Check each graph server, or open the graph in this process."""
    graph: KnowledgeGraph = config.build("kg", configuration.config)
    if isinstance(graph, SparqlGraph):
        looks = await asyncio.gather(*(_server(url, graph) for url in graph.endpoints))
        prints = {url: held for url, (held, _) in zip(graph.endpoints, looks, strict=True)}
        fix = "Load them all from one database (kgqa graph serve)."
        different = compared("graph", prints, "hold different facts", fix)
        return [*(finding for _, found in looks for finding in found), *different]
    began = time.monotonic()
    async with graph:
        opened = ok("graph", f"opened in {time.monotonic() - began:.1f} s, fingerprint {graph.fingerprint}")
        if skipped := getattr(graph, "skipped", ""):
            opened += warning("graph", skipped, "Mend or remove these facts.")
    return [*opened, *_unnamed_columns(config.build("dataset", configuration.config))]


def _unnamed_columns(dataset: Dataset) -> list[Finding]:
    """Warn of a file of triples whose first fact looks like a header with other names."""
    if not isinstance(dataset, Custom) or not is_file(dataset.triples_file):
        return []
    first = next(read_triples(dataset.triples_file), None)
    doubt = first and header_doubt(dataset.triples_file, first)
    return warning("graph", doubt, "If it is one, name its columns head, relation and tail.") if doubt else []


async def node_search(configuration: Configuration) -> list[Finding]:
    """Say whether the search over node texts is stored, and the recall of an approximate one."""
    graph: Any = config.build("kg", configuration.config)
    search = config.build("retrieval", configuration.config)
    if not isinstance(search, Search) or not hasattr(graph, "text_nodes"):
        return []
    subject = "node search"
    async with graph:
        is_labelled = configuration.config["method"].get("index_text") == "labelled"
        stored = search.node_index(graph, labelled=is_labelled).stored()
    if stored is None:
        return ok(subject, "no index is stored: the first search encodes the texts of all nodes")
    nodes, recall = stored
    if recall is None:
        return ok(subject, f"exact, over {counted(nodes, 'node')}")
    found = (
        f"approximate, over {counted(nodes, 'node')}: recall@1 {recall.at_1:.3f}, recall@10 {recall.at_10:.3f} against "
        f"exact search with {counted(recall.queries, 'shortened node text')}"
    )
    if recall.at_1 < TARGET:
        return warning(subject, found, f"Set retrieval.exact_up_to={nodes} for exact search, if memory allows.")
    return ok(subject, found)


async def _server(url: str, graph: SparqlGraph) -> tuple[str | None, list[Finding]]:
    """Return the fingerprint of a server's facts (None if it cannot be used) and its findings."""
    subject = f"graph {url}"
    alone = replace(graph, endpoints=(url,), values_style="auto", retries=0, timeout_s=min(graph.timeout_s, _TIMEOUT_S))
    try:
        async with alone as open_graph:
            began = time.monotonic()
            await open_graph.relations(["m.0"])
            latency_s = time.monotonic() - began
            check = open_graph.check
            identity = check.identity
            facts = f"up, {counted(sum(identity.counts.values()), 'fact')}, fingerprint {identity.fingerprint}"
            answers = f"query style {check.queries.style}, {counted(check.row_limit, 'row')} a query"
            took = f"a lookup took {1000 * latency_s:.0f} ms"
            found = ok(subject, f"{facts}, {answers}, {took}")
            if check.row_limit < MAX_ROWS:
                found += warning(
                    subject,
                    f"it truncates results at {counted(check.row_limit, 'row')}, so large results take several queries",
                    f"Set ResultSetMaxRows in its virtuoso.ini to {MAX_ROWS} or more.",
                )
            if graph.values_style == "values" != check.queries.style:
                found += problem(
                    subject,
                    "it answers queries of the style values wrongly or too slowly",
                    f"Set kg.values_style=auto, which selects {check.queries.style}.",
                )
            return identity.fingerprint, found + await asyncio.to_thread(_other_client, url, subject)
    except UserError as error:
        return None, problem(subject, "it cannot be used", str(error))
    except KgqaError as error:
        return None, problem(subject, f"it is up, but fails: {error}", "See its log: it must answer this machine.")


def _other_client(url: str, subject: str) -> list[Finding]:
    """Ask as a user's own script would, with SPARQLWrapper, which reads JSON where this project reads TSV."""
    wrapper = SPARQLWrapper(url)
    wrapper.setMethod(POST)
    wrapper.setReturnFormat(JSON)
    wrapper.setTimeout(_WRAPPER_TIMEOUT_S)
    wrapper.setQuery("ASK { ?s ?p ?o }")
    if account := account_of_user():
        wrapper.setHTTPAuth(DIGEST)
        wrapper.setCredentials(*account)
    try:
        answer = json.loads(wrapper.query().response.read(_MOST_BYTES))
        if answer["boolean"] is True:
            return ok(subject, "SPARQLWrapper reads it too")
        found = "gets no fact"
    except Exception as error:  # noqa: BLE001 - of SPARQLWrapper, of urllib, or of an answer of another shape
        found = f"fails: {type(error).__name__}"
    return warning(
        subject, f"SPARQLWrapper {found}", "Runs do not need it; scripts of your own that use it will fail as well."
    )
