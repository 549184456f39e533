"""Questions that are made from the facts of a graph."""

from __future__ import annotations

import pytest

from pipeline.training.made_questions import make_questions
from pipeline.types import Triple

FACTS = [
    Triple("Ada Orsa", "people.person.place_of_birth", "Lowmere"),
    Triple("Lowmere", "location.location.contained_by", "Vask County"),
    Triple("Ada Orsa", "people.person.spouse_s", "m.01x"),
    Triple("m.01x", "people.marriage.spouse", "Cy Thorn"),
    Triple("m.01x", "people.marriage.spouse", "Ada Orsa"),
]


def test_questions_name_relations_and_pass_unnamed_nodes() -> None:
    rows = list(make_questions(FACTS, 12, seed=0))
    found = {tuple(map(str, row["gold_relation_paths"][0])): (row["answers"], row["question"]) for row in rows}
    birth, county = "people.person.place_of_birth", "location.location.contained_by"
    married = ("people.person.spouse_s", "people.marriage.spouse")
    assert found[birth,][0] == ["Lowmere"]
    assert "place of birth" in found[birth,][1]
    assert found[birth, county][0] == ["Vask County"]
    assert "contained by of the place of birth" in found[birth, county][1]
    assert found[married][0] == ["Cy Thorn"]  # not the topic, and not the node of the marriage
    assert not any("m.01x" in row["question"] for row in rows)


def test_the_same_seed_makes_the_same_questions() -> None:
    assert list(make_questions(FACTS, 5, seed=3)) == list(make_questions(FACTS, 5, seed=3))
    assert len({row["question"] for row in make_questions(FACTS, 5, seed=3)}) == 5


@pytest.mark.exhaustive
def test_a_small_graph_gives_as_many_as_it_has() -> None:
    assert 0 < len(list(make_questions(FACTS, 10_000, seed=0))) < 100
