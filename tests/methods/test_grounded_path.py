"""Grounded paths."""

from __future__ import annotations

import pytest

from pipeline.methods.grounded_path import GroundedPath, within
from pipeline.types import Relation, Triple
from tests.methods.support import chain, literal

WALK = GroundedPath("a").then(Relation("r", "out"), "b").then(Relation("s", "in"), "c")


def test_facts_are_in_the_order_of_the_walk_with_the_graphs_subject_and_object() -> None:
    assert WALK.triples == (Triple("a", "r", "b"), Triple("c", "s", "b"))
    assert (WALK.nodes, WALK.path, WALK.length) == (("a", "b", "c"), ("r", "s"), 2)
    assert (WALK.first(1).end, WALK.first(0).end, WALK.first(9)) == ("b", "a", WALK)


def test_only_a_path_that_ends_in_an_entity_can_be_extended() -> None:
    assert (WALK.entity, GroundedPath("a").entity) == ("c", "a")
    with pytest.raises(AssertionError, match="literal"):
        _ = chain("a", "r", literal("1999")).entity


def test_within_stops_at_the_first_path_that_exceeds_the_number_of_facts() -> None:
    one, two, other = chain("a", "r", "b"), chain("a", "r", "b", "s", "c"), chain("x", "r", "y")
    assert within([one, two, other], 4) == (one, two, other)
    assert within([one, two, other], 3) == (one, two)
    assert within([one, two, other], 2) == (one,), "a short path after a long one is not taken"
    assert within([one], 0) == ()
