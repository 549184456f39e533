"""What each part of a method is worth: presets against their base on the same questions, beside what is published."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from rich.table import Table
from rich.text import Text

from pipeline.analysis.pairs import difference, pair_scores, read_points, sources_of
from pipeline.evaluation.ablations import Ablation, published_effects
from pipeline.evaluation.settings import Evaluation
from pipeline.evaluation.statistics import Difference
from pipeline.evaluation.summary import PointSummary
from pipeline.evaluation.table import plain_table
from pipeline.traces.folder import RunFolder

STRICT = "hits_at_1"
"""Compared in every row, beside the score that counts as the paper does."""


@dataclass(frozen=True, slots=True)
class Effect:
    """What an ablation does to one score. Scores are means over questions in [0, 1]."""

    ablation: Ablation
    score: str
    base: float
    changed: float
    difference: Difference
    """Of changed - base, over the same questions; its interval heeds those that share a source."""
    published: Sequence[float]
    """The same difference wherever the papers print one, in percentage points.

    Where a dataset does not have the score that the papers count, as ROUGE-L outside GRBench, the direction of theirs
    is held against our strict score.
    """

    @property
    def verdict(self) -> str:
        """How the difference compares with the direction that the papers report."""
        shown = 0 if self.difference.low <= 0 <= self.difference.high else np.sign(self.difference.mean)
        if not shown:
            return "none shown"
        if not self.published:
            return "shown"
        signs = {np.sign(value) for value in self.published if value}
        if len(signs) > 1:
            return "published both ways"
        return "as published" if shown in signs else "the other way"


def effects(
    folder: RunFolder, points: Mapping[str, int], ablations: Sequence[Ablation], settings: Evaluation
) -> list[Effect]:
    """Compare the presets of a finished run with their bases; `points` says which point of it is which preset."""
    published = {ablation: published_effects(ablation) for ablation in ablations}
    scores = read_points(folder, sorted({STRICT}.union(*published.values())))
    sources = sources_of(read_points(folder, ["meta"])[points[ablations[0].base]])
    found: list[Effect] = []
    for ablation in ablations:
        known = published[ablation]
        pairs = {
            score: pair_scores(scores[points[ablation.base]], scores[points[ablation.preset]], score)
            for score in [*known, STRICT]
        }
        there = {score: pair for score, pair in pairs.items() if pair.height}
        for score, pair in there.items():
            lacking = [value for name, values in known.items() if name not in there for value in values]
            base, changed = (float(pair[name].to_numpy().mean()) for name in ("base", "changed"))
            change = difference(pair, sources, settings)
            found.append(Effect(ablation, score, base, changed, change, known.get(score, lacking)))
    return found


def effect_table(found: Sequence[Effect], summaries: Sequence[PointSummary], points: Mapping[str, int]) -> Table:
    """A row per ablation and score: what the base has, what is left, the difference, the published one."""
    first = summaries[0]
    label = f" ({first.label})" if first.label else ""
    title = f"{first.method}{label} without its parts, on {first.dataset}, {first.questions:,} questions"
    caption = f"percent and points, {first.confidence:.0%} paired bootstrap intervals; published: across its datasets"
    table = plain_table(title, caption)
    table.add_column("ablation", overflow="fold", min_width=16)
    for heading in ("score", "with → without", "difference"):
        table.add_column(heading, no_wrap=True)
    table.add_column("published", overflow="fold")
    calls = {summary.point: summary.counters["llm_calls"] / summary.questions for summary in summaries}
    for ablation, rows in _by_ablation(found):
        costs = f"\n{calls[points[ablation.base]]:.1f} → {calls[points[ablation.preset]]:.1f} calls"
        for place, effect in enumerate(rows):
            part = Text() if place else Text(ablation.part).append(costs, "dim")
            table.add_row(part, *_cells(effect))
        table.add_section()
    return table


def _by_ablation(found: Sequence[Effect]) -> Iterator[tuple[Ablation, list[Effect]]]:
    for ablation in dict.fromkeys(effect.ablation for effect in found):
        yield ablation, [effect for effect in found if effect.ablation == ablation]


def _cells(effect: Effect) -> tuple[str | Text, ...]:
    change = effect.difference
    interval = f"\n{100 * change.low:+.1f} … {100 * change.high:+.1f}"
    extremes = (min(effect.published), max(effect.published)) if effect.published else ()
    published = " … ".join(dict.fromkeys(f"{value:+.1f}" for value in extremes)) or "–"
    return (
        effect.score.removeprefix("compat_"),
        f"{100 * effect.base:.1f} → {100 * effect.changed:.1f}",
        Text(f"{100 * change.mean:+.1f}").append(interval, "dim"),
        Text(published).append(f"\n{effect.verdict}", "dim"),
    )
