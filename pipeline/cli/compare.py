"""`kgqa compare`: compare configurations of finished runs with one of them, question by question."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Mapping, Sequence
from itertools import chain
from math import isclose
from typing import Any

import polars as pl
from pydantic import ConfigDict, NonNegativeInt, PositiveInt
from pydantic.dataclasses import dataclass
from rich.console import RenderableType
from rich.text import Text

from pipeline import config
from pipeline.analysis.by_group import compare_by, differing_labels, group_table, require_property
from pipeline.analysis.compare import BEST, Comparison, Correction, Selection, compare, find, read_flips, select
from pipeline.analysis.comparison_tables import (
    best_of,
    comparison_table,
    flip_table,
    reading_lines,
    rerun_variance_lines,
)
from pipeline.analysis.paired import (
    GOLD_DIGEST,
    RunConfiguration,
    other_gold,
    question_clusters,
    read_configurations,
    read_rows,
    same_questions,
)
from pipeline.analysis.rerun_variance import RerunVariance, measure_rerun_variance
from pipeline.analysis.score_notes import score_notes, unread_batches
from pipeline.analysis.seeds import OverSeeds, over_seeds
from pipeline.cli.arguments import Arguments, Trust
from pipeline.cli.output import Output
from pipeline.console import Console
from pipeline.engine.begun_in import refuse_other_folder
from pipeline.engine.configuration import Configuration
from pipeline.engine.resume import changed_sources, edited_sources
from pipeline.engine.retry_advice import RESTART, begun_by_other
from pipeline.engine.run import execute
from pipeline.errors import Outage, UserError
from pipeline.evaluation.budget_limits import MUCH_LIMITED, much_limited_line
from pipeline.evaluation.configuration_summary import among_others
from pipeline.evaluation.rescore import SCORES
from pipeline.evaluation.simulated import closed_book_lines
from pipeline.suggestions import did_you_mean
from pipeline.text import agreeing, counted
from pipeline.traces.folder import RunFolder
from pipeline.traces.run_file import differing_code

_SPAN = re.compile(r"(\d+)(?:-|:|\.\.)(\d+)")
"""A range of numbers, which is not how configurations are named."""
_LISTED = 20
"""The most numbers of a range that a message writes out."""


@dataclass(frozen=True, kw_only=True, config=ConfigDict(extra="forbid"))
class Sample:
    """The `noise` section of the configuration."""

    questions: NonNegativeInt


@dataclass(frozen=True, kw_only=True, config=ConfigDict(extra="forbid"))
class Plan:
    """The keys of `conf/compare.yaml`."""

    base: str | int | None
    configuration: str | int | tuple[str | int, ...] | None
    score: str
    top: PositiveInt
    correction: Correction
    cluster: str
    flips: str | int | None
    by: str | None
    noise: Sample
    run: Trust


def run(arguments: Arguments) -> Output:
    """Compare all configurations of the run folders with one of them."""
    plan: Plan = config.build_whole(arguments.compose())
    if plan.score not in SCORES:
        raise UserError(f"there is no score={plan.score}.{did_you_mean(plan.score, SCORES)} Known: {', '.join(SCORES)}")
    folders = arguments.run_folders()
    with Console(stderr=True).status("reading the runs"):
        configurations = read_configurations(folders, plan.score)
    configurations = _named(configurations, plan)
    selection = select(configurations, None if plan.base is None else str(plan.base), plan.score)
    base = selection.base
    if plan.by is not None:
        require_property(base, plan.by)
    clusters = question_clusters(read_rows(base.folder, ["meta"])[base.number], plan.cluster)
    variance = _run_again(base, plan) if plan.noise.questions else None
    others, score = selection.others, plan.score
    with Console(stderr=True).status(f"comparing {counted(len(others), 'configuration')} with {base.name}"):
        comparisons = compare(
            base, others, score=score, correction=plan.correction, clusters=clusters, variance=variance
        )
        by_group = compare_by(base, others, by=plan.by, score=score, clusters=clusters) if plan.by else []
    changed = None if plan.flips is None else _comparison(selection, comparisons, str(plan.flips))
    flips = changed and read_flips(base, changed)
    figures = {
        "score": plan.score,
        "dataset": base.dataset,
        "correction": plan.correction,
        "confidence": base.scoring.confidence,
        "cluster": clusters and clusters.field,
        "base": base.to_dict(),
        "points": [each.to_dict() for each in comparisons],
        "left_out": [{**each.to_dict(), "reason": reason} for each, reason in selection.left_out.items()],
        "by": plan.by,
        "groups": [each.to_dict() for each in by_group],
        "flips": flips and flips.to_dict(),
        "noise": variance and variance.to_dict(),
    }

    def tables(top: int) -> list[RenderableType]:
        table = comparison_table(
            selection, comparisons, score=plan.score, correction=plan.correction, clusters=clusters, top=top
        )
        built: list[RenderableType] = [Text("\n".join(reading_lines(configurations))), table]
        if plan.by:
            shown = [each.configuration for each in best_of(comparisons, top)]
            named = [group for each in shown for group in by_group if group.configuration is each]
            left_out = len(comparisons) - len(shown)
            built += ["", group_table(named, by=plan.by, score=plan.score, base=base, left_out=left_out)]
        if changed and flips:
            built += ["", flip_table(base, flips, binary=changed.exact_p is not None, top=top)]
        return built

    seeds = _over_seeds(base, others, score)
    notes = _notes(plan, selection, comparisons, variance, seeds)
    everything = max(len(base.rows), len(configurations))  # no table has more rows: questions, or configurations
    figures["seeds"] = seeds.to_list()
    return Output(figures, tables(plan.top), notes, full_tables=[*tables(everything), *seeds.tables()])


def _named(configurations: list[RunConfiguration], plan: Plan) -> list[RunConfiguration]:
    """Return the configurations that `configuration` names, in this order, and the base. Raises UserError."""
    if plan.configuration is None:
        return configurations
    names = plan.configuration if isinstance(plan.configuration, tuple) else (plan.configuration,)
    _refuse_span(str(plan.configuration), configurations)
    found = [find(configurations, "configuration", str(name)) for name in names]
    base = [] if plan.base in (None, BEST) else [find(configurations, "base", str(plan.base))]
    chosen = list(dict.fromkeys([*found, *base]))
    if len(chosen) < 2:
        raise UserError(f"configuration={names[0]} is a single one: name two, as in configuration=[0,3], or a base")
    return chosen


def _refuse_span(name: str, configurations: Sequence[RunConfiguration]) -> None:
    """Raise UserError for `1-3`, which is no list of configurations, unless one of them has this name."""
    span = _SPAN.fullmatch(name)
    if span is None or any(name in (each.name, each.name.rpartition(":")[0]) for each in configurations):
        return
    first, last = sorted(map(int, span.groups()))
    every = list(map(str, range(first, min(last, first + _LISTED) + 1)))
    shown = every if every[-1] == str(last) else [str(first), str(first + 1), "…", str(last)]
    raise UserError(f"configuration={name} is no list: name each one, as in configuration=[{','.join(shown)}]")


def _comparison(selection: Selection, comparisons: Sequence[Comparison], name: str) -> Comparison:
    """Find the comparison of the configuration that `flips` names. Raises UserError for one that has none."""
    wanted = find([selection.base, *selection.others, *selection.left_out], "flips", name)
    if wanted is selection.base:
        raise UserError(f"flips={name} is the base itself: name the configuration to compare with it")
    if reason := selection.left_out.get(wanted):
        raise UserError(
            f"flips={name} cannot be compared with the base {selection.base.name}: {reason}. base= takes another one"
        )
    return comparisons[selection.others.index(wanted)]


def _run_again(base: RunConfiguration, plan: Plan) -> RerunVariance:
    """Run the base configuration again on the first questions, in a folder inside its own; resume what is there."""
    if not plan.run.trust:
        config.refuse_untrusted([base.config], base.folder.path / "run.yaml")
    run = base.config["run"]
    questions = min(plan.noise.questions, run["limit"] or plan.noise.questions)
    folder = RunFolder(base.folder.path.absolute() / "noise" / f"point-{base.number}-questions-{questions}")
    keys: dict[str, Any] = {"dir": str(folder.path), "limit": questions, "reuse": [], "retry_failed": False}
    again = config.complete({**base.config, "run": {**run, **keys}})
    refuse_other_folder(base.folder.path / "run.yaml", base.folder.require_run(), [again])
    try:
        config.check(again)
    except UserError:
        if edited_sources(base.folder.require_run()["points"][base.number], again):
            _refuse_other_code(base, again)  # an edited class may lack a key of the run, or have a new one
        raise
    _refuse_other_code(base, again)
    configuration = Configuration((*base.overrides, f"run.limit={questions}"), again)
    _describe_as_base(folder, base, configuration)
    try:
        execute([configuration], Console(stderr=True))
    except Outage:
        raise
    except UserError as error:
        cause = str(error).partition(f". {RESTART}")[0]  # the rest is advice about the command of a run
        raise UserError(f"noise.questions could not run the base again: {cause}") from None
    (second,) = read_configurations([folder.path], plan.score)
    _refuse_other_questions(base, second)
    return measure_rerun_variance(base, second, plan.score)


def _refuse_other_questions(base: RunConfiguration, second: RunConfiguration) -> None:
    """Raise UserError if the questions or gold answers of the base have changed since its run."""
    both = base.rows.join(second.rows, on="question_id", suffix="_again")
    edited = both.filter(pl.col("question") != pl.col("question_again"))["question_id"].sort()
    if len(edited):
        with second.folder.held():
            second.folder.clear()
        raise UserError(f"noise.questions: the text of {edited[0]} has changed since {base.folder.path} answered it")
    if other_gold(*(each.rows.select("question_id", GOLD_DIGEST) for each in (base, second))):
        raise UserError(
            f"noise.questions: gold answers have changed since {base.folder.path} was scored. Its command scores it "
            "again, without a call"
        )


def _refuse_other_code(base: RunConfiguration, again: Mapping[str, Any]) -> None:
    """Raise UserError if the base run had another source or version: their difference would count as noise."""
    saved = base.folder.require_run()
    if "id" not in saved:  # a run of an older version, which did not record its code
        return
    changed = begun_by_other(saved) and "the version of kgqa-pipeline"
    if sources := changed_sources(saved["points"][base.number], again):
        changed = f"the source of {sources[0]}"
    if changed:
        raise UserError(
            f"noise.questions runs the base again, but {changed} has changed since {base.folder.path} was begun: undo "
            "the change, or run the base anew"
        )


def _describe_as_base(folder: RunFolder, base: RunConfiguration, configuration: Configuration) -> None:
    """Write a run.yaml with the sources, data, model and graph of the base run, so that the new run refuses other ones.

    If the folder holds a run of other ones, the base run has been started again since: that run is removed.
    """
    saved = base.folder.require_run()
    point = {
        **saved["points"][base.number],
        "overrides": list(configuration.overrides),
        "config": dict(configuration.config),
    }
    described = {name: value for name, value in saved.items() if name not in ("id", "begun_in")}
    described |= {"points": [point], "served": [dict(base.served)]}
    earlier = folder.read_run()
    if earlier is not None and _asked(earlier) == _asked(described):
        return
    folder.create()
    with folder.held():
        folder.clear()
        folder.write_run(described)


def _asked(run: Mapping[str, Any]) -> str:
    """Return what a run of one configuration asks, and of which model, graph, data and sources, as a text."""
    (point,) = run["points"]
    sections = {name: section for name, section in point["config"].items() if name != "run"}
    return config.canonical({**point, "overrides": None, "config": sections, "served": run["served"]})


def _is_rescored(folder: RunFolder, configurations: Sequence[RunConfiguration], score: str) -> bool:
    """Whether the summary of a run has another score for one of these configurations than its traces."""
    summary = folder.read_summary() or {"points": []}
    saved = {point["point"]: point.get(score) for point in summary["points"]}
    own = {each.number: each.mean(score) for each in configurations if each.folder == folder}
    return any(number in saved and not _are_equal(saved[number], mean) for number, mean in own.items())


def _are_equal(one: float | None, other: float | None) -> bool:
    return one == other or bool(one and other and isclose(one, other, abs_tol=1e-4))


def _over_seeds(base: RunConfiguration, others: Sequence[RunConfiguration], score: str) -> OverSeeds:
    """Return the means over seeds, of those that answered the questions of the base."""
    alike = [base, *(each for each in others if same_questions(base, each))]
    counters = ("llm_calls", "llm_calls_shared", "prompt_tokens", "completion_tokens")
    return over_seeds(
        score,
        [each.config for each in alike],
        [each.served for each in alike],
        [each.method for each in alike],
        [each.overrides for each in alike],
        scores=[each.mean(score) for each in alike],
        costs=[each.rows.select(counters).sum().row(0, named=True) for each in alike],
    )


def _limits(base: RunConfiguration, others: Sequence[RunConfiguration]) -> list[str]:
    """Say in which configurations more than 1 % of the questions met a limit, the highest share first (§2.5).

    The questions are those that the base and the other configuration answered.
    """
    asked = base.rows["question_id"]
    answered = pl.concat([each.rows["question_id"] for each in others]) if others else asked
    named = [(base.limited_share(answered), base.name), *((each.limited_share(asked), each.name) for each in others)]
    shares = sorted(named, key=lambda pair: (-pair[0], pair[1]))
    high = [pair for pair in shares if pair[0] > MUCH_LIMITED]
    return [much_limited_line(high, [share for share, _ in shares])] if high else []


def _notes(
    plan: Plan,
    selection: Selection,
    comparisons: Sequence[Comparison],
    variance: RerunVariance | None,
    seeds: OverSeeds,
) -> list[str]:
    base = selection.base
    notes = closed_book_lines([each.method for each in (base, *selection.others) if each.closed_book])
    if plan.base == BEST:
        among = among_others(base, selection.others)
        notes.append(
            f"{base.name} has the highest score{among} on the questions that all compared configurations answered (of "
            "equal ones the one with the fewest calls, and of these the fewest tokens); part of a lead may be chance, "
            "as these questions decided which one leads"
        )
    if not all(same_questions(base, other) for other in selection.others):
        notes.append(
            "not all configurations answered the same questions: each is compared with the base on those that both "
            "answered, and its score and costs are those of these questions"
        )
    for reason, count in Counter(selection.left_out.values()).items():
        notes.append(f"{counted(count, 'configuration')} left out, not comparable with {base.name}: {reason}")
    if plan.by:
        notes += [
            f"{counted(count, 'question')} of {each.name} {agreeing('have', count)} another {plan.by} there: "
            f"{agreeing('they', count)} {agreeing('stand', count)} in the groups of {base.name}"
            for each, count in differing_labels(base, selection.others, plan.by).items()
            if count
        ]
    notes += dict.fromkeys(
        f"{base.folder.path} and {other.folder.path} ran with different sources of {name}: scores may differ for that"
        for other in selection.others
        for name in differing_code([base.code, other.code])
    )
    notes += seeds.lines()
    notes += _limits(base, selection.others)
    folders = dict.fromkeys(each.folder for each in (base, *selection.others))
    rescored = [each.path for each in folders if _is_rescored(each, (base, *selection.others), plan.score)]
    notes += [
        f"kgqa score has given {path} new scores, which are in its summary; a comparison uses those of the run, which "
        "are in its traces"
        for path in rescored
    ]
    notes += chain.from_iterable(map(score_notes, folders))
    notes += unread_batches(list(folders))
    most = max(each.questions for each in comparisons)
    measured = rerun_variance_lines(base, variance, score=plan.score, questions=most) if variance else []
    return [*notes, *measured]
