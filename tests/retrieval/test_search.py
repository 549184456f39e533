"""The retrieval backend and the searches of methods."""

from __future__ import annotations

import pickle
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pytest
from omegaconf import OmegaConf

from pipeline import config
from pipeline.config import default
from pipeline.errors import UserError
from pipeline.retrieval.dense import DenseEncoder
from pipeline.retrieval.interface import Reference, Vectors
from pipeline.retrieval.lexical import LexicalEncoder
from pipeline.retrieval.references import ReferenceBase
from pipeline.retrieval.search import Search
from pipeline.types import Question


class VocabularyOnly:
    """A graph that has only relation names."""

    def __init__(self, fingerprint: str, names: list[str]) -> None:
        self.fingerprint = fingerprint
        self.names = names
        self.reads = 0

    async def relation_names(self) -> list[str]:
        self.reads += 1
        return self.names


class FirstLetter:
    """An encoder of the first letter."""

    name = "first-letter"

    async def encode(self, texts: Sequence[str]) -> Vectors:
        return np.eye(128, dtype=np.float32)[[ord(text[0]) for text in texts]]


def configured(name: str, **changes: object) -> dict[str, object]:
    section = OmegaConf.to_container(OmegaConf.load(config.conf_dir() / "retrieval" / f"{name}.yaml"))
    return {"retrieval": {**section, **changes}}


async def test_rank_is_by_similarity_and_ties_by_position() -> None:
    search = default(Search, encoder=LexicalEncoder()).for_graph(VocabularyOnly("g", []))
    ranked = await search.rank("director", ["xyz", "who wrote it", "xyz", "directed_by", "directed_by"])
    assert ranked[:2] == [3, 4]
    assert ranked.index(0) < ranked.index(2)
    assert await search.rank("director", []) == []


async def test_relations_are_those_of_the_graph_and_indexed_once_per_fingerprint() -> None:
    films, places = VocabularyOnly("films", ["directed_by", "release_year"]), VocabularyOnly("places", ["located_in"])
    same_films = VocabularyOnly("films", ["directed_by", "release_year"])
    async with default(Search, encoder=LexicalEncoder()) as search:
        assert await search.for_graph(films).relations("director", 1) == ["directed_by"]
        assert await search.for_graph(places).relations("director", 1) == ["located_in"]
        assert await search.for_graph(same_films).relations("year", 1) == ["release_year"]
    assert (films.reads, places.reads, same_films.reads) == (1, 1, 0)


async def test_relation_names_may_have_an_encoder_of_their_own() -> None:
    graph = VocabularyOnly("g", ["xa", "ya"])
    search = default(Search, encoder=LexicalEncoder(), relation_encoder=FirstLetter()).for_graph(graph)
    assert await search.relations("yes", 2) == ["ya", "xa"]


async def test_references_come_from_the_configured_file(tmp_path: Path) -> None:
    known = Reference("who directed Alien", "who directed *", {"Alien": "Alien -> directed_by"}, ("Ridley Scott",))
    ReferenceBase([known]).save(tmp_path / "films.jsonl")
    asked = Question(id="1", dataset="d", split="s", text="who directed Titanic")
    async with default(Search, encoder=LexicalEncoder(), reference_base=tmp_path / "films.jsonl") as search:
        bound = search.for_graph(VocabularyOnly("g", []))
        assert await bound.references(asked, 4) == [known]
        assert await bound.references(asked, 4, random=True) == [known]
        assert await bound.references(asked, 0) == []
    without = default(Search, encoder=LexicalEncoder()).for_graph(VocabularyOnly("g", []))
    assert await without.references(asked, 4) == []


async def test_a_missing_reference_base_is_reported_on_opening(tmp_path: Path) -> None:
    with pytest.raises(UserError, match="kgqa build-references"):
        async with default(Search, encoder=LexicalEncoder(), reference_base=tmp_path / "none.jsonl"):
            pass


async def test_the_lexical_defaults_build_pickle_and_search() -> None:
    search = pickle.loads(pickle.dumps(config.build("retrieval", configured("lexical"))))
    assert await search.for_graph(VocabularyOnly("g", ["directed_by"])).relations("director", 5) == ["directed_by"]


def test_the_dense_defaults_are_the_models_of_the_papers() -> None:
    search = pickle.loads(pickle.dumps(config.build("retrieval", configured("dense"))))
    assert search.encoder == default(DenseEncoder, model="all-MiniLM-L6-v2")
    assert search.relation_encoder == default(DenseEncoder, model="facebook/contriever", unnormalised=True)


@pytest.mark.parametrize(
    ("key", "value", "sentence"),
    [
        ("fusion", "max", "retrieval.fusion='max' is wrong"),
        ("encoder", "lexical", "retrieval.encoder='lexical' is wrong"),
        ("k", 5, "unknown key 'retrieval.k'"),
    ],
)
def test_wrong_keys_and_values_are_answered_with_one_sentence(key: str, value: object, sentence: str) -> None:
    with pytest.raises(UserError, match=sentence):
        config.build("retrieval", configured("lexical", **{key: value}))
