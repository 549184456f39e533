"""Every graph server by itself: up, answering its style of query correctly, and holding the same facts."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Iterator
from dataclasses import replace

from pipeline import config
from pipeline.engine.checkup.finding import Finding, ok, problem, warning
from pipeline.engine.run import Point
from pipeline.errors import KgqaError, UserError
from pipeline.kg.port import KnowledgeGraph
from pipeline.kg.reader import MOST_ROWS
from pipeline.kg.sparql import SparqlGraph

_PATIENCE_S = 30.0


async def graphs(point: Point) -> list[Finding]:
    """What each graph server holds and how it answers, or how the graph in this process opens."""
    graph: KnowledgeGraph = config.build("kg", point.config)
    if isinstance(graph, SparqlGraph):
        looks = await asyncio.gather(*(_server(url, graph) for url in graph.endpoints))
        prints = {url: held for url, (held, _) in zip(graph.endpoints, looks, strict=True) if held}
        return [*(finding for _, found in looks for finding in found), *_different(prints)]
    began = time.monotonic()
    async with graph:
        return [ok("graph", f"opened in {time.monotonic() - began:.1f} s, fingerprint {graph.fingerprint}")]


def _different(prints: dict[str, str]) -> Iterator[Finding]:
    if len(set(prints.values())) > 1:
        listing = ", ".join(f"{held} at {url}" for url, held in prints.items())
        yield problem(
            "graph",
            f"its servers hold different facts: {listing}",
            "Load them all from one database (kgqa graph serve).",
        )


async def _server(url: str, graph: SparqlGraph) -> tuple[str | None, list[Finding]]:
    """The fingerprint of a server's facts, None for one that cannot be used, and what is to be said of it."""
    subject = f"graph {url}"
    alone = replace(
        graph, endpoints=(url,), values_style="auto", retries=0, timeout_s=min(graph.timeout_s, _PATIENCE_S)
    )
    try:
        async with alone as open_graph:
            began = time.monotonic()
            await open_graph.relations(["m.0"])
            latency_s = time.monotonic() - began
            learned = open_graph.learned
            facts = f"up, {sum(learned.counts.values()):,} facts, fingerprint {learned.fingerprint}"
            answers = f"query style {learned.queries.style}, {learned.row_limit:,} rows a query"
            took = f"a lookup took {1000 * latency_s:.0f} ms"
            found = [ok(subject, f"{facts}, {answers}, {took}"), *_narrow(subject, learned.row_limit)]
            if graph.values_style == "values" != learned.queries.style:
                found.append(
                    problem(
                        subject,
                        "it answers queries of the style values wrongly or too slowly",
                        f"Leave kg.values_style=auto, which takes {learned.queries.style}.",
                    )
                )
            return learned.fingerprint, found
    except UserError as error:
        return None, [problem(subject, "it cannot be used", str(error))]
    except KgqaError as error:
        return None, [problem(subject, f"it is up, but fails: {error}", "Look into its log, and start it again.")]


def _narrow(subject: str, row_limit: int) -> Iterator[Finding]:
    if row_limit < MOST_ROWS:
        yield warning(
            subject,
            f"it cuts results at {row_limit:,} rows, so that large ones take several queries",
            f"Set ResultSetMaxRows in its virtuoso.ini to {MOST_ROWS} or more.",
        )
