"""Terminal tables of a comparison: differences, costs, changed questions, rerun variance."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence

from rich.table import Table
from rich.text import Text

from pipeline.analysis.compare import Comparison, Cost, Flip
from pipeline.analysis.paired import Clusters, RunConfiguration
from pipeline.analysis.rerun_variance import RerunVariance
from pipeline.evaluation.table import plain_table

_CORRECTIONS = {"holm": "Holm", "bh": "Benjamini-Hochberg"}
_STYLES = {"better": "green", "worse": "red", "noise": "yellow"}
_NAME_WIDTH = 20
_COLUMN_WIDTHS = {"base → other": 13, "difference": 13, "flipped": 7, "p corrected": 9}
"""By heading; the widths leave room for a name in 80 columns."""
_SHOWN_ANSWERS = 3
_LONGEST_ANSWER, _LONGEST_QUESTION = 60, 200
"""In characters."""
_ABSENT = "–"


def comparison_table(
    base: RunConfiguration,
    comparisons: Sequence[Comparison],
    *,
    score: str,
    correction: str,
    clusters: Clusters | None,
) -> Table:
    """Build a table with a row per configuration: scores, difference with interval, flipped questions, p, verdict."""
    configurations = [base, *(each.configuration for each in comparisons)]
    counts = {each.questions for each in comparisons}
    common = f", {counts.pop():,} common questions" if len(counts) == 1 else ""
    title = f"{score} against {_title(base)}, on {base.dataset}{common}"
    footnotes = _footnotes(configurations, comparisons, _CORRECTIONS[correction], clusters)
    table = plain_table(title, "\n".join(footnotes), padding=0)
    table.add_column("configuration", overflow="fold", min_width=_NAME_WIDTH)
    for heading, width in _COLUMN_WIDTHS.items():
        table.add_column(heading, justify="right", overflow="fold", max_width=width)
    table.add_column("verdict")
    for each in comparisons:
        change = each.difference
        table.add_row(
            _description(each.configuration, configurations).append(
                "" if common else f"\n{each.questions:,} common questions", "dim"
            ),
            f"{100 * each.base:.1f} → {100 * each.other:.1f}",
            Text(f"{100 * change.mean:+.1f}").append(f"\n{100 * change.low:+.1f} … {100 * change.high:+.1f}", "dim"),
            Text(f"+{len(each.won)}\n-{len(each.lost)}"),
            Text(_p(each.p_value), "dim").append(f"\n{_p(each.corrected_p)}", "not dim"),
            Text(each.verdict, _STYLES.get(each.verdict, "")),
        )
    return table


def cost_table(comparisons: Sequence[Comparison]) -> Table:
    """Build a table with a row per configuration: costs of a question for it and the base, gain per extra call."""
    caption = "% per call: percentage points gained by an extra call, or lost by a saved one, if a difference is shown"
    table = plain_table("cost per question, base → other", caption, padding=0)
    table.add_column("configuration", overflow="fold", min_width=_NAME_WIDTH)
    for heading in (*_COSTS, "% per call"):
        table.add_column(heading, justify="right", overflow="fold", max_width=15)
    for each in comparisons:
        table.add_row(
            _name(each.configuration),
            *(f"{text(each.base_cost)} → {text(each.cost)}" for text in _COSTS.values()),
            _gain_per_call(each),
        )
    return table


def flip_tables(
    base: RunConfiguration, comparisons: Sequence[Comparison], flips: Sequence[tuple[list[Flip], list[Flip]]]
) -> Iterator[Table]:
    """Yield a table per configuration: questions that the base answers better, then those that the other does."""
    for each, (lost, won) in zip(comparisons, flips, strict=True):
        if not (lost or won):
            continue
        other = each.configuration
        title = (
            f"{base.name} beats {other.name} on {_count(len(each.lost), 'question')}, {other.name} beats "
            f"{base.name} on {len(each.won):,}; the first {max(len(lost), len(won))} of each"
        )
        table = plain_table(title, padding=0)
        table.add_column("question", overflow="fold", ratio=5)
        for heading in (base.name, other.name, "gold"):
            table.add_column(heading, overflow="fold", ratio=3)
        for part, winner in ((lost, base), (won, other)):
            for flip in part:
                question = Text(_one_line(flip.question, _LONGEST_QUESTION))
                question.append(f"\n{flip.question_id}\nbetter: {winner.name}", "dim")
                table.add_row(question, *map(_answers, (flip.base, flip.other, flip.gold)))
            table.add_section()
        yield table


def rerun_variance_lines(base: RunConfiguration, variance: RerunVariance, *, score: str, questions: int) -> list[str]:
    """Describe how many calls changed in a rerun, the effect on the score, and which differences are noise."""
    sample = f"noise: the first {variance.questions:,} questions of {base.name} were run again"
    if variance.deterministic:
        return [
            f"{sample}, and each of {variance.repeated:,} calls returned the same text:",
            "the model is deterministic, and its noise is 0",
        ]
    net = variance.net
    return [
        f"{sample}. Of {variance.repeated:,} repeated calls, {variance.differing:,} returned a different text "
        f"({variance.differing / max(1, variance.repeated):.1%}); {variance.unrepeated:,} more calls were made by one "
        "run only.",
        f"{score} changes by {100 * variance.absolute:.1f} percentage points per question in absolute value, and by "
        f"{100 * net.mean:+.1f} ({100 * net.low:+.1f} … {100 * net.high:+.1f}) on average.",
        f"Between two runs over {questions:,} questions, differences of up to {100 * variance.margin(questions):.1f} "
        "percentage points are noise.",
    ]


_COSTS: Mapping[str, Callable[[Cost], str]] = {
    "calls": lambda cost: f"{cost.calls:.1f}",
    "tokens": lambda cost: f"{cost.tokens:,.0f}",
    "seconds": lambda cost: f"{cost.wall_s:.2f}",
}


def _title(configuration: RunConfiguration) -> str:
    label = f" ({configuration.label})" if configuration.label else ""
    return f"{configuration.name}, {configuration.method}{label}"


def _name(configuration: RunConfiguration) -> Text:
    return Text(configuration.name, style="bold").append(f"\n{configuration.method}", "not bold")


def _description(configuration: RunConfiguration, configurations: Sequence[RunConfiguration]) -> Text:
    """Return name, method, label, and the overrides that not all configurations share, without folder and tags."""
    shared = set.intersection(*(set(each.overrides) for each in configurations))
    text = _name(configuration)
    if configuration.label:
        text.append(f" ({configuration.label})", "not bold yellow")
    for override in configuration.overrides:
        if override not in shared and not override.startswith(("run.dir=", "run.tags=", "run.note=")):
            text.append(f"\n{override}", "not bold dim")
    return text


def _footnotes(
    configurations: Sequence[RunConfiguration],
    comparisons: Sequence[Comparison],
    correction: str,
    clusters: Clusters | None,
) -> Iterator[str]:
    yield (
        f"percent and percentage points; below the difference its {comparisons[0].confidence:.0%} paired bootstrap "
        "interval; failed questions count as wrong"
    )
    test = "McNemar's exact test" if comparisons[0].exact_p is not None else "the paired bootstrap"
    yield f"p: {test}; below it, corrected for {_count(len(comparisons), 'comparison')} ({correction})"
    fewest = min(comparisons, key=lambda each: each.sources)
    if clusters and fewest.sources < fewest.questions:
        yield f"intervals and p are clustered: questions share a `{clusters.field}`, {fewest.sources:,} clusters"
    if labels := sorted({each.label for each in configurations if each.label}):
        yield f"not the answers of a language model: {', '.join(labels)}"


def _p(value: float) -> str:
    return "<0.001" if value < 0.001 else f"{value:.3f}"


def _count(number: int, what: str) -> str:
    return f"{number:,} {what}" if number == 1 else f"{number:,} {what}s"


def _gain_per_call(each: Comparison) -> str:
    """Return the percentage points per call, or a phrase if one of the two is both better and cheaper."""
    rate = each.points_per_call
    if rate is None or each.verdict not in ("better", "worse"):
        return _ABSENT
    if rate < 0:
        return "costlier, worse" if each.difference.mean < 0 else "cheaper, better"
    return f"{rate:.2f}"


def _answers(answers: Sequence[str]) -> Text:
    shown = [_one_line(answer, _LONGEST_ANSWER) for answer in answers[:_SHOWN_ANSWERS]]
    more = len(answers) - len(shown)
    return Text("\n".join([*shown, *([f"and {more} more"] if more else [])]) or _ABSENT)


def _one_line(text: str, longest: int) -> str:
    """Return a model's text as one printable line, without terminal commands."""
    line = "".join(character if character.isprintable() else " " for character in text)
    return line if len(line) <= longest else f"{line[:longest]}…"
