"""Builds the content of the page from the data of the runs."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from functools import cache
from math import isinf
from typing import Any

from pipeline import config
from pipeline.analysis.unreadable_roles import unreadable_lines
from pipeline.engine.retry_advice import TOO_LONG, is_final, is_too_long
from pipeline.errors import UserError
from pipeline.evaluation.budget_limits import much_limited
from pipeline.evaluation.configuration_summary import SECONDS, ConfigurationSummary, Group
from pipeline.evaluation.simulated import gold_lines
from pipeline.evaluation.unreadable import much_unreadable, range_text
from pipeline.percentages import one_decimal
from pipeline.report.bars import latency_chart, loss_chart, reflection_chart, role_charts
from pipeline.report.configuration_table import configuration_table
from pipeline.report.curves import find_curves
from pipeline.report.data import Block, Configuration, RunInfo, can_retry_any, retry_refusals_of
from pipeline.report.examples import examples, methods_without_examples
from pipeline.report.labels import SCORES, BlockLabels, inline, isolated, value_text, with_label
from pipeline.report.page_content import BlockView, Breakdown, KeyView, Page, RunView, ScoreView
from pipeline.report.papers import paper_tables
from pipeline.report.pareto import (
    front_view,
    oracles_left_out,
    recommendation_view,
    recommendations,
    tags,
)
from pipeline.report.response_curves import responses
from pipeline.text import agreeing, counted, counted_questions
from pipeline.traces.run_file import differing_code

_COPIED = "kg.dataset."
"""The keys of the dataset that the synthetic graph repeats."""
_BREAKDOWN_SCORES = ("hits_at_1", "f1")


def build_page(blocks: Sequence[Block]) -> Page:
    """Build the content of the page."""
    configurations = [configuration for block in blocks for configuration in block.configurations]
    runs = list({id(configuration.run): configuration.run for configuration in configurations}.values())
    methods = ", ".join(dict.fromkeys(inline(configuration.family) for configuration in configurations))
    datasets = ", ".join(dict.fromkeys(inline(configuration.summary.dataset) for configuration in configurations))
    views = [_block_view(block) for block in blocks]
    shown = {column.heading for view in views for column in view.table.columns}
    shown |= {score.heading for view in views for score in view.scores}
    return Page(
        title=f"{methods} on {datasets}",
        blocks=views,
        runs=[_run_view(run) for run in runs],
        definitions=[(heading, definition) for heading, definition in SCORES.values() if heading in shown],
    )


def _without_tokens(block: Block) -> bool:
    costs = [block.configurations[index].cost_key for index in block.comparable]
    return any(calls for calls, _ in costs) and all(isinf(tokens) for calls, tokens in costs if calls)


def _block_view(block: Block) -> BlockView:
    configurations = block.configurations
    labels = BlockLabels(configurations)
    axes = find_curves(configurations, block.comparable)
    by_score = {score: recommendations(block, score) for score in block.charted}
    first = next((each.shown for of_score in by_score.values() for each in of_score), 0)
    groups = [labels.group_number(configuration.group) for configuration in configurations]
    return BlockView(
        dataset=inline(block.most_complete.summary.dataset),
        facts=_facts(block),
        gold_notes=gold_lines([each.summary for each in configurations]),
        label_rivals=_label_rivals(configurations),
        without_tokens=_without_tokens(block),
        oracles_left_out=oracles_left_out(block),
        simulators=list(dict.fromkeys(inline(name) for each in configurations if (name := each.summary.simulated))),
        warnings=_warnings(block),
        shares_sources=block.shares_sources,
        confidence=f"{100 * block.evaluation.confidence:g} %",
        legend=[(name, groups.count(number)) for number, name in enumerate(labels.legend)],
        scores=[
            ScoreView(
                *SCORES[score],
                name=score,
                recommendations=[recommendation_view(block, labels, score, each) for each in of_score],
                fronts=[front_view(block, labels, score, counter, of_score) for counter in labels.costs],
                axes=responses(block, labels, score, axes),
            )
            for score, of_score in by_score.items()
        ],
        without_seconds=sum(each.has_seconds and each.cost(SECONDS) is None for each in configurations),
        has_seconds=any(each.cost(SECONDS) is not None for each in configurations),
        table=configuration_table(block, labels, tags(block, by_score)),
        keys=_keys(configurations),
        has_defaults=all(map(_defaults, configurations)),
        names=labels.names,
        breakdown=_breakdown([configuration.summary for configuration in configurations], shown=first),
        filters=[(labels.short_key(key), list(map(value_text, values))) for key, values in labels.filters.items()],
        losses=loss_chart(block, labels),
        reflection=reflection_chart(block, labels),
        roles=role_charts(block, labels),
        latency=latency_chart(block, labels),
        papers=paper_tables(block),
        examples=examples(block, labels),
        methods_without_examples=methods_without_examples(block),
    )


def _label_rivals(configurations: Sequence[Configuration]) -> str:
    """Return which configurations are compared in their cost, behind `no other configuration`; empty if all are."""
    if len({each.models for each in configurations} - {""}) > 1:
        return " of the same model"
    return " with the same label" if len({each.summary.label for each in configurations}) > 1 else ""


def _keys(configurations: Sequence[Configuration]) -> list[KeyView]:
    """Return the keys of the configurations, those that differ from their defaults first."""
    values: dict[str, dict[str, None]] = {}
    defaults: dict[str, dict[str, None]] = {}
    for configuration in configurations:
        default = _defaults(configuration)
        for key, value in config.flatten(configuration.resolved):
            if key.startswith(_COPIED):
                continue
            values.setdefault(key, {})[value_text(value)] = None
            if default and default.get(key) != value:
                defaults.setdefault(key, {})[value_text(default.get(key))] = None
    views = [
        KeyView(key.removeprefix("choices."), list(found), list(defaults.get(key, ()))) for key, found in values.items()
    ]
    return sorted(views, key=lambda view: not view.defaults)


def _defaults(configuration: Configuration) -> dict[str, Any]:
    """Return the default of each key with the same choices, and of each choice; empty if a choice is not found."""
    choices = configuration.resolved["choices"].items()
    words = tuple(f"{group}={choice}" for group, choice in choices if group != "experiment")
    values = dict(config.flatten(configuration.resolved))
    given = {key: values[key] for key in _without_default(words) if key in values}
    return _compose_defaults(words, config.canonical(given))


@cache
def _without_default(choices: tuple[str, ...]) -> list[str]:
    """Return the keys that every run with these choices must give, such as the files of a dataset."""
    try:
        return config.required(choices)
    except UserError:
        return []


@cache
def _compose_defaults(choices: tuple[str, ...], given: str) -> dict[str, Any]:
    """Compose what the choices set; `given` is a JSON object with the keys that have no default."""
    try:
        composed = config.compose(choices, given=json.loads(given))
    except UserError:
        return {}
    return dict(config.flatten({**composed, "choices": config.compose([])["choices"]}))


def _facts(block: Block) -> list[tuple[str, list[str]]]:
    """Return the properties of the block, with all values that its configurations have."""
    configurations = block.configurations
    summary = block.most_complete.summary
    facts = {
        "runs": [f"{len(block.runs):,}"],
        "configurations": [f"{len(configurations):,}"],
        "questions": [f"{summary.answered:,}"],
        "model": [_model(each) for each in configurations],
        "models of roles": [
            f"{role}: {model}" for each in configurations for role, model in (each.served.get("roles") or {}).items()
        ],
        "graph": [each.served["graph"] for each in configurations],
        "retriever": [inline(name) for each in configurations if (name := config.retriever(each.resolved))],
        "not as published": _departures(configurations),
        "seed": [str(each.resolved.get("run", {}).get("seed")) for each in configurations],
        "started": [_start_time(each.run) for each in configurations],
        "version": [
            version for each in configurations if (version := each.run.facts.get("versions", {}).get("kgqa-pipeline"))
        ],
        "complete": [_completeness(block)],
        "unreadable replies": _range_of_shares([each.summary.unreadable_share for each in configurations]),
    }
    return [(term, list(dict.fromkeys(values))) for term, values in facts.items() if values]


def _model(configuration: Configuration) -> str:
    """Return the model, with the label unless the model's name begins with it."""
    model, label = configuration.served["model"], configuration.summary.label
    return with_label(model, None if label and model.startswith(label) else label)


def _range_of_shares(shares: Sequence[float | None]) -> list[str]:
    """Return the lowest and the highest of the shares that are known."""
    known = [share for share in shares if share is not None]
    return [range_text(known)] if known else []


def _departures(configurations: Sequence[Configuration]) -> list[str]:
    """Return the presets that did not run as published, each with how it differs."""
    return [
        f"{inline(each.summary.method)}: {', '.join(found)}"
        for each in configurations
        if (found := config.departures(each.resolved))
    ]


def _completeness(block: Block) -> str:
    """Return whether all questions are answered, with the number of failed and unanswered ones."""
    failed = f"{sum(each.summary.failed for each in block.configurations):,} failed"
    if any(each.run.totals is None for each in block.configurations):
        return f"no · {failed} · the run is in progress or was stopped"
    not_run = sum(each.summary.not_run for each in block.configurations)
    return f"{'no' if not_run else 'yes'} · {failed} · {not_run:,} not run"


def _warnings(block: Block) -> list[str]:
    """Return what a reader must know before comparing the configurations."""
    configurations = block.configurations
    score_notes = dict.fromkeys(f"{note}." for each in configurations for note in each.run.score_notes)
    not_compared = len(configurations) - len(block.comparable)
    failed = sum(each.summary.failed for each in configurations)
    errors = [error for run in block.runs for error in run.errors]
    is_vain = all(map(is_final, errors)) or not can_retry_any(configurations)
    edited = differing_code(each.code for each in configurations)
    limited = much_limited([each.summary for each in configurations])
    warnings = {
        "Not all configurations answered all questions. Those that answered fewer are in the table, but are not "
        f"compared: {not_compared:,}.": not_compared,
        f"{counted_questions(failed, len(configurations))} failed and {agreeing('count', failed)} as wrong.": failed,
        "run.retry_failed=true asks failed questions again.": failed and not is_vain,
        f"{TOO_LONG}.": failed and any(map(is_too_long, errors)),
        f"In {counted(len(limited), 'configuration')}, more than 1 % of the questions met a limit of budget or of the "
        "method, which may decide their scores and the curves through them.": limited,
        "The configurations used different graphs, which alone can change scores.": not block.has_one_graph,
        f"The runs used different sources of {inline(', '.join(edited))}, which alone can change scores.": edited,
        "The scores were recomputed after the run. The table shows the new scores; recommendations and averaged "
        "curves use the original ones.": block.rescored,
    }
    refused = [f"{isolated(refusal)}." for refusal in retry_refusals_of(configurations)]
    known = (warning for warning, applies in warnings.items() if applies)
    return [*score_notes, *known, *refused, *_unreadable(block), *_reused_seconds(block)]


def _reused_seconds(block: Block) -> Iterator[str]:
    """Say of each run with replies of earlier runs that its seconds were not measured under one load."""
    for run in block.runs:
        is_timed = any(each.run is run and each.cost(SECONDS) is not None for each in block.configurations)
        if is_timed and (reused := (run.totals or {}).get("reused_llm_calls")):
            yield (
                f"{inline(run.name)}: {reused:,} of its model calls {agreeing('come', reused)} from earlier runs, with "
                "the seconds that they took there. Seconds depend on the load of the servers, so do not compare them."
            )


def _unreadable(block: Block) -> Iterator[str]:
    """Say of each run in which many replies could not be read what the terminal says of it."""
    for run in block.runs:
        summaries = [each.summary for each in block.configurations if each.run is run]
        if much_unreadable(summaries):
            numbers = {summary.number for summary in summaries}
            roles = [each for each in run.unreadable if each.configuration in numbers]
            yield f"{inline(run.name)}: {' '.join(map(str.strip, unreadable_lines(run.path, summaries, roles)))}"


def _breakdown(summaries: Sequence[ConfigurationSummary], *, shown: int) -> Breakdown:
    by_kind = [
        {(field, group.value): group for field, groups in summary.breakdown.items() for group in groups}
        for summary in summaries
    ]
    kinds = list(dict.fromkeys(kind for groups in by_kind for kind in groups))
    figures = [[_group_figures(groups[kind]) if kind in groups else None for kind in kinds] for groups in by_kind]
    return Breakdown([(inline(field), inline(value)) for field, value in kinds], figures, shown)


def _group_figures(group: Group) -> list[float | None]:
    figures: list[float | None] = [group.questions]
    for name in _BREAKDOWN_SCORES:
        score = group.scores.get(name)
        figures += [one_decimal(100 * value) for value in (score.mean, score.low, score.high)] if score else [None] * 3
    return figures


def _run_view(run: RunInfo) -> RunView:
    totals = run.totals or {}
    facts = {
        "folder": str(run.path),
        "started": _start_time(run),
        "seed": run.facts.get("seed"),
        "commit": run.facts.get("git_commit"),
        "versions": ", ".join(
            f"{package} {version}" for package, version in run.facts.get("versions", {}).items() if version
        ),
        "complete": "yes" if totals.get("complete") else "no",
        "model calls made": _count(totals.get("physical_llm_calls")),
        "model calls reused from earlier runs": _count(totals.get("reused_llm_calls") or None),
        "model calls if each configuration had run alone": _count(totals.get("logical_llm_calls")),
        "seconds from its last start to its end": _count(totals.get("wall_s")),
        "input rows that could not be read": _count(totals.get("rejected")),
    }
    return RunView(run.name, [(term, str(fact)) for term, fact in facts.items() if fact is not None], run.digest)


def _count(total: float | None) -> str | None:
    return None if total is None else f"{total:,.0f}"


def _start_time(run: RunInfo) -> str:
    """Return the start of the run, to the minute."""
    day, _, rest = str(run.facts.get("started")).partition("T")
    return f"{day} {rest[:5]} {rest[8:]}".strip()
