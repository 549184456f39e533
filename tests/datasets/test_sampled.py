"""A sample is fair, the same every time, and made of the very questions."""

from __future__ import annotations

from collections import Counter

from pipeline.datasets.sample import SampleWorld
from pipeline.datasets.sampled import Sampled
from tests.support import refuse

WORLD = SampleWorld(triples=2000, questions=400)


def test_every_kind_has_its_share() -> None:
    sample = list(Sampled(dataset=WORLD, questions=40, limit=None).examples(refuse))
    kinds = Counter(example.question.meta["type"] for example in WORLD.examples(refuse))
    shares = Counter(example.question.meta["type"] for example in sample)
    assert len(sample) == 40
    assert all(abs(shares[kind] - count / 10) <= 1 for kind, count in kinds.items())


def test_it_is_drawn_from_the_first_questions_only() -> None:
    whole = {example.question.id: example for example in WORLD.examples(refuse)}
    sample = list(Sampled(dataset=WORLD, questions=20, limit=50).examples(refuse))
    assert all(whole[example.question.id] == example for example in sample)
    assert {example.question.id for example in sample} <= set(list(whole)[:50])
    assert sample == list(Sampled(dataset=WORLD, questions=20, limit=50).examples(refuse))


def test_the_graph_and_the_name_are_its_own() -> None:
    sampled = Sampled(dataset=WORLD, questions=2, limit=None)
    assert (sampled.name, sampled.split) == ("sample", "test")
    assert next(sampled.triples()) == next(WORLD.triples())
