"""Compares ablations with their base on the same questions, and with the effects that the papers publish."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import groupby

import numpy as np
from rich.table import Table
from rich.text import Text

from pipeline.analysis.paired import difference, exact_p, pair_scores, question_clusters, read_rows
from pipeline.evaluation.config import ScoringConfig
from pipeline.evaluation.configuration_summary import ConfigurationSummary
from pipeline.evaluation.retrievers import retriever_lines
from pipeline.evaluation.score_tables import SCORE_HEADINGS, plain_table
from pipeline.evaluation.statistics import Difference
from pipeline.papers.ablations import Ablation
from pipeline.papers.published import Figure, published_figures
from pipeline.percentages import percentage
from pipeline.text import counted
from pipeline.traces.folder import RunFolder

STRICT = "hits_at_1"
"""The score that is compared for every ablation, in addition to the paper's own score."""
_HEADINGS = {**SCORE_HEADINGS, "supported_readi_hit": "hits in evidence (Readi)"}


@dataclass(frozen=True, slots=True)
class Effect:
    """The effect of an ablation on one score. Scores are means over questions in [0, 1]."""

    ablation: Ablation
    score: str
    questions: int
    """The questions that have the score in both: `answer_supported`, for example, only those with a correct answer."""
    base: float
    other: float
    difference: Difference
    """Other minus base, over the same questions, with an interval clustered by source."""
    exact_p: float | None
    """The p-value of McNemar's test, for a score of 0 and 1; None for any other, whose interval decides."""
    confidence: float
    """The coverage of the interval."""
    published: Sequence[float]
    """The same difference in percentage points, wherever the papers print it.

    If the dataset lacks the papers' score (such as ROUGE-L outside of GRBench), these are the differences in the
    papers' score, for comparison with the direction of our strict score.
    """

    @property
    def extremes(self) -> tuple[float, ...]:
        """The lowest and the highest published difference; empty without any."""
        return (min(self.published), max(self.published)) if self.published else ()

    @property
    def verdict(self) -> str:
        """Whether the difference is significant, and has the direction that the papers report."""
        if not self._is_significant:
            return "not significant"
        if not self.published:
            return "significant"
        signs = {np.sign(value) for value in self.published if value}
        if len(signs) > 1:
            return "both signs published"
        return "as published" if np.sign(self.difference.mean) in signs else "opposite sign"

    @property
    def _is_significant(self) -> bool:
        if self.exact_p is not None:
            return self.exact_p < 1 - self.confidence
        return bool(self.difference.mean) and not self.difference.low <= 0 <= self.difference.high


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
            effects.append(
                Effect(
                    ablation,
                    score,
                    questions=pair.height,
                    base=base,
                    other=other,
                    difference=difference(pair, clusters, scoring),
                    exact_p=exact_p(pair, clusters),
                    confidence=scoring.confidence,
                    published=known.get(score, published_other_scores),
                )
            )
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
    table = _empty_table(summaries, "#0 is configuration 0 of the run")
    table.add_column("ablation", overflow="fold", min_width=16)
    table.add_column("score", overflow="fold", min_width=9)
    for heading in ("with → without", "difference", "published"):
        table.add_column(heading, no_wrap=True)
    for ablation, rows in groupby(effects, key=lambda effect: effect.ablation):
        base, other = (summaries[numbers[preset]] for preset in (ablation.base, ablation.preset))
        below = f"\n#{base.number} → #{other.number}, calls: {_calls(base)} → {_calls(other)}"
        for index, effect in enumerate(rows):
            part = Text() if index else Text(ablation.part).append(below, "dim")
            table.add_row(part, *_cells(effect, summaries[0].questions))
        table.add_section()
    return table


def effect_columns(
    effects: Sequence[Effect], summaries: Sequence[ConfigurationSummary], numbers: Mapping[str, int]
) -> Table:
    """Build the table of `effect_table` with one value in each cell, for files."""
    table = _empty_table(summaries, "#: the numbers of the configurations in the run; calls per question")
    table.add_column("ablation")
    table.add_column("score")
    figures = ("questions", "# with", "# without", "with", "without", "difference", "published low", "published high")
    for heading in figures:
        table.add_column(heading, justify="right")
    table.add_column("verdict")
    for heading in ("calls with", "calls without"):
        table.add_column(heading, justify="right")
    for effect in effects:
        base, other = (summaries[numbers[preset]] for preset in (effect.ablation.base, effect.ablation.preset))
        table.add_row(
            effect.ablation.part,
            _heading(effect),
            f"{effect.questions:,}",
            *(str(each.number) for each in (base, other)),
            *(percentage(score) for score in (effect.base, effect.other)),
            f"{effect.difference.points} {effect.difference.interval_points}".rstrip(),
            *([f"{value:+.1f}" for value in effect.extremes] or ["–", "–"]),
            effect.verdict,
            *map(_calls, (base, other)),
        )
    return table


def _empty_table(summaries: Sequence[ConfigurationSummary], numbers: str) -> Table:
    """Return a table without columns, whose caption ends with what the numbers of configurations are."""
    first = summaries[0]
    label = f" ({first.label})" if first.label else ""
    title = f"Ablations of {first.method}{label} on {first.dataset}, {counted(first.questions, 'question')}"
    caption = (
        f"percent and percentage points, {100 * first.confidence:g} % paired bootstrap intervals; published: range "
        f"over the paper's datasets; verdict: by McNemar's exact test for scores of 0 and 1, else by the interval; "
        f"{numbers}"
    )
    return plain_table(title, "\n".join([caption, *retriever_lines(summaries)]))


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


def _cells(effect: Effect, asked: int) -> tuple[str | Text, ...]:
    published = " … ".join(dict.fromkeys(f"{value:+.1f}" for value in effect.extremes)) or "–"
    fewer = f"\n{counted(effect.questions, 'question')}" if effect.questions < asked else ""
    return (
        Text(_heading(effect)).append(fewer, "dim"),
        f"{percentage(effect.base)} → {percentage(effect.other)}",
        Text(effect.difference.points).append(f"\n{effect.difference.interval_points}", "dim"),
        Text(published).append(f"\n{effect.verdict}", "dim"),
    )


def _heading(effect: Effect) -> str:
    return _HEADINGS.get(effect.score, effect.score.removeprefix("compat_"))


def _calls(summary: ConfigurationSummary) -> str:
    """Return the calls of a question."""
    return f"{summary.counters['llm_calls'] / summary.questions:.1f}"
