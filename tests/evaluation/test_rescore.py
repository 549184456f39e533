"""Rescoring trace rows."""

from __future__ import annotations

import random
from dataclasses import astuple, replace
from pathlib import Path

import polars as pl
import pytest

from pipeline.config import default
from pipeline.datasets.query_shapes import gold_relations
from pipeline.evaluation.config import ScoringConfig
from pipeline.evaluation.metrics import score_question
from pipeline.evaluation.rescore import SCORES, rescore
from pipeline.traces.schema import Counters, TraceRow
from pipeline.traces.writer import write_shard
from pipeline.types import Answer, Example, Gold, GoldAnswer, LiteralNode, Prediction, Question, Scores, Triple
from tests.support import ORIGIN

SCORING = default(ScoringConfig)
NAMES = {"m.1": "Ann", "m.2": "Béa", "m.3": None, "m.4": "The Film"}


def row(number: int, dataset: str) -> TraceRow:
    draw = random.Random(f"{dataset}{number}")
    nodes = [*NAMES, LiteralNode("1998-02-07T00:00:00Z", "xsd:dateTime"), LiteralNode("5.0")]
    facts = [Triple(draw.choice(list(NAMES)), "a.b.c", draw.choice(nodes)) for _ in range(draw.randint(0, 4))]
    texts = ["Ann", "bea", "film", "5", "1998-02-07", "Nobody", "", "m.3"]
    predictions, initial = (
        tuple(Prediction(draw.choice(texts), draw.choice([None, *NAMES])) for _ in range(draw.randint(0, 3)))
        for _ in range(2)
    )
    golds = [("Ann", "m.1", ("Annie",)), ("Bea", None, ()), ("5", None, ()), ("1998-02-07", None, ()), ("X", "m.3", ())]
    answer = Answer(
        predictions,
        raw=draw.choice(["", "{Ann}", "It is {yes} {5}"]),
        evidence=tuple((fact,) for fact in facts),
        names=NAMES,
        status=draw.choice(["ok", "ok", "no_evidence", "failed"]),
        initial=draw.choice([None, initial]),
        first_attempt=draw.choice([None, "finished", "halted"]),
    )
    gold = Gold(answers=tuple(GoldAnswer(*gold) for gold in draw.sample(golds, draw.randint(0, 3))))
    patterns = " . ".join(f"?x ns:{name} ?y" for name in draw.sample(["a.b.c", "a.b.d", "type.object.type"], 2))
    query = f"PREFIX ns: <http://rdf.freebase.com/ns/> SELECT ?x WHERE {{ {patterns} }}"
    gold = replace(gold, sparql=draw.choice([None, query]))
    followed = draw.choice([None, [], ["a.b.c"]])
    example = Example(Question(f"q{number}", dataset, "test", "who?"), gold)
    return TraceRow(
        configuration=0,
        method="srp",
        example=example,
        answer=answer,
        scores=score_question(
            answer,
            gold,
            dataset=dataset,
            scoring=SCORING,
            followed=followed,
            gold_relations=gold_relations(gold.sparql),
        ),
        counters=Counters(),
        followed=followed,
    )


@pytest.fixture
def traces(tmp_path: Path) -> pl.DataFrame:
    rows = [row(number, dataset) for dataset in ("webqsp", "grbench") for number in range(400)]
    write_shard(tmp_path / "shard-00000.parquet", rows, ORIGIN)
    return pl.read_parquet(tmp_path / "shard-00000.parquet")


def test_rescoring_gives_the_same_scores_as_the_run(traces: pl.DataFrame) -> None:
    assert traces.select(SCORES).equals(rescore(traces, scoring=SCORING).select(SCORES), null_equal=True)
    assert [name for name in SCORES if traces[name].drop_nulls().n_unique() < 2] == []


def test_only_answers_gold_and_evidence_are_read(traces: pl.DataFrame) -> None:
    blank = traces.with_columns(pl.lit(None, pl.Float32).alias(name) for name in SCORES).drop(
        "steps", "meta", "question"
    )
    assert rescore(blank, scoring=SCORING).select(SCORES).equals(traces.select(SCORES), null_equal=True)


def test_another_configuration_gives_other_scores(traces: pl.DataFrame) -> None:
    strict = rescore(traces, scoring=default(ScoringConfig, empty_gold="strict_empty"))
    assert strict["hits_at_1"].null_count() == 0 < traces["hits_at_1"].null_count()


def test_an_empty_frame_keeps_its_columns(traces: pl.DataFrame) -> None:
    assert rescore(traces.clear(), scoring=SCORING).columns == traces.columns


def test_every_score_has_a_column() -> None:
    assert len(SCORES) == len(astuple(Scores()))
