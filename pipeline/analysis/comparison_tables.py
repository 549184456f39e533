"""A comparison in words: who is better by how much, at what cost, on which questions, and what of it is noise."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence

from rich.table import Table
from rich.text import Text

from pipeline.analysis.compare import Comparison, Cost, Flip
from pipeline.analysis.noise import Noise
from pipeline.analysis.pairs import RunPoint, Sources
from pipeline.evaluation.table import plain_table

_CORRECTIONS = {"holm": "Holm", "bh": "Benjamini-Hochberg"}
_STYLES = {"better": "green", "worse": "red", "noise": "yellow"}
_POINT_WIDTH = 20
_FIGURES = {"base → point": 13, "difference": 13, "flipped": 7, "p corrected": 9}
"""Headings with the widths that leave room for a name in 80 columns."""
_SHOWN_ANSWERS = 3
_LONGEST_ANSWER, _LONGEST_QUESTION = 60, 200
"""Characters."""
_ABSENT = "–"


def comparison_table(
    base: RunPoint, comparisons: Sequence[Comparison], *, score: str, correction: str, sources: Sources | None
) -> Table:
    """A row per point: both scores, the difference with its interval, the questions that flipped, p, and a verdict."""
    points = [base, *(each.point for each in comparisons)]
    counts = {each.questions for each in comparisons}
    common = f", {counts.pop():,} common questions" if len(counts) == 1 else ""
    title = f"{score} against {_title(base)}, on {base.dataset}{common}"
    table = plain_table(title, "\n".join(_footnotes(points, comparisons, _CORRECTIONS[correction], sources)), padding=0)
    table.add_column("point", overflow="fold", min_width=_POINT_WIDTH)
    for heading, width in _FIGURES.items():
        table.add_column(heading, justify="right", overflow="fold", max_width=width)
    table.add_column("verdict")
    for each in comparisons:
        change = each.difference
        table.add_row(
            _description(each.point, points).append("" if common else f"\n{each.questions:,} common questions", "dim"),
            f"{100 * each.base:.1f} → {100 * each.changed:.1f}",
            Text(f"{100 * change.mean:+.1f}").append(f"\n{100 * change.low:+.1f} … {100 * change.high:+.1f}", "dim"),
            Text(f"+{len(each.won)}\n-{len(each.lost)}"),
            Text(_p(each.p_value), "dim").append(f"\n{_p(each.corrected_p)}", "not dim"),
            Text(each.verdict, _STYLES.get(each.verdict, "")),
        )
    return table


def cost_table(comparisons: Sequence[Comparison]) -> Table:
    """A row per point: what a question costs there and at the base, and what an extra call buys."""
    caption = "points per call: bought by one more, or lost with one less, where a difference is shown"
    table = plain_table("cost per question, base → point", caption, padding=0)
    table.add_column("point", overflow="fold", min_width=_POINT_WIDTH)
    for heading in (*_COSTS, "points per call"):
        table.add_column(heading, justify="right", overflow="fold", max_width=15)
    for each in comparisons:
        table.add_row(
            _name(each.point),
            *(f"{spell(each.base_cost)} → {spell(each.cost)}" for spell in _COSTS.values()),
            _exchange(each),
        )
    return table


def flip_tables(
    base: RunPoint, comparisons: Sequence[Comparison], flips: Sequence[tuple[list[Flip], list[Flip]]]
) -> Iterator[Table]:
    """Per point that flipped questions: the first that only the base scores higher, then the first of the point's."""
    for each, (lost, won) in zip(comparisons, flips, strict=True):
        if not (lost or won):
            continue
        title = (
            f"{base.name} beats {each.point.name} on {_count(len(each.lost), 'question')}, {each.point.name} beats "
            f"{base.name} on {len(each.won):,}; the first {max(len(lost), len(won))} of each"
        )
        table = plain_table(title, padding=0)
        table.add_column("question", overflow="fold", ratio=5)
        for heading in (base.name, each.point.name, "gold"):
            table.add_column(heading, overflow="fold", ratio=3)
        for part, winner in ((lost, base), (won, each.point)):
            for flip in part:
                question = Text(_plain(flip.question, _LONGEST_QUESTION))
                question.append(f"\n{flip.question_id}\nbetter: {winner.name}", "dim")
                table.add_row(question, *map(_answers, (flip.base, flip.changed, flip.gold)))
            table.add_section()
        yield table


def noise_lines(base: RunPoint, noise: Noise, *, score: str, questions: int) -> list[str]:
    """Sentences: how many calls came out differently, what that did to the score, and what differences are noise."""
    sample = f"noise: the first {noise.questions:,} questions of {base.name} were run again"
    if noise.none:
        return [
            f"{sample}, and each of {noise.repeated:,} calls came out the same:",
            "the model is deterministic, and its noise is 0",
        ]
    net = noise.net
    return [
        f"{sample}. Of {noise.repeated:,} calls that were made again {noise.differing:,} came out differently "
        f"({noise.differing / max(1, noise.repeated):.1%}); {noise.unrepeated:,} more followed upon what differed.",
        f"{score} moves by {100 * noise.absolute:.1f} points per question, up or down, and by "
        f"{100 * net.mean:+.1f} ({100 * net.low:+.1f} … {100 * net.high:+.1f}) in all.",
        f"Between two runs over {questions:,} questions, differences up to {100 * noise.margin(questions):.1f} points "
        "are noise.",
    ]


_COSTS: Mapping[str, Callable[[Cost], str]] = {
    "calls": lambda cost: f"{cost.calls:.1f}",
    "tokens": lambda cost: f"{cost.tokens:,.0f}",
    "seconds": lambda cost: f"{cost.wall_s:.2f}",
}


def _title(point: RunPoint) -> str:
    label = f" ({point.label})" if point.label else ""
    return f"{point.name}, {point.method}{label}"


def _name(point: RunPoint) -> Text:
    return Text(point.name, style="bold").append(f"\n{point.method}", "not bold")


def _description(point: RunPoint, points: Sequence[RunPoint]) -> Text:
    """Name, method and label, and the overrides that not all points share, but for where the run lies."""
    shared = set.intersection(*(set(each.overrides) for each in points))
    text = _name(point)
    if point.label:
        text.append(f" ({point.label})", "not bold yellow")
    for override in point.overrides:
        if override not in shared and not override.startswith("run.dir="):
            text.append(f"\n{override}", "not bold dim")
    return text


def _footnotes(
    points: Sequence[RunPoint], comparisons: Sequence[Comparison], correction: str, sources: Sources | None
) -> Iterator[str]:
    yield (
        f"percent and points, {comparisons[0].confidence:.0%} paired bootstrap intervals beneath; failed questions "
        "count as wrong"
    )
    exact = "McNemar's exact test" if comparisons[0].exact_p is not None else "the paired bootstrap"
    yield f"p: {exact}; beneath, corrected over {_count(len(comparisons), 'point')} ({correction})"
    fewest = min(comparisons, key=lambda each: each.sources)
    if sources and fewest.sources < fewest.questions:
        yield f"intervals and p heed that questions share their `{sources.field}`: {fewest.sources:,} different ones"
    if labels := sorted({point.label for point in points if point.label}):
        yield f"not the answers of a language model: {', '.join(labels)}"


def _p(value: float) -> str:
    return "<0.001" if value < 0.001 else f"{value:.3f}"


def _count(number: int, what: str) -> str:
    return f"{number:,} {what}" if number == 1 else f"{number:,} {what}s"


def _exchange(each: Comparison) -> str:
    """Points per call; in words where one of the two is better at no more cost."""
    rate = each.points_per_call
    if rate is None or each.verdict not in ("better", "worse"):
        return _ABSENT
    if rate < 0:
        return "dearer, worse" if each.difference.mean < 0 else "cheaper, better"
    return f"{rate:.2f}"


def _answers(answers: Sequence[str]) -> Text:
    shown = [_plain(answer, _LONGEST_ANSWER) for answer in answers[:_SHOWN_ANSWERS]]
    more = len(answers) - len(shown)
    return Text("\n".join([*shown, *([f"and {more} more"] if more else [])]) or _ABSENT)


def _plain(text: str, longest: int) -> str:
    """A model's text may hold anything, terminal commands too: one line of what can be printed."""
    line = "".join(character if character.isprintable() else " " for character in text)
    return line if len(line) <= longest else f"{line[:longest]}…"
