"""Builds the charts with one bar per configuration: stages of loss, cost by role, seconds, effects of reflection.

Their colours are in `page.css`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import groupby

from pipeline.analysis.losses import STAGE_TEXTS, STAGES
from pipeline.evaluation.configuration_summary import SECONDS, ConfigurationSummary
from pipeline.evaluation.statistics import Estimate, wilson
from pipeline.percentages import one_decimal
from pipeline.report.data import Block, Configuration
from pipeline.report.details import RoleCost
from pipeline.report.labels import ABSENT, BlockLabels, Figure, Name, inline, percent

_RIGHT = "right"
_SCORE = "hits_at_1"
_TEXTS: Mapping[str, tuple[str, str]] = {
    _RIGHT: (_RIGHT, "the first answer is right"),
    **{stage: (text.heading, text.lost) for stage, text in STAGE_TEXTS.items()},
}
"""What the parts of a bar are called, and what they mean, in their order."""


@dataclass(frozen=True, slots=True)
class Part:
    """A part of a stacked bar."""

    size: float
    """In percent of the width of the chart."""
    colour: int
    text: str
    """The tooltip."""


@dataclass(frozen=True, slots=True)
class Bar:
    """The row of a configuration: its name, its bar, and its figures."""

    group: int
    """The number of its group in the legend."""
    name: Name
    values: str
    """The numbers of its values in the filters."""
    figures: Sequence[Figure]
    parts: Sequence[Part] = ()
    """Of a stacked bar."""
    range: tuple[float, float, float] | None = None
    """Low, marked value and high in percent of the width of the chart; None for a stacked bar."""


@dataclass(frozen=True, slots=True)
class LegendEntry:
    """A colour of a chart."""

    colour: int
    text: str
    explanation: str = ""


@dataclass(frozen=True, slots=True)
class BarChart:
    """The bars of the configurations of one method, or of all."""

    title: Name | None
    """The method; None for all."""
    legend: Sequence[LegendEntry]
    headings: Sequence[str]
    """Of the figures beside the bars."""
    bars: Sequence[Bar]
    """The best score first."""
    ends: tuple[str, str]
    """The ends of the scale."""
    roles: Sequence[Sequence[str]] = ()
    """Role, calls and tokens per question, and unreadable replies: the range over the configurations."""


def loss_chart(block: Block, labels: BlockLabels) -> BarChart | None:
    """Build the bars of right questions and of wrong ones by stage of loss; None if no trace says it."""
    known = {i: each for i, each in enumerate(block.configurations) if each.details.lost is not None}
    if not any(each.details.scored for each in known.values()):
        return None
    found = [stage for stage in STAGES if any(stage in (each.details.lost or ()) for each in known.values())]
    colours = {stage: number for number, stage in enumerate(_TEXTS)}

    def bar(index: int) -> Bar:
        details = known[index].details
        lost = details.lost or {}
        counts: dict[str, int] = {
            _RIGHT: details.scored - sum(lost.values()),
            **{stage: lost.get(stage, 0) for stage in found},
        }
        shares = {stage: 100 * count / max(1, details.scored) for stage, count in counts.items()}
        parts = [
            Part(
                round(share, 2),
                colours[stage],
                f"{_TEXTS[stage][0]}: {one_decimal(share)} % ({counts[stage]:,} of {details.scored:,})",
            )
            for stage, share in shares.items()
            if share
        ]
        texts = [Figure(str(one_decimal(share)) if share else "") for share in shares.values()]
        return _bar(labels, known, index, texts, parts=parts)

    legend = [LegendEntry(colours[stage], *_TEXTS[stage]) for stage in (_RIGHT, *found)]
    headings = [entry.text for entry in legend]
    return BarChart(None, legend, headings, [bar(i) for i in _best_first(known)], ("0", "100 %"))


def role_charts(block: Block, labels: BlockLabels) -> list[BarChart]:
    """Build the bars of tokens per question by role: one chart per method, all with the same scale."""
    known = {i: each for i, each in enumerate(block.configurations) if each.details.roles and each.summary.answered}
    most = max((_tokens(each) for each in known.values()), default=0)
    if not most:
        return []
    by_family = sorted(known, key=lambda i: labels.group_number(known[i].group))
    charts = []
    for number, members in groupby(by_family, key=lambda i: labels.group_number(known[i].group)):
        part = {i: known[i] for i in members}
        totals: dict[str, int] = {}
        for each in part.values():
            for cost in each.details.roles:
                totals[cost.role] = totals.get(cost.role, 0) + cost.tokens
        roles = sorted(totals, key=lambda role: -totals[role])
        charts.append(
            BarChart(
                labels.legend[number],
                [LegendEntry(colour, inline(role)) for colour, role in enumerate(roles)],
                ("tokens", "calls"),
                [_role_bar(labels, part, i, roles, most) for i in _best_first(part)],
                ("0", f"{most:,.0f}"),
                [_role_row(role, part.values()) for role in roles],
            )
        )
    return charts


def _role_bar(
    labels: BlockLabels, known: Mapping[int, Configuration], index: int, roles: Sequence[str], most: float
) -> Bar:
    configuration = known[index]
    answered = configuration.summary.answered
    costs = {cost.role: cost for cost in configuration.details.roles}
    parts = [
        Part(
            round(100 * cost.tokens / answered / most, 2),
            roles.index(role),
            f"{inline(role)}: {cost.tokens / answered:,.0f} tokens, {cost.calls / answered:.1f} calls per question",
        )
        for role in roles
        if (cost := costs.get(role))
    ]
    calls = sum(cost.calls for cost in costs.values()) / answered
    figures = [Figure(f"{_tokens(configuration):,.0f}"), Figure(f"{calls:.1f}")]
    return _bar(labels, known, index, figures, parts=parts)


def _role_row(role: str, configurations: Iterable[Configuration]) -> list[str]:
    found = [
        (cost, each.summary.answered) for each in configurations for cost in each.details.roles if cost.role == role
    ]

    def span(value: Callable[[RoleCost, int], float], pattern: str) -> str:
        ends = [format(end([value(*each) for each in found]), pattern) for end in (min, max)]
        return ends[0] if ends[0] == ends[1] else "–".join(ends)

    return [
        inline(role),
        span(lambda cost, answered: cost.calls / answered, ".1f"),
        span(lambda cost, answered: cost.prompt_tokens / answered, ",.0f"),
        span(lambda cost, answered: cost.completion_tokens / answered, ",.0f"),
        span(lambda cost, _: one_decimal(100 * cost.parse_failures), ".1f"),
    ]


def latency_chart(block: Block, labels: BlockLabels) -> BarChart | None:
    """Build the bars of the seconds of a question: from the median to the 99th percentile, the 90th marked."""
    known = {
        i: each for i, each in enumerate(block.configurations) if each.has_seconds and len(each.details.seconds) == 3
    }
    most = max((each.details.seconds[-1] for each in known.values()), default=0.0)
    if not most:
        return None

    def bar(index: int) -> Bar:
        each = known[index]
        low, mark, high = (round(100 * value / most, 2) for value in each.details.seconds)
        model_s = sum(role.seconds for role in each.details.roles) / max(1, each.summary.answered)
        waits = (each.cost(SECONDS), model_s, each.cost("kg_s"))
        texts = [*map(_seconds, each.details.seconds), *(ABSENT if wait is None else _seconds(wait) for wait in waits)]
        return _bar(labels, known, index, list(map(Figure, texts)), marked=(low, mark, high))

    headings = ("median", "90 %", "99 %", "mean", "of the model", "of the graph")
    return BarChart(None, (), headings, [bar(i) for i in _best_first(known)], ("0", f"{_seconds(most)} s"))


def reflection_chart(block: Block, labels: BlockLabels) -> BarChart | None:
    """Build the bars from the first to the last Hits@1, with the rates of correction and damage.

    Configurations without a first answer, and without an edit, a refinement or a reflection, are left out.
    """
    known = {
        i: each
        for i, each in enumerate(block.configurations)
        if each.details.repetitions or "initial_hits_at_1" in each.summary.scores
    }
    if not known:
        return None

    def bar(index: int) -> Bar:
        scores = known[index].summary.scores
        first, last = scores.get("initial_hits_at_1"), _last(known[index].summary)
        ends = sorted(100 * each.mean for each in (first, last) if each)
        figures = [_figure(each) for each in (first, last, scores.get("corrected"), scores.get("damaged"))]
        times = Figure(" · ".join(_times(known[index])))
        marked = (ends[0], 100 * last.mean, ends[-1]) if last else None
        return _bar(labels, known, index, [*figures, times], marked=marked)

    headings = ("first Hits@1", "Hits@1", "corrected", "damaged", "Hits@1 by number of repetitions")
    return BarChart(None, (), headings, [bar(i) for i in _best_first(known)], ("0", "100 %"))


def _last(summary: ConfigurationSummary) -> Estimate | None:
    """Return Hits@1 over the questions that have a first answer; over all if none has one."""
    scores = summary.scores
    first, last = scores.get("initial_hits_at_1"), scores.get(_SCORE)
    if first is None or last is None or first.questions == last.questions:
        return last
    right, questions = 0.0, 0
    if corrected := scores.get("corrected"):
        right, questions = corrected.mean * corrected.questions, corrected.questions
    if damaged := scores.get("damaged"):
        right, questions = right + (1 - damaged.mean) * damaged.questions, questions + damaged.questions
    if not questions:
        return last
    return Estimate(right / questions, *wilson(right / questions, questions, confidence=summary.confidence), questions)


def _figure(score: Estimate | None) -> Figure:
    return Figure(ABSENT) if score is None else percent(score)


def _times(configuration: Configuration) -> Iterator[str]:
    """Say how good the answers were after no, one, two, … edits, refinements or reflections."""
    for of, group in groupby(configuration.details.repetitions, key=lambda each: each.of):
        shares = ((each, ABSENT if each.hits_at_1 is None else f"{100 * each.hits_at_1:.0f} %") for each in group)
        texts = (f"{each.times}: {share} of {each.questions:,}" for each, share in shares)
        yield f"{of} {', '.join(texts)}"


def _bar(
    labels: BlockLabels,
    known: Mapping[int, Configuration],
    index: int,
    figures: Sequence[Figure],
    *,
    parts: Sequence[Part] = (),
    marked: tuple[float, float, float] | None = None,
) -> Bar:
    group = labels.group_number(known[index].group)
    return Bar(group, labels.names[index], labels.filter_values(index), figures, parts, marked)


def _best_first(configurations: Mapping[int, Configuration]) -> list[int]:
    return sorted(configurations, key=lambda index: -configurations[index].hits_at_1)


def _tokens(configuration: Configuration) -> float:
    """Return the tokens per question, as if the configuration had run alone."""
    return sum(cost.tokens for cost in configuration.details.roles) / configuration.summary.answered


def _seconds(value: float) -> str:
    return f"{value:.3g}" if value < 1000 else f"{value:,.0f}"
