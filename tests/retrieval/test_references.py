"""The reference base: masking, clusters and their shares, protection against leakage, files, and nearest neighbours."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import orjson
import pytest
from hypothesis import given
from hypothesis import strategies as st

from pipeline.errors import UserError
from pipeline.retrieval.interface import Reference
from pipeline.retrieval.lexical import LexicalEncoder
from pipeline.retrieval.reference_builder import draw, group_similar
from pipeline.retrieval.references import ReferenceBase, mask
from pipeline.types import Entity, Question


def reference(text: str, topic: str = "Titanic") -> Reference:
    return Reference(
        question=text,
        masked_question=mask(text, [Entity("m.1", topic)]),
        paths={topic: f"{topic} -> film.film.directed_by"},
        answers=("James Cameron",),
        topic_entities={"m.1": topic},
    )


def question(text: str, topic: str = "Titanic", id: str = "1") -> Question:
    return Question(id=id, dataset="test", split="test", text=text, topic_entities=(Entity("m.1", topic),))


REFERENCES = [
    reference("who directed Titanic"),
    reference("when was Titanic released"),
    reference("who starred in Titanic"),
    reference("which languages are spoken in Titanic"),
    reference("what is the genre of Titanic"),
]


@pytest.mark.parametrize(
    ("text", "names", "masked"),
    [
        ("what county is st. louis park in?", ["St. Louis Park"], "what county is * in?"),
        ("is new york city in new york?", ["New York", "New York City"], "is * in *?"),
        ("who is jamaica to jamaican people", ["Jamaica"], "who is * to jamaican people"),
        ("c++ or C++?", ["C++"], "* or *?"),
        ("who wrote (a b)?", ["(a b)", ""], "who wrote *?"),
        ("nothing to mask", ["x.*"], "nothing to mask"),
    ],
)
def test_mask_replaces_the_names_of_topic_entities(text: str, names: list[str], masked: str) -> None:
    assert mask(text, [Entity(name, name) for name in names]) == masked


async def test_nearest_ignores_the_topic_on_both_sides_by_choice() -> None:
    base = ReferenceBase(REFERENCES)
    asked = question("who directed The Languages", "The Languages")
    found = await base.nearest(asked, 2, LexicalEncoder(), masked=True)
    assert found[0] == REFERENCES[0]
    assert len(found) == 2


@pytest.mark.parametrize("masked", [False, True])
async def test_nearest_is_the_order_of_euclidean_distance(masked: bool) -> None:
    encoder = LexicalEncoder()
    asked = question("which genre and language does Titanic have, and who directed Titanic", "Titanic")
    [query] = encoder.vectors([mask(asked.text, asked.topic_entities) if masked else asked.text])
    texts = [known.masked_question if masked else known.question for known in REFERENCES]
    distances = np.linalg.norm(encoder.vectors(texts) - query, axis=1)
    expected = [REFERENCES[position] for position in np.argsort(distances, kind="stable")]
    assert await ReferenceBase(REFERENCES).nearest(asked, 10, encoder, masked=masked) == expected


async def test_stored_vectors_of_masked_questions_are_not_used_for_the_questions(tmp_path: Path) -> None:
    encoder = LexicalEncoder()
    unnamed = Reference("who wrote it", "who wrote it", {}, ())
    base = ReferenceBase([unnamed, *REFERENCES[:1], unnamed, unnamed])
    await base.vectors(encoder, masked=True)
    base.save(tmp_path / "base.jsonl")
    read = ReferenceBase.load(tmp_path / "base.jsonl")
    expected = encoder.vectors([known.question for known in base.references])
    assert np.allclose(await read.vectors(encoder, masked=False), expected)


async def test_a_question_is_never_its_own_reference() -> None:
    base = ReferenceBase(REFERENCES)
    asked = question("Who directed the Titanic?")
    assert REFERENCES[0] not in await base.nearest(asked, 5, LexicalEncoder())
    assert REFERENCES[0] not in base.sample(asked, 5)
    assert len(base.sample(asked, 5)) == 4


def test_random_references_depend_on_the_question_alone() -> None:
    base = ReferenceBase(REFERENCES)
    draws = [tuple(known.question for known in base.sample(question("x", id=str(id)), 2)) for id in range(20)]
    assert draws == [tuple(known.question for known in base.sample(question("x", id=str(id)), 2)) for id in range(20)]
    assert len(set(draws)) > 5


async def test_an_empty_base_returns_no_references() -> None:
    base = ReferenceBase([])
    await base.vectors(LexicalEncoder(), masked=False)
    assert await base.nearest(question("x"), 4, LexicalEncoder()) == []
    assert base.sample(question("x"), 4) == []


async def test_a_base_is_read_back_unchanged(tmp_path: Path) -> None:
    base = ReferenceBase(REFERENCES)
    await base.vectors(LexicalEncoder(), masked=False)
    base.save(tmp_path / "references" / "films.jsonl")
    assert sorted(file.name for file in (tmp_path / "references").iterdir()) == ["films.jsonl", "films.npy"]

    read = ReferenceBase.load(tmp_path / "references" / "films.jsonl")
    assert read.references == base.references
    asked = question("who is the director of Titanic")
    assert await read.nearest(asked, 5, LexicalEncoder()) == await base.nearest(asked, 5, LexicalEncoder())


async def test_vectors_of_other_references_or_of_another_encoder_are_not_used(tmp_path: Path) -> None:
    file = tmp_path / "films.jsonl"
    base = ReferenceBase(REFERENCES)
    await base.vectors(LexicalEncoder(), masked=False)
    base.save(file)
    asked = question("who is the director of Titanic")
    expected = await base.nearest(asked, 5, LexicalEncoder())

    other = np.roll(np.load(file.with_suffix(".npy")), 1, axis=0)
    for vectors in (other, other[:, :100], other[:2]):
        np.save(file.with_suffix(".npy"), vectors)
        assert await ReferenceBase.load(file).nearest(asked, 5, LexicalEncoder()) == expected
    file.with_suffix(".npy").unlink()
    assert await ReferenceBase.load(file).nearest(asked, 5, LexicalEncoder()) == expected


def test_an_invalid_file_is_reported_with_its_line(tmp_path: Path) -> None:
    with pytest.raises(UserError, match=r"no reference base at .*none\.jsonl.*kgqa build-references"):
        ReferenceBase.load(tmp_path / "none.jsonl")
    file = tmp_path / "films.jsonl"
    broken = {**orjson.loads(orjson.dumps(REFERENCES[1])), "answers": "Cameron"}
    file.write_bytes(orjson.dumps(REFERENCES[0]) + b"\n" + orjson.dumps(broken) + b"\n")
    with pytest.raises(UserError, match=r"films\.jsonl line 2 is not a reference \(answers: "):
        ReferenceBase.load(file)


def test_clusters_are_seeded_and_the_largest_comes_first() -> None:
    random = np.random.default_rng(0)
    centres = np.eye(3, 8, dtype=np.float32)
    gold_context = [0] * 30 + [1] * 10 + [2] * 20
    vectors = centres[gold_context] + random.normal(0, 0.01, (60, 8)).astype(np.float32)
    groups = group_similar(vectors, 3, seed=1)
    assert groups == [list(range(30)), list(range(40, 60)), list(range(30, 40))]
    assert group_similar(vectors, 20, seed=1) == group_similar(vectors, 20, seed=1)


def test_equal_questions_make_fewer_clusters_than_asked_for() -> None:
    vectors = np.array([[1, 0], [1, 0], [0, 1], [1, 0]], dtype=np.float32)
    assert group_similar(vectors, 50, seed=0) == [[0, 1, 3], [2]]
    assert group_similar(np.empty((0, 0), np.float32), 50, seed=0) == []


async def _solve_all_but(unsolvable: set[int], position: int) -> Reference | None:
    return None if position in unsolvable else reference(str(position))


async def test_a_small_clusters_share_goes_to_the_largest_clusters() -> None:
    groups = [list(range(10)), list(range(10, 15)), [15], [16]]
    drawn = await draw(groups, 2, total=8, seed=0, solve=lambda position: _solve_all_but(set(), position))
    counts = [sum(int(known.question) in group for known in drawn) for group in groups]
    assert counts == [3, 3, 1, 1]


async def test_unsolvable_members_are_replaced_by_others_of_their_cluster() -> None:
    groups = [list(range(10)), list(range(10, 20))]
    unsolvable = set(range(8)) | {10}
    drawn = await draw(groups, 2, total=4, seed=0, solve=lambda position: _solve_all_but(unsolvable, position))
    positions = [int(known.question) for known in drawn]
    assert sorted(positions[:2]) == [8, 9]
    assert all(10 < position < 20 for position in positions[2:])


@given(st.lists(st.integers(1, 12), min_size=1, max_size=8), st.integers(1, 4), st.sets(st.integers(0, 95)))
async def test_the_base_is_full_if_enough_questions_can_be_solved(
    sizes: list[int], per_cluster: int, unsolvable: set[int]
) -> None:
    starts = np.cumsum([0, *sizes])
    groups = [list(range(start, start + size)) for start, size in zip(starts.tolist(), sizes, strict=False)]
    total = per_cluster * len(groups)
    solvable = [position for group in groups for position in group if position not in unsolvable]
    drawn = await draw(groups, per_cluster, total=total, seed=3, solve=lambda at: _solve_all_but(unsolvable, at))
    positions = [int(known.question) for known in drawn]
    assert len(positions) == len(set(positions)) == min(total, len(solvable))
    for group in groups:
        assert len(set(group) & set(positions)) >= min(per_cluster, len(set(group) & set(solvable)))
