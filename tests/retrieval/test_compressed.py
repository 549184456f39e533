"""The compressed node index: its recall, and builds that are interrupted or shared."""

from __future__ import annotations

import asyncio
import re
import sys
from collections.abc import Sequence
from pathlib import Path
from random import Random
from typing import Any

import faiss
import pytest

from pipeline.retrieval.compressed import CompressedFiles
from pipeline.retrieval.interface import Vectors
from pipeline.retrieval.lexical import LexicalEncoder
from pipeline.retrieval.nodes import NodeIndex
from tests.retrieval.test_nodes import Nodes, Watched, node_index
from tests.support import sampled

SHARD = 400
WORDS = re.findall(
    r"\w+", "glass quay winter ferry salt lantern tide harbour copper anchor velvet orchard marble signal"
)


@pytest.fixture(autouse=True)
def _small_shards(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("pipeline.retrieval.nodes.SHARD_NODES", SHARD)


def graph(nodes: int = 3 * SHARD) -> Nodes:
    random = Random(0)
    return Nodes({f"n{number}": f"{' '.join(random.sample(WORDS, 4))} {number}" for number in range(nodes)})


def approximate(nodes: Nodes, encoder: LexicalEncoder, folder: Path | None, *, exact_up_to: int = 100) -> NodeIndex:
    return node_index(nodes, encoder, exact_up_to=exact_up_to, cache_dir=folder)


def stored(folder: Path) -> dict[str, int]:
    """When each file of an index was written."""
    return {file.name: file.stat().st_mtime_ns for file in folder.rglob("*.*") if file.is_file()}


@pytest.mark.parametrize("kept", sampled([True, False], every=2))
async def test_finds_what_exact_search_finds(kept: bool, tmp_path: Path) -> None:
    nodes = graph()
    index = approximate(nodes, LexicalEncoder(), tmp_path if kept else None)
    exact = node_index(nodes, LexicalEncoder(), exact_up_to=len(nodes.named))
    queries = [f"{text} {'harbour' if number % 2 else ''}" for number, text in enumerate(nodes.named.values())][::9]
    found = await asyncio.gather(*(index.search(query, 3) for query in queries))
    expected = [await exact.search(query, 3) for query in queries]
    assert sum(some[0] == others[0] for some, others in zip(found, expected, strict=True)) >= 0.97 * len(queries)
    assert ("nodes.faiss" in stored(tmp_path)) == kept


@pytest.mark.parametrize("size", [1, 2, 63, 65, 130, SHARD])
async def test_a_small_graph_can_be_compressed(size: int) -> None:
    nodes = graph(size)
    index = approximate(nodes, LexicalEncoder(), None, exact_up_to=0)
    for id in {"n0", f"n{size - 1}"}:
        assert (await index.search(nodes.named[id], 3))[0] == id


@pytest.mark.exhaustive
async def test_measures_its_recall_and_reads_it_back(tmp_path: Path) -> None:
    nodes = graph()
    assert approximate(nodes, LexicalEncoder(), tmp_path).stored() is None
    await approximate(nodes, LexicalEncoder(), tmp_path).search("tide", 1)
    counted = approximate(nodes, LexicalEncoder(), tmp_path).stored()
    assert counted is not None
    assert counted[0] == len(nodes.named)
    assert counted[1] is not None
    assert counted[1].at_1 >= 0.985
    assert counted[1].queries == 1000
    assert node_index(nodes, LexicalEncoder(), cache_dir=tmp_path, exact_up_to=10_000).stored() == (1200, None)
    before = stored(tmp_path)
    await approximate(nodes, LexicalEncoder(), tmp_path).search("harbour", 1)
    assert stored(tmp_path) == before
    assert nodes.read == 1


@pytest.mark.exhaustive
async def test_a_graph_is_exact_up_to_the_limit_and_without_faiss(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    nodes = graph()
    await node_index(nodes, LexicalEncoder(), exact_up_to=len(nodes.named), cache_dir=tmp_path).search("tide", 1)
    with monkeypatch.context() as patch:
        patch.setitem(sys.modules, "faiss", None)
        await approximate(nodes, LexicalEncoder(), tmp_path).search("tide", 1)
    assert "nodes.faiss" not in stored(tmp_path)
    await approximate(nodes, LexicalEncoder(), tmp_path).search("tide", 1)
    assert nodes.read == 1, "the vectors are those of the exact index"
    assert "nodes.faiss" in stored(tmp_path)


class Failing(Watched):
    """An encoder that fails after some texts."""

    def __init__(self, after: int) -> None:
        super().__init__()
        self.after = after

    async def encode(self, texts: Sequence[str]) -> Vectors:
        if len(self.encoded) >= self.after:
            raise RuntimeError("killed")
        return await super().encode(texts)


@pytest.mark.exhaustive
async def test_encoding_goes_on_at_the_shard_where_it_stopped(tmp_path: Path) -> None:
    nodes = graph()
    with pytest.raises(RuntimeError, match="killed"):
        await approximate(nodes, Failing(after=2 * SHARD), tmp_path).search("tide", 1)
    encoder = Watched()
    await approximate(nodes, encoder, tmp_path).search("tide", 1)
    texts = list(nodes.named.values())
    assert [text for text in encoder.encoded if text in set(texts[: 2 * SHARD])] == [
        texts[0], texts[SHARD], texts[2 * SHARD - 1]
    ], "only the three that show that the stored vectors are those of the encoder"  # fmt: skip
    assert set(texts[2 * SHARD :]) <= set(encoder.encoded)


@pytest.mark.exhaustive
async def test_compression_goes_on_at_the_shard_where_it_stopped(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    nodes, write = graph(), faiss.write_index

    def fail_at_the_last(index: Any, file: str) -> None:
        if "00002" in file:
            raise RuntimeError("killed")
        write(index, file)

    with monkeypatch.context() as patch:
        patch.setattr(faiss, "write_index", fail_at_the_last)
        with pytest.raises(RuntimeError, match="killed"):
            await approximate(nodes, LexicalEncoder(), tmp_path).search("tide", 1)
    written: list[str] = []
    monkeypatch.setattr(faiss, "write_index", lambda index, file: (written.append(Path(file).name), write(index, file)))
    assert await approximate(nodes, LexicalEncoder(), tmp_path).search(nodes.named["n7"], 1) == ["n7"]
    assert written == [".00002.faiss.partial", ".nodes.faiss.partial"]


@pytest.mark.exhaustive
async def test_several_indexes_share_the_work_of_one_build(tmp_path: Path) -> None:
    nodes, encoders = graph(), [Watched() for _ in range(3)]
    indexes = [approximate(nodes, encoder, tmp_path) for encoder in encoders]
    found = await asyncio.gather(*(index.search(nodes.named["n900"], 1) for index in indexes))
    assert found == [["n900"]] * 3
    encoded = [text for encoder in encoders for text in encoder.encoded]
    once = [text for text in nodes.named.values() if encoded.count(text) == 1]
    assert len(once) > len(nodes.named) - 10, "all but those that the checks and the query encode again"


@pytest.mark.exhaustive
async def test_a_retrained_encoder_replaces_all_files(tmp_path: Path) -> None:
    nodes = graph()
    await approximate(nodes, Watched(), tmp_path).search("tide", 1)
    text = nodes.named["n5"]
    assert await approximate(nodes, Watched(turn=-1.0), tmp_path).search(text, 1) == ["n5"]
    (folder,) = tmp_path.iterdir()  # noqa: ASYNC240
    assert CompressedFiles(folder).measured() is not None


async def test_concurrent_queries_are_one_search(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    nodes, encoder = graph(), Watched()
    index = approximate(nodes, encoder, tmp_path)
    await index.search("tide", 1)
    calls: list[int] = []
    search = faiss.IndexPreTransform.search

    def counting(self: Any, vectors: Vectors, *args: Any, **kwargs: Any) -> Any:
        calls.append(len(vectors))
        return search(self, vectors, *args, **kwargs)

    monkeypatch.setattr(faiss.IndexPreTransform, "search", counting)
    found = await asyncio.gather(*(index.search(nodes.named[f"n{number}"], number) for number in range(1, 20)))
    assert calls == [19]
    assert [len(ids) for ids in found] == list(range(1, 20))
    assert [ids[0] for ids in found] == [f"n{number}" for number in range(1, 20)]
