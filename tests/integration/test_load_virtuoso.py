"""Graphs loaded into real Virtuoso servers, over HTTP and by the bulk loader, and read back."""

from __future__ import annotations

import asyncio
import gzip
import json
import subprocess
import urllib.parse
import urllib.request
from pathlib import Path

import pytest

from pipeline.config import default
from pipeline.datasets.metaqa import MetaQA
from pipeline.errors import UserError
from pipeline.kg.embedded import EmbeddedGraph
from pipeline.kg.load import load_graph
from pipeline.kg.sparql import SparqlGraph
from pipeline.kg.virtuoso import GRAPH, VirtuosoConfig, VirtuosoServer, replicas
from pipeline.net.subprocess_server import free_ports
from pipeline.rdf_terms import XSD, Terms, literal_node
from pipeline.types import LiteralNode, Triple
from tests.kg.support import HOSTILE_FACTS, Facts
from tests.support import refuse

pytestmark = pytest.mark.exhaustive

SCRIPTS = Path(__file__).resolve().parents[2] / "infra" / "virtuoso"


def select(endpoint: str, query: str) -> list[dict[str, dict[str, str]]]:
    data = urllib.parse.urlencode({"query": query, "default-graph-uri": GRAPH}).encode()
    request = urllib.request.Request(endpoint, data, {"Accept": "application/sparql-results+json"})
    with urllib.request.urlopen(request, timeout=60) as response:
        return json.loads(response.read(), strict=False)["results"]["bindings"]


def count(endpoint: str) -> int:
    return int(select(endpoint, "SELECT (COUNT(*) AS ?n) WHERE { ?s ?p ?o }")[0]["n"]["value"])


def facts_in(endpoint: str) -> set[Triple]:
    terms = Terms()

    def node(term: dict[str, str]) -> object:
        if term["type"] == "uri":
            return terms.node(term["value"])
        return literal_node(term["value"], term.get("datatype"), term.get("xml:lang"))

    rows = select(endpoint, "SELECT ?s ?p ?o WHERE { ?s ?p ?o }")
    return {Triple(*(node(row[name]) for name in "spo")) for row in rows}


@pytest.fixture(scope="module")
def empty(virtuoso_factory) -> list[VirtuosoServer]:
    """Two servers to load, with one unrelated fact."""
    return virtuoso_factory([Triple("m.0", "a.a", "m.0")], replicas=2)


def test_loading_running_servers_adds_to_what_they_hold(empty, shared_data, monkeypatch):
    endpoints = [server.endpoint for server in empty]
    load = {"endpoints": endpoints, "reject": refuse}
    monkeypatch.setenv("VIRTUOSO_PASSWORD", "wrong")
    with pytest.raises(UserError, match="refuses write access; set VIRTUOSO_USER and VIRTUOSO_PASSWORD"):
        load_graph(Facts(HOSTILE_FACTS), "virtuoso", None, **load)
    monkeypatch.delenv("VIRTUOSO_PASSWORD")

    load_graph(Facts(HOSTILE_FACTS), "virtuoso", None, **load)
    expected = {*HOSTILE_FACTS, Triple("m.0", "a.a", "m.0")}
    assert facts_in(endpoints[0]) == facts_in(endpoints[1]) == expected

    metaqa = default(MetaQA, path=shared_data / "metaqa", hops=1)
    summary = load_graph(metaqa, "virtuoso", None, **load)
    assert summary.triples.count == 133_582
    load_graph(metaqa, "virtuoso", None, **load)
    assert [count(endpoint) for endpoint in endpoints] == [133_582 + len(expected)] * 2


def test_bulk_loader_keeps_hostile_names_and_texts(virtuoso_factory):
    server = virtuoso_factory(HOSTILE_FACTS)[0]
    assert facts_in(server.endpoint) == set(HOSTILE_FACTS)


FREEBASE = "http://rdf.freebase.com/ns/"
DROPPED = [
    f'<{FREEBASE}m.01>\t<{FREEBASE}type.object.name>\t"Anne"@fr\t.\n',
    f'<{FREEBASE}m.01>\t<http://www.w3.org/2000/01/rdf-schema#label>\t"Ann"@en\t.\n',
    f"<{FREEBASE}m.01>\t<{FREEBASE}common.topic.official_website>\t<http://a b>\t.\n",
    f'<{FREEBASE}m.01>\t<{FREEBASE}a.b>\t"bad \\x escape"\t.\n',
    f'<{FREEBASE}m.01>\t<{FREEBASE}a.b>\t"never closed\t.\n',
]
"""Lines as the dump has them that are not for a database."""


def test_freebase_scripts_filter_load_and_serve(virtuoso_installed, shared_data, tmp_path):
    kept = [
        Triple("m.01", "type.object.name", LiteralNode('Ann "the\tpro"', lang="en")),
        Triple("m.01", "people.person.sibling_s", "g.11b"),
        Triple("m.01", "people.person.date_of_birth", LiteralNode("1957-05", XSD + "gYearMonth")),
        Triple("m.01", "people.person.height", LiteralNode("1.7")),
        *slice_of_freebase(shared_data / "freebase-slice"),
    ]
    terms = Terms()
    lines = [terms.n_triple(triple).replace("> ", ">\t", 2).replace(" .\n", "\t.\n") for triple in kept]
    with gzip.open(tmp_path / "dump.gz", "wt", encoding="utf-8") as dump:
        dump.writelines([*DROPPED, *lines, *DROPPED])
    ports = dict(zip(("SQL_PORT", "HTTP_PORT"), map(str, free_ports(2)), strict=True))
    environment = {"PATH": "/usr/bin:/bin", "MEMORY_GB": "0.1", "LINES_PER_PART": "10000", "LOADERS": "2", **ports}
    for script, source, target in (
        ("filter_freebase.sh", tmp_path / "dump.gz", tmp_path / "parts"),
        ("load_freebase.sh", tmp_path / "parts", tmp_path / "freebase"),
    ):
        done = subprocess.run(
            [SCRIPTS / script, source, target], env=environment, check=True, capture_output=True, text=True
        )
    assert len(list((tmp_path / "parts").iterdir())) == 1 + len(kept) // 10_000
    facts = set(kept)
    assert f"\n{len(facts)} triples\n" in f"\n{done.stdout}"
    assert "\n0 names that are not English\n" in done.stdout
    of_g = sum(isinstance(fact.head, str) and fact.head.startswith("g.") for fact in facts)
    assert f"\n{of_g} facts about g. nodes\n" in done.stdout
    asyncio.run(check_replicas(tmp_path, kept))


def slice_of_freebase(folder: Path) -> list[Triple]:
    """The facts of the slice between ids, and the names that there are for them."""
    with gzip.open(folder / "triples_mid.tsv.gz", "rt", encoding="utf-8") as file:
        facts = [Triple(*line.rstrip("\n").split("\t")) for line in list(file)[1:]]
    nodes = {node for fact in facts for node in (fact.head, fact.tail)}
    with gzip.open(folder / "entities.tsv.gz", "rt", encoding="utf-8") as file:
        labels = dict(line.rstrip("\n").split("\t") for line in list(file)[1:])
    named = [node for node in sorted(nodes) if labels.get(node, "null") != "null"]
    return [*facts, *(Triple(node, "type.object.name", LiteralNode(labels[node], lang="en")) for node in named)]


async def check_replicas(folder: Path, kept: list[Triple]) -> None:
    """Replicas of the database agree with each other and with a graph of the same facts, and cannot be written to."""
    ids = sorted({fact.head for fact in kept})[:500]
    with replicas(folder / "freebase", 2, folder, default(VirtuosoConfig)) as servers:
        endpoints = tuple(server.endpoint for server in servers)
        async with (
            default(SparqlGraph, endpoints=endpoints) as graph,
            default(EmbeddedGraph, dataset=Facts(tuple(kept))) as known,
        ):
            assert graph.fingerprint.startswith(f"{len(set(kept))}-")
            assert await graph.labels(ids) == await known.labels(ids)
            assert await graph.relations(ids) == await known.relations(ids)
        with pytest.raises(UserError, match="refuses write access"):
            load_graph(Facts(kept[:1]), "virtuoso", None, endpoints=endpoints, reject=refuse)


@pytest.mark.parametrize("script", sorted(path.name for path in SCRIPTS.glob("*.sh")))
def test_a_script_says_what_it_needs(script, tmp_path):
    done = subprocess.run([SCRIPTS / script], cwd=tmp_path, capture_output=True, text=True, check=False)
    assert done.returncode != 0
    assert f"usage: {script} " in done.stderr
    assert list(tmp_path.iterdir()) == []
