"""A subsample is stratified, reproducible, and made of unchanged questions."""

from __future__ import annotations

from collections import Counter

from pipeline.config import default
from pipeline.datasets.subsample import Subsample
from pipeline.simulation.world import SyntheticWorld
from tests.support import refuse

WORLD = default(SyntheticWorld, triples=2000, questions=400)


def test_every_question_type_keeps_its_share() -> None:
    sample = list(Subsample(dataset=WORLD, questions=40, limit=None).examples(refuse))
    kinds = Counter(example.question.meta["type"] for example in WORLD.examples(refuse))
    shares = Counter(example.question.meta["type"] for example in sample)
    assert len(sample) == 40
    assert all(abs(shares[kind] - count / 10) <= 1 for kind, count in kinds.items())


def test_a_limit_restricts_the_draw_to_the_first_questions() -> None:
    whole = {example.question.id: example for example in WORLD.examples(refuse)}
    sample = list(Subsample(dataset=WORLD, questions=20, limit=50).examples(refuse))
    assert all(whole[example.question.id] == example for example in sample)
    assert {example.question.id for example in sample} <= set(list(whole)[:50])
    assert sample == list(Subsample(dataset=WORLD, questions=20, limit=50).examples(refuse))


def test_name_split_and_graph_are_those_of_the_dataset() -> None:
    subsample = Subsample(dataset=WORLD, questions=2, limit=None)
    assert (subsample.name, subsample.split) == ("synthetic", "test")
    assert next(subsample.triples()) == next(WORLD.triples())
