"""Recomputes scores from trace rows, without a model or a graph (specification §13.4)."""

from __future__ import annotations

from dataclasses import astuple, fields
from typing import Any

import polars as pl

from pipeline.evaluation.config import ScoringConfig
from pipeline.evaluation.metrics import score_question
from pipeline.types import Answer, Gold, GoldAnswer, Prediction, Scores, Triple

SCORES = tuple(score.name for score in fields(Scores))
"""The names of the score columns."""

INPUTS = (
    "dataset",
    "method",
    "status",
    "answers",
    "answer_ids",
    "initial_answers",
    "initial_answer_ids",
    "first_attempt",
    "raw_answer",
    "gold",
    "gold_ids",
    "gold_aliases",
    "evidence",
    "followed_relations",
    "gold_relations",
)
"""The trace columns that `rescore` reads."""


def rescore(frame: pl.DataFrame, *, scoring: ScoringConfig) -> pl.DataFrame:
    """Return the trace rows with every score column recomputed from the answers, gold and evidence columns."""
    rows = frame.select(INPUTS).iter_rows(named=True)
    scores = [astuple(_score(row, scoring)) for row in rows]
    schema = dict.fromkeys(SCORES, pl.Float32)
    return frame.with_columns(pl.DataFrame(scores, schema=schema, orient="row").get_columns())


def _score(row: dict[str, Any], scoring: ScoringConfig) -> Scores:
    return score_question(
        _answer(row),
        _gold(row),
        dataset=row["dataset"],
        method=row["method"],
        scoring=scoring,
        followed=row["followed_relations"],
        gold_relations=row["gold_relations"],
    )


def _answer(row: dict[str, Any]) -> Answer:
    facts, initial = row["evidence"] or (), row["initial_answers"]
    names = {fact[end]: fact[f"{end}_name"] for fact in facts for end in ("head", "tail")}
    return Answer(
        predictions=_predictions(row["answers"], row["answer_ids"]),
        raw=row["raw_answer"] or "",
        evidence=(tuple(Triple(fact["head"], fact["relation"], fact["tail"]) for fact in facts),),
        names=names,
        status=row["status"],
        initial=None if initial is None else _predictions(initial, row["initial_answer_ids"]),
        first_attempt=row["first_attempt"],
    )


def _predictions(texts: list[str], ids: list[str | None]) -> tuple[Prediction, ...]:
    return tuple(Prediction(text, id) for text, id in zip(texts, ids, strict=True))


def _gold(row: dict[str, Any]) -> Gold:
    answers = zip(row["gold"], row["gold_ids"], row["gold_aliases"], strict=True)
    return Gold(answers=tuple(GoldAnswer(name, id, tuple(aliases)) for name, id, aliases in answers))
