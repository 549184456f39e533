"""The lexical encoder: deterministic unit vectors that are similar for similar words."""

from __future__ import annotations

import gzip
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from pipeline.retrieval.interface import Encoder
from pipeline.retrieval.lexical import DIMENSIONS, LexicalEncoder, stem, words

METAQA_RELATIONS = [
    "directed_by",
    "has_genre",
    "has_imdb_rating",
    "has_imdb_votes",
    "has_tags",
    "in_language",
    "release_year",
    "starred_actors",
    "written_by",
]


@given(st.lists(st.text(), max_size=5))
def test_every_text_has_a_unit_vector(texts: list[str]) -> None:
    vectors = LexicalEncoder().vectors(texts)
    assert vectors.shape == (len(texts), DIMENSIONS)
    assert vectors.dtype == np.float32
    assert np.allclose(np.linalg.norm(vectors, axis=1), 1, atol=1e-5)


def test_another_process_computes_the_same_vectors() -> None:
    texts = ["who directed Café Müller?", "film.film.directed_by", "日本 \ud800", ""]
    program = (
        "from pipeline.retrieval.lexical import LexicalEncoder; import sys;"
        f"sys.stdout.write(LexicalEncoder().vectors({texts!r}).tobytes().hex())"
    )
    other = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert other.stdout == LexicalEncoder().vectors(texts).tobytes().hex()


@pytest.mark.parametrize(
    ("question", "relation"),
    [
        ("who directed Titanic", "directed_by"),
        ("who is the director of Titanic", "directed_by"),
        ("what languages are the films of Joel Zwick in", "in_language"),
        ("when was Titanic released", "release_year"),
        ("who acted in the movie Titanic", "starred_actors"),
        ("who is the writer of Titanic", "written_by"),
        ("what is the genre of Titanic", "has_genre"),
    ],
)
def test_finds_the_relation_of_a_question(question: str, relation: str) -> None:
    similarities = LexicalEncoder().similarities(question, METAQA_RELATIONS)
    assert METAQA_RELATIONS[int(np.argmax(similarities))] == relation


def test_parts_of_words_count() -> None:
    film, river = LexicalEncoder().similarities("films", ["filmography", "river"])
    assert film > 0.2
    assert abs(river) < 0.1


def test_the_real_relations_nearest_to_a_question(shared_data: Path) -> None:
    with gzip.open(shared_data / "freebase-slice" / "relations.tsv.gz", "rt", encoding="utf-8") as file:
        relations = [line.split("\t")[0] for line in file][1:]
    similarities = LexicalEncoder().similarities("which films did Sharon Tate star in", relations)
    assert relations[int(np.argmax(similarities))] == "film.film.starring"


def test_words_are_separated_at_dots_underscores_and_camel_case() -> None:
    assert words("film.film.directed_by") == ["film", "film", "directed", "by"]
    assert words("PublishedIn") == ["published", "in"]


@pytest.mark.parametrize(
    "family",
    [
        ["direct", "directed", "director", "directors", "directing", "direction"],
        ["film", "films"],
        ["star", "stars", "starred", "starring"],
        ["country", "countries"],
        ["written", "writer", "writes"],
        ["language", "languages"],
    ],
)
def test_forms_of_a_word_have_the_same_stem(family: list[str]) -> None:
    assert len({stem(word) for word in family}) == 1


def test_short_words_are_not_stemmed() -> None:
    assert [stem(word) for word in ["red", "bus", "is", "king"]] == ["red", "bus", "is", "king"]


async def test_vectors_do_not_depend_on_the_number_of_texts() -> None:
    encoder = LexicalEncoder()
    texts = [f"relation number {number}" for number in range(1000)]
    assert isinstance(encoder, Encoder)
    assert np.array_equal(await encoder.encode(texts), encoder.vectors(texts))
