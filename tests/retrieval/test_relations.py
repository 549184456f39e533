"""The relation index: the hybrid score of specification §8.7, built once, kept on disk."""

from __future__ import annotations

import asyncio
import gzip
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pytest

from pipeline.retrieval.bm25 import Bm25
from pipeline.retrieval.interface import Vectors
from pipeline.retrieval.lexical import LexicalEncoder
from pipeline.retrieval.relations import RelationIndex, as_text, fuse_rrf, fuse_weighted


class VocabularyOnly:
    """A graph that has only relation names."""

    fingerprint = "test"

    def __init__(self, names: list[str]) -> None:
        self.names = names
        self.reads = 0

    async def relation_names(self) -> list[str]:
        self.reads += 1
        await asyncio.sleep(0)
        return self.names


class Planted:
    """An encoder with given vectors."""

    def __init__(self, vectors: dict[str, list[float]], name: str = "planted") -> None:
        self.name = name
        self.planted = vectors
        self.encoded: list[str] = []

    async def encode(self, texts: Sequence[str]) -> Vectors:
        self.encoded += texts
        return np.array([self.planted[text] for text in texts], dtype=np.float32).reshape(len(texts), -1)


def test_weighted_fusion_uses_the_smallest_score_for_a_missing_relation() -> None:
    # 0 is in both rankings, 1 only in the dense one, 2 only in BM25
    fused = fuse_weighted({0: 0.9, 1: 0.6}, {2: 4.0, 0: 3.0})
    assert fused == pytest.approx({0: 0.9 + 0.3, 1: 0.6 + 0.3, 2: 0.6 + 0.4})


def test_weighted_fusion_without_any_shared_word_is_the_dense_score() -> None:
    assert fuse_weighted({0: 0.9, 1: 0.6}, {}) == {0: 0.9, 1: 0.6}


def test_reciprocal_rank_fusion_adds_both_rankings() -> None:
    assert fuse_rrf({0: 0.9, 1: 0.6}, {1: 5.0}) == pytest.approx({0: 1 / 61, 1: 1 / 62 + 1 / 61})


async def test_each_ranking_contributes_its_best_ten() -> None:
    # Twelve relations point ever further away from the query; only the two farthest share a word with it.
    names = sorted([f"r{number:02}" for number in range(10)] + ["x.spouse", "y.spouse"])
    angles = {name: [np.cos(0.1 * rank), np.sin(0.1 * rank)] for rank, name in enumerate(names)}
    encoder = Planted({**{as_text(name): vector for name, vector in angles.items()}, "spouse": [1.0, 0.0]})
    bm25 = Bm25([as_text(name) for name in names]).scores("spouse")
    assert bm25[:10].max() == 0
    assert bm25[10] == bm25[11] > 0

    found = await RelationIndex(VocabularyOnly(names), encoder).search("spouse", 20)

    # Both spouses get the tenth dense score (they are not in the best ten); the ten others get the smallest BM25
    # score, which is the spouses' own: so the BM25 part is the same for all, and the spouses tie with the tenth.
    assert found == [*[f"r{number:02}" for number in range(10)], "x.spouse", "y.spouse"]


async def test_bm25_decides_between_dense_neighbours() -> None:
    names = ["a.b", "c.spouse_of_who_knows", "d.spouse", "e.f", "g.h"]
    dense = [0.9, 0.99, 0.989, 0.5, 0.4]
    vectors = {as_text(name): [score, (1 - score**2) ** 0.5] for name, score in zip(names, dense, strict=True)}
    bm25 = Bm25(list(vectors)).scores("spouse")
    assert bm25[2] > bm25[1] > bm25[0] == 0
    score = fuse_weighted(dict(enumerate(dense)), {1: float(bm25[1]), 2: float(bm25[2])})

    index = RelationIndex(VocabularyOnly(names), Planted({**vectors, "spouse": [1.0, 0.0]}))
    found = await index.search("spouse", 3)

    assert found == [names[position] for position in sorted(score, key=lambda position: -score[position])][:3]
    assert found.index("d.spouse") < found.index("c.spouse_of_who_knows")
    by_encoder = ["c.spouse_of_who_knows", "d.spouse", "a.b", "e.f", "g.h"]
    for k in (3, 5, 3):
        assert await index.search("spouse", k, hybrid=False) == by_encoder[:k]


async def test_the_index_is_built_once_and_searches_are_cached() -> None:
    graph = VocabularyOnly(["directed_by", "release_year"])
    encoder = Planted({"directed by": [1.0, 0.0], "release year": [0.0, 1.0], "who directed": [0.8, 0.6]})
    index = RelationIndex(graph, encoder)
    results = await asyncio.gather(*(index.search("who directed", k) for k in (1, 2, 2)))
    assert results == [["directed_by"], ["directed_by", "release_year"], ["directed_by", "release_year"]]
    assert await index.search("who_directed", 1) == ["directed_by"]
    assert graph.reads == 1
    assert encoder.encoded.count("directed by") == 1


async def test_a_relation_is_found_by_its_own_name() -> None:
    names = ["!", "?", "a.b", "a_b", *(f"a.b{number}" for number in range(20))]
    index = RelationIndex(VocabularyOnly(sorted(names)), LexicalEncoder())
    for name in names:
        assert await index.search(name, 1) == [name]
        found = await index.search(name, 30)
        assert (found[0], len(found)) == (name, len(set(found)))


async def test_a_graph_without_relations_finds_nothing() -> None:
    assert await RelationIndex(VocabularyOnly([]), LexicalEncoder()).search("who directed", 5) == []


async def test_a_query_without_words_has_only_dense_results() -> None:
    index = RelationIndex(VocabularyOnly(["directed_by", "release_year"]), LexicalEncoder())
    assert await index.search("?!", 5) == ["directed_by", "release_year"]


async def test_stored_vectors_are_reused_unless_the_encoder_changed(tmp_path: Path) -> None:
    graph = VocabularyOnly(["a", "b", "c", "d"])
    planted = {name: [np.cos(turn), np.sin(turn)] for turn, name in enumerate(["a", "b", "c", "d", "query"])}
    await RelationIndex(graph, Planted(planted), cache_dir=tmp_path).search("query", 1)

    second = Planted(planted)
    assert await RelationIndex(graph, second, cache_dir=tmp_path).search("query", 1) == ["d"]
    assert second.encoded == ["a", "c", "d", "query"]  # three probes, then the query

    retrained = Planted({**planted, "a": planted["query"], "d": planted["a"]})
    assert await RelationIndex(graph, retrained, cache_dir=tmp_path).search("query", 1) == ["a"]

    [file] = sorted(tmp_path.iterdir())  # noqa: ASYNC240
    file.write_bytes(file.read_bytes()[:-7])
    assert await RelationIndex(graph, Planted(planted), cache_dir=tmp_path).search("query", 1) == ["d"]
    assert sorted(tmp_path.iterdir()) == [file]  # noqa: ASYNC240


async def test_a_predicted_name_finds_the_real_freebase_relation(shared_data: Path) -> None:
    with gzip.open(shared_data / "freebase-slice" / "relations.tsv.gz", "rt", encoding="utf-8") as file:
        relations = sorted({line.split("\t")[0] for line in file} - {"relation"})
    for fusion in ("weighted", "rrf"):
        index = RelationIndex(VocabularyOnly(relations), LexicalEncoder(), fusion=fusion)
        assert (await index.search("people.person.place_of_birth", 5))[0] == "people.person.place_of_birth"
        assert "location.hud_county_place.county" in await index.search("location.county", 5)
        assert "actor.film" not in relations
        assert "film.actor.film" in await index.search("actor.film", 5)
