"""Compares ablations with their base on the same questions, and with the effects that the papers publish."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import groupby

import numpy as np
from rich.table import Table
from rich.text import Text

from pipeline.analysis.paired import difference, pair_scores, question_clusters, read_rows
from pipeline.evaluation.config import ScoringConfig
from pipeline.evaluation.configuration_summary import ConfigurationSummary
from pipeline.evaluation.retrievers import retriever_lines
from pipeline.evaluation.score_tables import SCORE_HEADINGS, plain_table
from pipeline.evaluation.statistics import Difference
from pipeline.papers.ablations import Ablation
from pipeline.papers.published import Figure, published_figures
from pipeline.text import counted
from pipeline.traces.folder import RunFolder

STRICT = "hits_at_1"
"""The score that is compared for every ablation, in addition to the paper's own score."""


@dataclass(frozen=True, slots=True)
class Effect:
    """The effect of an ablation on one score. Scores are means over questions in [0, 1]."""

    ablation: Ablation
    score: str
    base: float
    other: float
    difference: Difference
    """Other minus base, over the same questions, with an interval clustered by source."""
    published: Sequence[float]
    """The same difference in percentage points, wherever the papers print it.

    If the dataset lacks the papers' score (such as ROUGE-L outside of GRBench), these are the differences in the
    papers' score, for comparison with the direction of our strict score.
    """

    @property
    def verdict(self) -> str:
        """Whether the difference is significant, and has the direction that the papers report."""
        if self.difference.low <= 0 <= self.difference.high or not self.difference.mean:
            return "not significant"
        if not self.published:
            return "significant"
        signs = {np.sign(value) for value in self.published if value}
        if len(signs) > 1:
            return "both signs published"
        return "as published" if np.sign(self.difference.mean) in signs else "opposite sign"


def measured_effects(
    folder: RunFolder, numbers: Mapping[str, int], ablations: Sequence[Ablation], scoring: ScoringConfig
) -> list[Effect]:
    """Compare presets with their bases in a finished run. `numbers` maps each preset to its configuration number."""
    published = {ablation: published_effects(ablation) for ablation in ablations}
    scores = read_rows(folder, sorted({STRICT}.union(*published.values())))
    clusters = question_clusters(read_rows(folder, ["meta"])[numbers[ablations[0].base]])
    effects: list[Effect] = []
    for ablation in ablations:
        known = published[ablation]
        pairs = {
            score: pair_scores(scores[numbers[ablation.base]], scores[numbers[ablation.preset]], score)
            for score in [*known, STRICT]
        }
        present = {score: pair for score, pair in pairs.items() if pair.height}
        for score, pair in present.items():
            published_other_scores = [
                value for name, values in known.items() if name not in present for value in values
            ]
            base, other = (float(pair[name].to_numpy().mean()) for name in ("base", "other"))
            change = difference(pair, clusters, scoring)
            effects.append(Effect(ablation, score, base, other, change, known.get(score, published_other_scores)))
    return effects


def published_effects(ablation: Ablation) -> dict[str, list[float]]:
    """Return the published differences between a preset and its base, by our equivalent score.

    They are in percentage points, one for each table, model, dataset and subset with both numbers.
    """
    effects: dict[str, list[float]] = {}
    for figure in published_figures():
        if figure.preset == ablation.preset and figure.score is not None:
            differences = effects.setdefault(figure.score, [])
            differences += [figure.value - base.value for base in _figures_of_base(figure, ablation.base)[:1]]
    return {score: differences for score, differences in effects.items() if differences}


def effect_table(
    effects: Sequence[Effect], summaries: Sequence[ConfigurationSummary], numbers: Mapping[str, int]
) -> Table:
    """Build a table with a row per ablation and score: score of base and ablation, difference, published difference."""
    first = summaries[0]
    label = f" ({first.label})" if first.label else ""
    title = f"Ablations of {first.method}{label} on {first.dataset}, {counted(first.questions, 'question')}"
    caption = (
        f"percent and percentage points, {first.confidence:.0%} paired bootstrap intervals; published: range over the "
        "paper's datasets"
    )
    table = plain_table(title, "\n".join([caption, *retriever_lines(summaries)]))
    table.add_column("ablation", overflow="fold", min_width=16)
    table.add_column("score", overflow="fold", min_width=9)
    for heading in ("with → without", "difference", "published"):
        table.add_column(heading, no_wrap=True)
    calls = {summary.number: summary.counters["llm_calls"] / summary.questions for summary in summaries}
    for ablation, rows in groupby(effects, key=lambda effect: effect.ablation):
        costs = f"\n{calls[numbers[ablation.base]]:.1f} → {calls[numbers[ablation.preset]]:.1f} calls"
        for index, effect in enumerate(rows):
            part = Text() if index else Text(ablation.part).append(costs, "dim")
            table.add_row(part, *_cells(effect))
        table.add_section()
    return table


def _figures_of_base(figure: Figure, preset: str) -> list[Figure]:
    """Return the preset's figures in the same column, for the same model if the paper names it."""
    return [
        other
        for other in published_figures()
        if (other.preset, other.score) == (preset, figure.score)
        and (other.paper, other.table) == (figure.paper, figure.table)
        and (other.dataset, other.subset) == (figure.dataset, figure.subset)
        and figure.model in {None, other.model}
    ]


def _cells(effect: Effect) -> tuple[str | Text, ...]:
    change = effect.difference
    interval = f"\n{100 * change.low:+.1f} … {100 * change.high:+.1f}"
    extremes = (min(effect.published), max(effect.published)) if effect.published else ()
    published = " … ".join(dict.fromkeys(f"{value:+.1f}" for value in extremes)) or "–"
    return (
        SCORE_HEADINGS.get(effect.score, effect.score.removeprefix("compat_")),
        f"{100 * effect.base:.1f} → {100 * effect.other:.1f}",
        Text(f"{100 * change.mean:+.1f}").append(interval, "dim"),
        Text(published).append(f"\n{effect.verdict}", "dim"),
    )
