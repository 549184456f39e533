"""A walk in the graph."""

from __future__ import annotations

import pytest

from pipeline.methods.instance import Instance, within
from pipeline.types import Relation, Triple
from tests.methods.support import chain, literal

WALK = Instance("a").then(Relation("r", "out"), "b").then(Relation("s", "in"), "c")


def test_facts_are_in_the_order_of_the_walk_and_each_as_the_graph_has_it() -> None:
    assert WALK.triples == (Triple("a", "r", "b"), Triple("c", "s", "b"))
    assert (WALK.nodes, WALK.path, WALK.length) == (("a", "b", "c"), ("r", "s"), 2)
    assert (WALK.first(1).end, WALK.first(0).end, WALK.first(9)) == ("b", "a", WALK)


def test_a_walk_goes_on_from_an_entity_alone() -> None:
    assert (WALK.entity, Instance("a").entity) == ("c", "a")
    with pytest.raises(AssertionError, match="literal"):
        _ = chain("a", "r", literal("1999")).entity


def test_instances_are_taken_until_the_next_would_pass_the_number_of_facts() -> None:
    one, two, other = chain("a", "r", "b"), chain("a", "r", "b", "s", "c"), chain("x", "r", "y")
    assert within([one, two, other], 4) == (one, two, other)
    assert within([one, two, other], 3) == (one, two)
    assert within([one, two, other], 2) == (one,), "a short one behind a long one is not let in"
    assert within([one], 0) == ()
