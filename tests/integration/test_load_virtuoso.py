"""Graphs loaded into real Virtuoso servers, over HTTP and by the bulk loader, and read back."""

from __future__ import annotations

import json
import socket
import subprocess
import urllib.parse
import urllib.request
from pathlib import Path

import pytest

from pipeline.datasets.metaqa import MetaQA
from pipeline.errors import UserError
from pipeline.kg.load import load_graph
from pipeline.kg.terms import Terms, literal_node
from pipeline.kg.virtuoso import GRAPH, Server, replicas
from pipeline.types import LiteralNode, Triple
from tests.kg.support import HOSTILE_FACTS, Facts
from tests.support import refuse


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
def empty(virtuoso_factory) -> list[Server]:
    """Two servers to load, with one unrelated fact."""
    return virtuoso_factory([Triple("m.0", "a.a", "m.0")], replicas=2)


def test_loading_running_servers_adds_to_what_they_hold(empty, shared_data, monkeypatch):
    endpoints = [server.endpoint for server in empty]
    load = {"endpoints": endpoints, "reject": refuse}
    monkeypatch.setenv("VIRTUOSO_PASSWORD", "wrong")
    with pytest.raises(UserError, match="refuses to be written to: set VIRTUOSO_USER and VIRTUOSO_PASSWORD"):
        load_graph(Facts(HOSTILE_FACTS), "virtuoso", None, **load)
    monkeypatch.delenv("VIRTUOSO_PASSWORD")

    load_graph(Facts(HOSTILE_FACTS), "virtuoso", None, **load)
    expected = {*HOSTILE_FACTS, Triple("m.0", "a.a", "m.0")}
    assert facts_in(endpoints[0]) == facts_in(endpoints[1]) == expected

    metaqa = MetaQA(path=shared_data / "metaqa", hops=1)
    summary = load_graph(metaqa, "virtuoso", None, **load)
    assert summary.triples.count == 133_582
    load_graph(metaqa, "virtuoso", None, **load)
    assert [count(endpoint) for endpoint in endpoints] == [133_582 + len(expected)] * 2


def test_bulk_loader_keeps_hostile_names_and_texts(virtuoso_factory):
    server = virtuoso_factory(HOSTILE_FACTS)[0]
    assert facts_in(server.endpoint) == set(HOSTILE_FACTS)


def test_freebase_scripts_filter_load_and_serve(virtuoso_installed, tmp_path):
    scripts = Path(__file__).resolve().parents[2] / "infra" / "virtuoso"
    ns = "http://rdf.freebase.com/ns/"
    kept = [
        Triple("m.01", "type.object.name", LiteralNode('Ann "the\tpro"', lang="en")),
        Triple("m.01", "people.person.sibling_s", "g.11b"),
        Triple(
            "m.01", "people.person.date_of_birth", LiteralNode("1957-05", "http://www.w3.org/2001/XMLSchema#gYearMonth")
        ),
        Triple("m.01", "people.person.height", LiteralNode("1.7")),
    ]
    terms = Terms()
    lines = [terms.n_triple(triple).replace("> ", ">\t", 2).replace(" .\n", "\t.\n") for triple in kept]
    lines += [
        f'<{ns}m.01>\t<{ns}type.object.name>\t"Anne"@fr\t.\n',
        f'<{ns}m.01>\t<http://www.w3.org/2000/01/rdf-schema#label>\t"Ann"@en\t.\n',
        f"<{ns}m.01>\t<{ns}common.topic.official_website>\t<http://a b>\t.\n",
        f'<{ns}m.01>\t<{ns}a.b>\t"bad \\x escape"\t.\n',
        f'<{ns}m.01>\t<{ns}a.b>\t"never closed\t.\n',
    ]
    dump = tmp_path / "dump"
    dump.write_text("".join(lines))
    subprocess.run(["gzip", dump], check=True)
    ports = {"SQL_PORT": str(_free_port()), "HTTP_PORT": str(_free_port())}
    environment = {"PATH": "/usr/bin:/bin", "MEMORY_GB": "0.1", "LINES_PER_PART": "3", **ports}
    for script, source, target in (
        ("filter_freebase.sh", tmp_path / "dump.gz", tmp_path / "parts"),
        ("load_freebase.sh", tmp_path / "parts", tmp_path / "freebase"),
    ):
        done = subprocess.run(
            [scripts / script, source, target], env=environment, check=True, capture_output=True, text=True
        )
    assert len(list((tmp_path / "parts").iterdir())) == 2
    assert "4 triples" in done.stdout
    assert "0 names that are not English" in done.stdout
    with replicas(tmp_path / "freebase", 1, tmp_path) as (server,):
        assert facts_in(server.endpoint) == set(kept)
        with pytest.raises(UserError, match="refuses to be written to"):
            load_graph(Facts(kept), "virtuoso", None, endpoints=[server.endpoint], reject=refuse)


def _free_port() -> int:
    with socket.socket() as one:
        one.bind(("127.0.0.1", 0))
        return one.getsockname()[1]
