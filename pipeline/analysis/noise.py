"""A run's own noise floor: the same calls issued again, what comes out differently, and what that does to the score."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import polars as pl

from pipeline.analysis.pairs import RunPoint, difference, pair_scores
from pipeline.errors import UserError
from pipeline.evaluation.statistics import Difference, Values, noise_margin
from pipeline.traces.reader import read_completions


@dataclass(frozen=True, slots=True, eq=False)
class Noise:
    """What a second run of one point made of a sample of its questions."""

    differences: Values
    """Of the score, second - first, per question."""
    net: Difference
    """Their mean, with its interval."""
    repeated: int
    """Calls that both runs made: those of equal keys."""
    differing: int
    """Of those, how many were completed with another text."""
    unrepeated: int
    """Calls that one of the runs made alone, as what was said before them differed."""
    confidence: float

    @property
    def questions(self) -> int:
        """In the sample."""
        return len(self.differences)

    @property
    def absolute(self) -> float:
        """How far a question's score moves in the mean, up or down."""
        return float(np.abs(self.differences).mean())

    @property
    def none(self) -> bool:
        """Whether the second run was the first again, call by call: the model is deterministic."""
        return not (self.differing or self.unrepeated or self.differences.any())

    def margin(self, questions: int) -> float:
        """Largest difference that a second run over so many questions would show by chance alone."""
        return 0.0 if self.none else noise_margin(self.differences, questions, confidence=self.confidence)

    def to_dict(self) -> dict[str, Any]:
        """The figures, for scripts."""
        return {
            "questions": self.questions,
            "calls_repeated": self.repeated,
            "calls_differing": self.differing,
            "calls_unrepeated": self.unrepeated,
            "absolute": self.absolute,
            "net": self.net.mean,
            "interval": [self.net.low, self.net.high],
        }


def measure_noise(first: RunPoint, second: RunPoint, score: str) -> Noise:
    """Compare two runs of one configuration, the second of them over a sample of the questions.

    Raises UserError when the first has scored none of the sample.
    """
    pair = pair_scores(first.rows, second.rows, score)
    if pair.is_empty():
        raise UserError(f"{first.folder.path} has finished none of the first {second.rows.height} questions yet")
    settings = first.evaluation
    before, after = (pair[name].cast(pl.Float64).to_numpy() for name in ("base", "changed"))
    questions = pair["question_id"].to_list()
    made, again = (read_completions(point.folder, point.number, questions=questions) for point in (first, second))
    calls = made.join(again, on=("question_id", "key"), how="full", coalesce=True, suffix="_again")
    repeated = calls.drop_nulls()
    return Noise(
        differences=after - before,
        net=difference(pair, None, settings),
        repeated=repeated.height,
        differing=repeated.filter(pl.col("completion") != pl.col("completion_again")).height,
        unrepeated=calls.height - repeated.height,
        confidence=settings.confidence,
    )
