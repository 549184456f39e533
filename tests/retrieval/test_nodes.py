"""The node index: flat search over the texts of a graph's nodes, encoded once per (graph, encoder)."""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path

import numpy as np
import pytest

from pipeline.config import default
from pipeline.kg.interface import Batch, batch
from pipeline.retrieval.interface import Encoder, Vectors
from pipeline.retrieval.lexical import LexicalEncoder
from pipeline.retrieval.nodes import NodeIndex
from pipeline.retrieval.search import Search
from pipeline.types import EntityId

TEXTS = {"b": "The Glass Quay", "a": "Winter Ferry", "odd\n\x00id": "Salt & Lantern", "c": "Winter Ferry", "d": "Tide"}


class Nodes:
    """A graph that has only node texts."""

    def __init__(self, texts: dict[str, str], fingerprint: str = "g") -> None:
        self.named = texts
        self.fingerprint = fingerprint
        self.read = 0

    def text_nodes(self, *, labelled: bool = False) -> Iterator[tuple[EntityId, str]]:
        self.read += 1
        yield from self._texts(labelled=labelled).items()

    async def texts(self, ids: Sequence[EntityId], *, labelled: bool = False) -> Batch[EntityId, str | None]:
        found = self._texts(labelled=labelled)
        return batch({id: found.get(id) for id in ids})

    def _texts(self, *, labelled: bool) -> dict[EntityId, str]:
        return {id: f"name: {text}" if labelled else text for id, text in self.named.items()}

    async def features(self, ids: Sequence[EntityId]) -> Batch[EntityId, None]:
        return batch(dict.fromkeys(ids))

    degrees = features


def node_index(graph: Nodes, encoder: Encoder, *, exact_up_to: int = 1000, cache_dir: Path | None = None) -> NodeIndex:
    return NodeIndex(graph, encoder, exact_up_to=exact_up_to, cache_dir=cache_dir)


class Watched(LexicalEncoder):
    """An encoder that records the texts."""

    def __init__(self, turn: float = 1.0) -> None:
        self.encoded: list[str] = []
        self.turn = turn

    async def encode(self, texts: Sequence[str]) -> Vectors:
        self.encoded += texts
        return np.asarray(self.vectors(texts) * np.float32(self.turn))


@pytest.mark.parametrize("faiss", [True, False])
@pytest.mark.parametrize("stored", [True, False])
async def test_finds_the_most_similar_nodes_ties_in_graph_order(
    faiss: bool, stored: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    if not faiss:
        monkeypatch.setitem(sys.modules, "faiss", None)
    index = node_index(Nodes(TEXTS), LexicalEncoder(), cache_dir=tmp_path if stored else None)
    assert await index.search("glass quay", 1) == ["b"]
    assert await index.search("a winter ferry", 2) == ["a", "c"]
    assert await index.search("lantern of salt", 1) == ["odd\n\x00id"]
    assert len(await index.search("tide", 99)) == len(TEXTS)


async def test_faiss_and_the_matrix_product_give_equal_results(monkeypatch: pytest.MonkeyPatch) -> None:
    texts = {str(n): f"node {n % 40} {'abc'[n % 3]} {n * 7 % 11}" for n in range(400)}
    with_faiss = node_index(Nodes(texts), LexicalEncoder())
    found = [await with_faiss.search(f"node {n} b 3", 5) for n in range(20)]
    monkeypatch.setitem(sys.modules, "faiss", None)
    without = node_index(Nodes(texts), LexicalEncoder())
    assert [await without.search(f"node {n} b 3", 5) for n in range(20)] == found


async def test_a_graph_without_texts_finds_nothing(tmp_path: Path) -> None:
    for folder in (None, tmp_path, tmp_path):
        assert await node_index(Nodes({}), LexicalEncoder(), cache_dir=folder).search("x", 1) == []


async def test_is_built_once_and_read_back_from_disk(tmp_path: Path) -> None:
    graph, encoder = Nodes(TEXTS), Watched()
    index = node_index(graph, encoder, cache_dir=tmp_path)
    await asyncio.gather(*(index.search("tide", 1) for _ in range(5)))
    assert (graph.read, encoder.encoded.count("Tide")) == (1, 1)
    later = Watched()
    assert await node_index(graph, later, cache_dir=tmp_path).search("tide", 1) == ["d"]
    assert (graph.read, later.encoded) == (1, ["The Glass Quay", "Salt & Lantern", "Tide", "tide"]), "three probes"
    other = Nodes({"z": "Tide"}, fingerprint="other")
    assert await node_index(other, Watched(), cache_dir=tmp_path).search("tide", 1) == ["z"]
    assert await node_index(graph, Watched(), cache_dir=tmp_path).search("tide", 1) == ["d"]
    assert graph.read == 1


async def test_labelled_texts_have_an_index_of_their_own(tmp_path: Path) -> None:
    graph, encoders = Nodes(TEXTS), (Watched(), Watched())
    for labelled, encoder in zip((False, True), encoders, strict=True):
        index = NodeIndex(graph, encoder, exact_up_to=1000, cache_dir=tmp_path, labelled=labelled)
        assert await index.search("tide", 1) == ["d"]
    assert ["Tide" in encoder.encoded for encoder in encoders] == [True, False]
    assert ["name: Tide" in encoder.encoded for encoder in encoders] == [False, True]


@pytest.mark.parametrize("spoil", ["cut", "ids", "retrained"])
async def test_outdated_files_are_rewritten(spoil: str, tmp_path: Path) -> None:
    graph = Nodes(TEXTS)
    await node_index(graph, Watched(), cache_dir=tmp_path).search("tide", 1)
    (vectors,), (ids,) = list(tmp_path.rglob("*.vectors.npy")), list(tmp_path.rglob("*.ids.npy"))  # noqa: ASYNC240
    if spoil == "cut":
        vectors.write_bytes(vectors.read_bytes()[:-4])
    elif spoil == "ids":
        ids.write_bytes(b'"b"\n"a')
    encoder = Watched(turn=-1.0 if spoil == "retrained" else 1.0)
    assert await node_index(graph, encoder, cache_dir=tmp_path).search("tide", 1) == ["d"]
    assert graph.read == 2


async def test_search_has_one_index_per_graph_and_none_for_triples() -> None:
    search = default(Search, encoder=LexicalEncoder())
    graph = Nodes(TEXTS)
    for _ in range(2):
        assert await search.for_graph(graph).nodes("tide", 1) == ["d"]  # type: ignore[arg-type]
    assert graph.read == 1

    class Triples:
        fingerprint = "triples"

    assert await search.for_graph(Triples()).nodes("tide", 1) == []  # type: ignore[arg-type]
