"""Measures how much calls and scores change when the same configuration is run again."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import polars as pl

from pipeline.analysis.paired import RunConfiguration, difference, pair_scores
from pipeline.errors import UserError
from pipeline.evaluation.statistics import Difference, Values, noise_margin
from pipeline.llm.interface import simulated
from pipeline.text import counted
from pipeline.traces.reader import read_completions


@dataclass(frozen=True, slots=True, eq=False)
class RerunVariance:
    """The differences between two runs of one configuration, over a sample of the questions."""

    differences: Values
    """The score in the second run minus the score in the first, of each question."""
    net: Difference
    """The mean of `differences`, with its interval."""
    repeated: int
    """Calls that both runs made, with equal keys."""
    differing: int
    """Repeated calls with a different completion."""
    unrepeated: int
    """Calls that only one run made, because earlier completions differ."""
    confidence: float
    asked: int
    """Number of questions in the second run."""
    simulated: bool
    """Whether a simulated model answered: one whose calls are equal is deterministic."""

    @property
    def questions(self) -> int:
        """Number of questions that both runs answered."""
        return len(self.differences)

    @property
    def absolute(self) -> float:
        """Mean absolute difference of a question's score."""
        return float(np.abs(self.differences).mean())

    @property
    def is_equal(self) -> bool:
        """Whether both runs made the same calls with the same completions."""
        return not (self.differing or self.unrepeated or self.differences.any())

    @property
    def deterministic(self) -> bool:
        """Whether nothing can differ. The equal replies of a language model do not prove it: they are a sample."""
        return self.simulated and self.is_equal

    def margin(self, questions: int) -> float:
        """Return the largest mean difference that a rerun over this many questions shows by chance."""
        return 0.0 if self.deterministic else noise_margin(self.differences, questions, confidence=self.confidence)

    def to_dict(self) -> dict[str, Any]:
        """Return the figures for JSON output."""
        return {
            "questions": self.questions,
            "asked_again": self.asked,
            "calls_repeated": self.repeated,
            "calls_differing": self.differing,
            "calls_unrepeated": self.unrepeated,
            "absolute": self.absolute,
            "net": self.net.mean,
            "interval": [self.net.low, self.net.high],
        }


def measure_rerun_variance(first: RunConfiguration, second: RunConfiguration, score: str) -> RerunVariance:
    """Compare two runs of one configuration; the second may cover a sample of the questions.

    Raises UserError if the first run has no score for any question of the sample.
    """
    pair = pair_scores(first.rows, second.rows, score)
    if pair.is_empty():
        way_out = (
            "run.early_stopping asked other questions first: set noise.questions higher"
            if first.config["run"].get("early_stopping")
            else "run its command again to complete it"
        )
        raise UserError(
            f"{first.name} has no answer to the {counted(second.rows.height, 'question')} that noise.questions asked "
            f"again: {way_out}"
        )
    scoring = first.scoring
    before, after = (pair[name].to_numpy() for name in ("base", "other"))
    questions = pair["question_id"].to_list()
    made, again = (read_completions(run.folder, run.number, questions=questions) for run in (first, second))
    calls = made.join(again, on=("question_id", "key"), how="full", coalesce=True, suffix="_again")
    repeated = calls.drop_nulls()
    return RerunVariance(
        differences=after - before,
        net=difference(pair, None, scoring),
        repeated=repeated.height,
        differing=repeated.filter(pl.col("completion") != pl.col("completion_again")).height,
        unrepeated=calls.height - repeated.height,
        confidence=scoring.confidence,
        asked=second.rows.height,
        simulated=simulated(first.label) is not None,
    )
