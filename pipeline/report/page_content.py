"""The types of the content of the page: all texts, figures and charts, ready for the template."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from pipeline.report.bars import BarChart
from pipeline.report.charts import LineChart, Scatter
from pipeline.report.configuration_table import ConfigurationTable
from pipeline.report.examples import Example
from pipeline.report.labels import Figure, Name
from pipeline.report.papers import PaperTable


@dataclass(frozen=True, slots=True)
class RecommendationView:
    """The recommended configuration among those with one label, compared with the best one."""

    label: str | None
    recommended: Name
    score: Figure
    best: Name
    best_score: Figure
    is_best: bool
    """Whether the recommended configuration is the best one."""
    heading: str
    """What the recommended configuration is: `recommended`, `best` or both, `so far` if a run is not complete."""
    objection: str | None
    """Why no configuration can be recommended; the best one is shown then."""
    difference: Figure
    """Score of the recommended configuration minus score of the best one."""
    costs: Sequence[tuple[str, str, str]]
    """Name of the cost, value for the recommended configuration, value for the best one."""
    not_worse: int
    """Number of configurations that are worse than the best by less than the margin."""
    candidates: int
    command: str
    """Runs the recommended configuration alone."""
    asks: str
    """Which questions the command asks."""


@dataclass(frozen=True, slots=True)
class FrontEntry:
    """A configuration on the Pareto front."""

    rank: int
    group: int
    name: Name
    score: Figure
    cost: str
    equals: int
    """Number of other configurations with the same score and cost."""


@dataclass(frozen=True, slots=True)
class FrontView:
    """A score against a cost, with the Pareto front."""

    cost: str
    chart: Scatter
    entries: Sequence[FrontEntry]


@dataclass(frozen=True, slots=True)
class CurveView:
    """A response curve with its figures."""

    group: int
    dash: int
    is_mean: bool
    """Whether it is a marginal curve."""
    name: str
    kind: str
    """`best`, or `marginal` with the number of combinations of other parameters; empty if there is one combination."""
    followers: Sequence[str]
    """Keys that change with the axis."""
    figures: Sequence[Figure | None]
    """Parallel to the values of the axis."""


@dataclass(frozen=True, slots=True)
class Panel:
    """The curves for one combination of the other parameters."""

    title: str
    chart: LineChart


@dataclass(frozen=True, slots=True)
class AxisView:
    """The response of a score to one numeric parameter."""

    key: str
    values: Sequence[str]
    curves: Sequence[CurveView]
    chart: LineChart
    panels: Sequence[Panel]
    """Empty if no curve is an average."""


@dataclass(frozen=True, slots=True)
class ScoreView:
    """The parts of the page that depend on the selected score."""

    heading: str
    definition: str
    name: str
    recommendations: Sequence[RecommendationView]
    fronts: Sequence[FrontView]
    axes: Sequence[AxisView]


@dataclass(frozen=True, slots=True)
class Breakdown:
    """Scores by kind of question."""

    kinds: Sequence[tuple[str, str]]
    """Field and value."""
    figures: Sequence[Sequence[Sequence[float | None] | None]]
    """By configuration and kind: the number of questions, then mean, low and high in percent, of Hits@1 and of F1; None
    if the configuration has no such question."""
    shown: int
    """The configuration that is shown first."""


@dataclass(frozen=True, slots=True)
class KeyView:
    """A key of the configurations."""

    name: str
    values: Sequence[str]
    """Its different values in the configurations."""
    defaults: Sequence[str]
    """The defaults with the same choices of configuration groups; empty if every value is the default."""


@dataclass(frozen=True, slots=True)
class BlockView:
    """Configurations with the same questions."""

    dataset: str
    facts: Sequence[tuple[str, Sequence[str]]]
    label_rivals: str
    """With which others a configuration of a Pareto front is compared; empty if it is with all."""
    without_tokens: bool
    """Whether the servers reported no tokens, so that costs are compared by calls alone."""
    oracles_left_out: Sequence[str]
    """Sentences about configurations that are on no front because their score is that of an oracle."""
    simulators: Sequence[str]
    """Labels of simulated models that answered instead of a language model."""
    gold_notes: Sequence[str]
    """What it means that one of them replies from the gold answers; empty if none does."""
    warnings: Sequence[str]
    shares_sources: bool
    """Whether comparisons draw questions with the same source together."""
    confidence: str
    legend: Sequence[tuple[Name, int]]
    """The methods in charts and filters, with their numbers of configurations."""
    scores: Sequence[ScoreView]
    without_seconds: int
    """Number of configurations whose seconds would mean something, and are not known."""
    has_seconds: bool
    """Whether seconds are shown."""
    table: ConfigurationTable
    keys: Sequence[KeyView]
    """The keys of the configurations, those that differ from their defaults first."""
    has_defaults: bool
    """Whether all defaults are known; not if a choice of a configuration group is not found on this machine."""
    names: Sequence[Name]
    """The names of the configurations, in the order of the table."""
    breakdown: Breakdown
    filters: Sequence[tuple[str, Sequence[str]]]
    """The parameters by which configurations can be selected, with their values."""
    losses: BarChart | None
    """The stages at which wrong questions lost their answers."""
    reflection: BarChart | None
    roles: Sequence[BarChart]
    """Cost by role, one chart per method."""
    latency: BarChart | None
    papers: Sequence[PaperTable]
    examples: Sequence[Example]
    methods_without_examples: int


@dataclass(frozen=True, slots=True)
class RunView:
    """The properties of a run."""

    name: str
    facts: Sequence[tuple[str, str]]
    digest: str
    """The digest of its shards."""


@dataclass(frozen=True, slots=True)
class Page:
    """The whole report."""

    title: str
    blocks: Sequence[BlockView]
    runs: Sequence[RunView]
    definitions: Sequence[tuple[str, str]]
    """Names and definitions of the scores on the page."""

    @property
    def most_scores(self) -> int:
        """The largest number of selectable scores in a block."""
        return max(len(block.scores) for block in self.blocks)

    @property
    def filter_values(self) -> list[str]:
        """The numbers of all values of filters in a block."""
        counts = [[len(values) for _, values in block.filters] for block in self.blocks]
        return sorted({f"{key}-{value}" for of_block in counts for key, n in enumerate(of_block) for value in range(n)})

    @property
    def most_columns(self) -> int:
        """The largest number of columns of a block's table."""
        return max(len(block.table.columns) for block in self.blocks)

    @property
    def most_methods(self) -> int:
        """The largest number of selectable methods in a block."""
        return max(len(block.legend) for block in self.blocks)
