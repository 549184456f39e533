"""From what runs measured to what the page says."""

from __future__ import annotations

from collections.abc import Sequence

from pipeline.analysis.report.curves import find_curves
from pipeline.analysis.report.measured import Block, Measured, Run
from pipeline.analysis.report.quality import advice, choices, front, tags
from pipeline.analysis.report.responses import responses
from pipeline.analysis.report.table import point_table
from pipeline.analysis.report.view import BlockView, Kinds, Page, RunView, ScoreView
from pipeline.analysis.report.words import SCORES, Words, inserted, labelled
from pipeline.evaluation.summary import Group, PointSummary
from pipeline.kg.fingerprint import agree

_KIND_SCORES = ("hits_at_1", "f1")


def page_of(blocks: Sequence[Block]) -> Page:
    """Put into words and figures what the runs measured."""
    points = [point for block in blocks for point in block.points]
    runs = list({id(point.run): point.run for point in points}.values())
    methods = ", ".join(dict.fromkeys(inserted(point.family) for point in points))
    datasets = ", ".join(dict.fromkeys(inserted(point.summary.dataset) for point in points))
    views = [_block_view(block) for block in blocks]
    shown = {column.heading for view in views for column in view.table.columns}
    shown |= {score.heading for view in views for score in view.scores}
    return Page(
        title=f"{methods} on {datasets}",
        blocks=views,
        runs=[_run_view(run) for run in runs],
        meanings=[(heading, meaning) for heading, meaning in SCORES.values() if heading in shown],
    )


def _block_view(block: Block) -> BlockView:
    words = Words(block.points)
    axes = find_curves(block.points, block.comparable)
    chosen = {score: choices(block, score) for score in block.charted}
    first = next((choice.chosen for of_score in chosen.values() for choice in of_score), 0)
    return BlockView(
        dataset=inserted(block.fullest.summary.dataset),
        facts=_facts(block),
        labels=list(dict.fromkeys(inserted(label) for point in block.points if (label := point.summary.label))),
        warnings=_warnings(block),
        shares_sources=block.shares_sources,
        confidence=f"{100 * block.evaluation.confidence:g} %",
        legend=[
            (name, sum(words.place(point.group) == n for point in block.points)) for n, name in enumerate(words.legend)
        ],
        scores=[
            ScoreView(
                *SCORES[score],
                name=score,
                advice=[advice(block, words, score, choice) for choice in of_score],
                fronts=[front(block, words, score, counter, of_score) for counter in words.costs],
                axes=responses(block, words, score, axes),
            )
            for score, of_score in chosen.items()
        ],
        table=point_table(block, words, tags(block, chosen)),
        names=words.names,
        kinds=_kinds([point.summary for point in block.points], shown=first),
    )


def _facts(block: Block) -> list[tuple[str, list[str]]]:
    """What all points have in common, or each of what they differ in."""
    points = block.points
    summary = block.fullest.summary
    facts = {
        "points": [f"{len(points):,}"],
        "questions": [f"{summary.questions - summary.not_run:,}"],
        "model": [_model(point) for point in points],
        "models of roles": [
            f"{role}: {model}" for point in points for role, model in (point.served.get("roles") or {}).items()
        ],
        "graph": [point.served["graph"] for point in points],
        "seed": [str(point.run.facts.get("seed")) for point in points],
        "begun": [_moment(point.run) for point in points],
        "version": [
            version for point in points if (version := point.run.facts.get("versions", {}).get("kgqa-pipeline"))
        ],
        "complete": [_state(block)],
    }
    return [(term, list(dict.fromkeys(values))) for term, values in facts.items() if values]


def _model(point: Measured) -> str:
    """What it is, and its label where that does not say it already."""
    model, label = point.served["model"], point.summary.label
    return labelled(model, None if label and model.startswith(label) else label)


def _state(block: Block) -> str:
    """Whether all is there; failed and not run are counted apart, and over all points."""
    failed = f"{sum(point.summary.failed for point in block.points):,} failed"
    if any(point.run.totals is None for point in block.points):
        return f"no · {failed} · the rest has not run yet"
    not_run = sum(point.summary.not_run for point in block.points)
    return f"{'no' if not_run else 'yes'} · {failed} · {not_run:,} not run"


def _warnings(block: Block) -> list[str]:
    """What a reader has to know before comparing."""
    unfinished = dict.fromkeys(inserted(point.run.name) for point in block.points if point.run.totals is None)
    left_out = len(block.points) - len(block.comparable)
    failed = sum(point.summary.failed for point in block.points)
    graphs = [point.served["graph"] for point in block.points]
    said = {
        f"{', '.join(unfinished)} is not complete: these are the questions answered so far. "
        "Its command goes on with it.": unfinished,
        f"{left_out} points answered fewer questions than others: they are in the table, but not compared.": left_out,
        f"{failed:,} questions failed and count as wrong: run.retry_failed=true runs them again.": failed,
        "The points ran on different graphs, which alone can make a difference.": not all(
            agree(graphs[0], other) for other in graphs
        ),
        "The runs were scored anew after they ran: the table has the new scores, recommendations and averaged curves "
        "rest on the old ones.": block.rescored,
    }
    return [warning for warning, holds in said.items() if holds]


def _kinds(summaries: Sequence[PointSummary], *, shown: int) -> Kinds:
    found = [
        {(field, group.value): group for field, groups in summary.breakdown.items() for group in groups}
        for summary in summaries
    ]
    kinds = list(dict.fromkeys(kind for of_point in found for kind in of_point))
    points = [[_kind_row(of_point[kind]) if kind in of_point else None for kind in kinds] for of_point in found]
    return Kinds([(inserted(field), inserted(value)) for field, value in kinds], points, shown)


def _kind_row(kind: Group) -> list[float | None]:
    row: list[float | None] = [kind.questions]
    for name in _KIND_SCORES:
        score = kind.scores.get(name)
        row += [round(100 * at, 1) for at in (score.mean, score.low, score.high)] if score else [None] * 3
    return row


def _run_view(run: Run) -> RunView:
    totals = run.totals or {}
    facts = {
        "folder": str(run.path),
        "begun": _moment(run),
        "seed": run.facts.get("seed"),
        "commit": run.facts.get("git_commit"),
        "versions": ", ".join(
            f"{package} {version}" for package, version in run.facts.get("versions", {}).items() if version
        ),
        "complete": "yes" if totals.get("complete") else "no",
        "model calls made": _count(totals.get("physical_llm_calls")),
        "counted for the points": _count(totals.get("logical_llm_calls")),
        "seconds": _count(totals.get("wall_s")),
        "rows of input that could not be read": _count(totals.get("rejected")),
    }
    return RunView(run.name, [(term, str(fact)) for term, fact in facts.items() if fact is not None])


def _count(total: float | None) -> str | None:
    return None if total is None else f"{total:,.0f}"


def _moment(run: Run) -> str:
    """When it was begun, to the minute."""
    day, _, rest = str(run.facts.get("started")).partition("T")
    return f"{day} {rest[:5]} {rest[8:]}".strip()
