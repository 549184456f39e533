"""What the page says: every word, figure and chart of it, ready to be laid out."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from pipeline.analysis.report.charts import LineChart, Scatter
from pipeline.analysis.report.table import PointTable
from pipeline.analysis.report.words import Figure, Name


@dataclass(frozen=True, slots=True)
class Advice:
    """Which point to take, among those of one label."""

    label: str | None
    chosen: Name
    score: Figure
    best: Name
    best_score: Figure
    alone: bool
    """Whether the chosen point is the best one itself."""
    difference: Figure
    """Of the chosen one to the best."""
    costs: Sequence[tuple[str, str, str]]
    """What is counted; for the chosen one; for the best."""
    equals: int
    """Points that are not shown to be worse than the best."""
    among: int
    command: str


@dataclass(frozen=True, slots=True)
class OnFront:
    """A point of a front."""

    rank: int
    group: int
    name: Name
    score: Figure
    cost: str
    equals: int
    """Further points with the same score and cost."""


@dataclass(frozen=True, slots=True)
class Front:
    """The points that no other one beats in a score and a cost."""

    cost: str
    chart: Scatter
    points: Sequence[OnFront]


@dataclass(frozen=True, slots=True)
class CurveView:
    """A curve in words."""

    group: int
    dash: int
    name: str
    followers: Sequence[str]
    """Keys that change with the axis."""
    averaged: int
    """Settings of the other axes that each of its figures is the mean of."""
    figures: Sequence[Figure | None]
    """Parallel to the values of the axis."""


@dataclass(frozen=True, slots=True)
class Panel:
    """The curves at one setting of the other axes."""

    title: str
    chart: LineChart


@dataclass(frozen=True, slots=True)
class Axis:
    """How a score responds to one numeric key."""

    key: str
    values: Sequence[str]
    curves: Sequence[CurveView]
    chart: LineChart
    panels: Sequence[Panel]
    """Empty where there is nothing to average over."""


@dataclass(frozen=True, slots=True)
class ScoreView:
    """All that changes with the score that the reader chooses."""

    heading: str
    meaning: str
    name: str
    advice: Sequence[Advice]
    fronts: Sequence[Front]
    axes: Sequence[Axis]


@dataclass(frozen=True, slots=True)
class Kinds:
    """Scores by kind of question."""

    kinds: Sequence[tuple[str, str]]
    """Field and value."""
    points: Sequence[Sequence[Sequence[float | None] | None]]
    """By point and kind the questions, then mean, low and high in percent, of Hits@1 and of F1; None without any."""
    shown: int
    """The point that is shown first."""


@dataclass(frozen=True, slots=True)
class BlockView:
    """Points that were asked the same questions."""

    dataset: str
    facts: Sequence[tuple[str, Sequence[str]]]
    labels: Sequence[str]
    """What the numbers are, other than a language model's answers."""
    warnings: Sequence[str]
    shares_sources: bool
    """Whether questions that were built from one are drawn together where points are compared."""
    confidence: str
    legend: Sequence[tuple[Name, int]]
    """The methods as they are drawn and filtered, and how many points each has."""
    scores: Sequence[ScoreView]
    table: PointTable
    names: Sequence[Name]
    """Of the points, in the order of the table."""
    kinds: Kinds


@dataclass(frozen=True, slots=True)
class RunView:
    """Where the numbers of a run come from."""

    name: str
    facts: Sequence[tuple[str, str]]


@dataclass(frozen=True, slots=True)
class Page:
    """The whole report."""

    title: str
    blocks: Sequence[BlockView]
    runs: Sequence[RunView]
    meanings: Sequence[tuple[str, str]]
    """The scores that occur, and what they count."""

    @property
    def most_scores(self) -> int:
        """How many scores a block has to choose from at most."""
        return max(len(block.scores) for block in self.blocks)

    @property
    def most_methods(self) -> int:
        """How many methods a block has to choose from at most."""
        return max(len(block.legend) for block in self.blocks)
