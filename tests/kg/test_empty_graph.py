"""A graph without a fact is refused: every method would look for its answers in vain, and score 0."""

from __future__ import annotations

from pathlib import Path

import pyoxigraph
import pytest

from pipeline.config import default
from pipeline.datasets.custom import Custom
from pipeline.errors import UserError
from pipeline.kg.embedded import EmbeddedGraph
from pipeline.kg.grbench_store import build_store
from pipeline.kg.load import load_graph
from pipeline.kg.sparql import SparqlGraph
from tests.kg.conftest import OxigraphFactory
from tests.support import refuse

REFUSED = "has no facts: see whether its file is empty or was copied only in part"


def custom(folder: Path, name: str, content: str = "") -> Custom:
    (folder / name).write_text(content)
    dataset: Custom = default(Custom, triples=folder / name, questions=folder / "questions.jsonl")
    return dataset


@pytest.mark.parametrize(
    ("name", "content"), [("graph.tsv", ""), ("graph.tsv", "head\trelation\ttail\n"), ("graph.nt", "")]
)
async def test_a_file_without_facts(name: str, content: str, tmp_path: Path) -> None:
    with pytest.raises(UserError, match=f"the graph of custom {REFUSED}"):
        async with default(EmbeddedGraph, dataset=custom(tmp_path, name, content)):
            pass


async def test_a_store_without_facts(tmp_path: Path) -> None:
    pyoxigraph.Store(str(tmp_path / "store")).flush()
    with pytest.raises(UserError, match=f"kg.store={tmp_path / 'store'} {REFUSED}"):
        async with default(EmbeddedGraph, store=tmp_path / "store"):
            pass


@pytest.mark.parametrize("target", ["ntriples", "oxigraph"])
def test_nothing_is_loaded_from_a_file_without_facts(target: str, tmp_path: Path) -> None:
    with pytest.raises(UserError, match=REFUSED):
        load_graph(custom(tmp_path, "graph.tsv"), target, tmp_path / "loaded", reject=refuse)  # type: ignore[arg-type]
    assert not (tmp_path / "loaded").exists()


def test_a_grbench_graph_without_nodes(tmp_path: Path) -> None:
    (tmp_path / "graph.json").write_text("{}")
    with pytest.raises(UserError, match=f"graph.json {REFUSED}"):
        build_store(tmp_path / "graph.json", tmp_path / "store")
    assert not (tmp_path / "store").exists()


async def test_a_server_without_facts(oxigraph_endpoint: OxigraphFactory) -> None:
    endpoint = await oxigraph_endpoint([])
    with pytest.raises(
        UserError, match=f"kg.endpoints: the graph at {endpoint.url} has no facts that this kg/vocabulary reads"
    ):
        async with default(SparqlGraph, endpoints=[endpoint.url]):
            pass
