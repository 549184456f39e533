"""Votes, links to the graph, names of the evidence, and the status."""

from __future__ import annotations

import pytest

from pipeline.methods.answer_linking import entity_names, link, majority, search_status
from pipeline.methods.answering import Answers
from pipeline.types import Prediction, Status, Triple
from tests.methods.support import literal, question


def test_the_majority_is_more_than_half_of_the_samples_else_the_most_frequent() -> None:
    def texts(*samples: tuple[str, ...]) -> list[str]:
        return [prediction.text for prediction in majority([Answers(sample, "") for sample in samples])]

    assert texts(("a", "b"), ("b", "c"), ("B", "a"), ("b",)) == ["b"], "more than half"
    assert texts(("a",), ("b",), ("c", "b"), ("d",)) == ["b"], "else the most frequent"
    assert texts(("a", "A"), ("b",)) == ["a", "b"], "a sample has one vote for an answer"
    assert texts((), ()) == []
    assert texts(("x", "y")) == ["x", "y"]


def test_answers_are_linked_by_normal_form_when_it_is_unique() -> None:
    names = {"a": "Ann", "e.1": "The Hague", "e.2": "Ann", "e.3": None, "e.4": ""}
    nodes = ["a", "e.1", "e.1", "e.2", "e.3", "e.4", "e.5", literal("1999")]
    assert link(["hague", "ANN", "Rome", "1999", "the"], nodes, names) == (
        Prediction("hague", "e.1"),
        Prediction("ANN"),
        Prediction("Rome"),
        Prediction("1999"),
        Prediction("the"),
    )


def test_entity_names_are_sorted_by_id() -> None:
    evidence = ((Triple("b", "r", "a"), Triple("a", "s", literal("1"))), (Triple("b", "r", "m.1"),))
    names = entity_names(evidence, {"a": "Ann", "b": "Bob", "m.1": None, "z": "Zoe"})
    assert list(names.items()) == [("a", "Ann"), ("b", "Bob"), ("m.1", None)]
    assert entity_names(evidence, {}) == {"a": None, "b": None, "m.1": None}


@pytest.mark.parametrize(
    ("topics", "found", "exhausted", "status"),
    [
        (["a"], True, False, "ok"),
        (["a"], False, False, "no_evidence"),
        (["a"], True, True, "budget_exhausted"),
        (["a"], False, True, "budget_exhausted"),
        ([], False, True, "no_topic_entity"),
    ],
)
def test_the_status_of_a_search(topics: list[str], found: bool, exhausted: bool, status: Status) -> None:
    evidence = [(Triple("a", "r", "b"),)] if found else []
    assert search_status(question("?", *topics), evidence, exhausted=exhausted) == status
