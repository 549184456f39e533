"""`kgqa report`: show the configurations of runs on one HTML page that needs only a browser."""

from __future__ import annotations

import mimetypes
from collections.abc import Iterator, Sequence
from dataclasses import replace
from itertools import chain
from pathlib import Path

import polars as pl

from pipeline import config
from pipeline.analysis.score_notes import unread_batches
from pipeline.analysis.seeds import seed_groups
from pipeline.analysis.unreadable_roles import unreadable_notes
from pipeline.cli.arguments import Arguments
from pipeline.cli.output import Output
from pipeline.cli.run_output import REPORT
from pipeline.console import Console
from pipeline.engine.retry_advice import TOO_LONG, is_final, is_too_long
from pipeline.errors import StorageError, UserError
from pipeline.evaluation.configuration_summary import Group, best_first, is_oracle, lacking_in_oracles, rivals
from pipeline.evaluation.score_tables import FittingTable, percent, sweep_table
from pipeline.evaluation.simulated import gold_lines
from pipeline.evaluation.statistics import mean_over_seeds
from pipeline.evaluation.unreadable import much_unreadable
from pipeline.percentages import percentage
from pipeline.report.build_page import build_page
from pipeline.report.data import Configuration, can_retry_any, read_blocks, retry_refusals_of
from pipeline.report.render_page import render
from pipeline.text import agreeing, counted, counted_questions, kgqa, show_command
from pipeline.traces.folder import RunFolder
from pipeline.traces.storage import StoragePath, storage_path, write_whole

_SCORE = "hits_at_1"


def run(arguments: Arguments) -> Output:
    """Write the report of the run folders. Print its path, what the runs show, and what to do next."""
    output = _take_output(arguments)
    runs = arguments.run_folders()
    file = storage_path(output) if output else (runs[0] if len(runs) == 1 else runs[0].parent) / REPORT
    with Console(stderr=True).status("reading the runs"):
        blocks = read_blocks(runs)
        page = render(build_page(blocks))
    try:
        write_whole(file, page.encode())
    except StorageError as error:
        raise UserError(f"output={error}") from None
    is_local = isinstance(file, Path)
    opening = (
        f"Open it in a browser: {file.absolute().as_uri()}" if is_local else "A browser opens a copy on this machine"
    )
    configurations = [each for block in blocks for each in block.configurations]
    seen = chain.from_iterable(_seen(run, [each for each in configurations if each.run.path == run]) for run in runs)
    unread = (f"{line}." for line in unread_batches(list(map(RunFolder, runs))))
    tables = [_table(block.configurations, several_runs=len(runs) > 1) for block in blocks]
    return Output({"output": str(file)}, lines=[str(file)], notes=[*seen, *unread, opening], full_tables=tables)


def _table(configurations: Sequence[Configuration], *, several_runs: bool) -> FittingTable:
    """Build the table for files. The numbers of configurations of several runs have their run folder in front."""
    names = [f"{each.run.path}:{each.summary.number}" for each in configurations] if several_runs else ()
    return sweep_table([each.summary for each in configurations], names)


def _seen(path: StoragePath, configurations: Sequence[Configuration]) -> Iterator[str]:
    """Say in a few sentences what a run shows, and which command explains a wrong answer."""
    scored = [each for each in configurations if _SCORE in each.summary.scores]
    if scored:
        yield from _results(path, scored, len(configurations))
        yield from gold_lines([each.summary for each in scored])
    yield from _unsound(path, configurations)


def _results(path: StoragePath, scored: Sequence[Configuration], configurations: int) -> Iterator[str]:
    """Say which of the configurations of a run that have a score is the best. The run has so many `configurations`."""
    summaries = [each.summary for each in scored]
    among = [scored[each] for each in rivals([(each.asked, each.questions, is_oracle(each)) for each in summaries])]
    if not among:
        several = counted(len(scored), "configuration")
        yield f"{path}: {several}, not asked the same questions of one graph: none is the best."
        return
    means = [each.summary.score(_SCORE) for each in among]
    best = scored[best_first(summaries)[0]]
    score, dataset, number = best.summary.scores[_SCORE], best.summary.dataset, best.summary.number
    asked = counted(score.questions, "question")
    correct = f"{best.summary.method} answered {score.mean * score.questions:,.0f} of {asked} of {dataset} correctly"
    if len(scored) > 1:
        share = " to ".join(dict.fromkeys(map(percent, (min(means), max(means)))))
        alike = f", of which {len(among)} {_common(among, scored)}" if len(among) < len(scored) else ""
        place = "one of the best" if means.count(max(means)) > 1 else "the best"
        yield f"{path}: {counted(len(scored), 'configuration')}{alike}, with strict Hits@1 {share} %."
        whose = "None of those" if len(among) < len(scored) else "No configuration"
        none = f"{whose} answered one of {asked} of {dataset} correctly."
        yield f"In configuration {number}, {place}, {correct}." if max(means) else none
        yield from _seeds(best, among)
    else:
        yield f"{path}: {correct} (strict Hits@1 {percent(score.mean)} %)."
        yield from _by_hops(best.summary.breakdown.get("hops", ()))
    wrong = best.rows.filter(pl.col(_SCORE) == 0)["question_id"].sort()
    if len(wrong):
        yield f"{show_command(path, wrong[0], number, configurations)} prints every step of a wrong answer."


def _seeds(best: Configuration, among: Sequence[Configuration]) -> Iterator[str]:
    """Say that the best configuration is one of several seeds with other scores."""
    for group in seed_groups([each.resolved for each in among], [each.served for each in among]):
        draws = [among[position] for position in group]
        scores = [each.summary.score(_SCORE) for each in draws]
        if any(each is best for each in draws) and len(set(scores)) > 1:
            mean = mean_over_seeds(scores)
            over = f"{percent(mean.mean)} ± {percentage(mean.high - mean.mean)} % (1.96·s/√n)"
            yield f"It is one of {counted(len(draws), 'seed')}, and the best draw is luck: their mean is {over}."


def _common(among: Sequence[Configuration], scored: Sequence[Configuration]) -> str:
    """Say what the configurations `among` those that are scored have in common, and others have not."""
    best = among[0].summary
    has_less = any(each.summary.questions < best.questions for each in scored)
    alone = lacking_in_oracles(best, [each.summary for each in scored])
    return " and ".join(["answered all questions"] * has_less + alone)


def _unsound(path: StoragePath, configurations: Sequence[Configuration]) -> Iterator[str]:
    """Say what the scores rest on, how many questions failed, and how many replies could not be read if many."""
    summaries = [each.summary for each in configurations]
    yield from (f"{note}." for note in configurations[0].run.score_notes)
    if failed := sum(each.failed for each in summaries):
        errors = configurations[0].run.errors
        is_vain = not can_retry_any(configurations) or all(map(is_final, errors))
        again = "" if is_vain else f": {kgqa('evaluate', path / 'run.yaml', 'run.retry_failed=true')} asks again"
        said = f"{counted_questions(failed, len(summaries))} failed and {agreeing('count', failed)} as wrong"
        yield f"{said}{again}."
        yield from [f"{TOO_LONG}."] if any(map(is_too_long, errors)) else []
        yield from (f"{refusal}." for refusal in retry_refusals_of(configurations))
    if much_unreadable(summaries):
        yield from unreadable_notes(RunFolder(path), summaries)


def _by_hops(groups: Sequence[Group]) -> Iterator[str]:
    """Compare the questions by the number of hops, if it is known and makes a difference."""
    means = {group.value: group.scores[_SCORE].mean for group in groups if _SCORE in group.scores}
    if len(set(means.values())) > 1:
        worst, best = min(means, key=lambda hops: means[hops]), max(means, key=lambda hops: means[hops])
        high, low = percent(means[best]), percent(means[worst])
        yield f"By hops, it did best at {best} ({high} %) and worst at {worst} ({low} %)."


def _take_output(arguments: Arguments) -> str | None:
    """Return `output`, literally: a file may have a name with characters that are special in an override.

    Raises UserError for the name of another kind of file, such as `report.pdf`.
    """
    literal = [word for word in arguments.overrides if word.startswith("output=")]
    others = [word for word in arguments.overrides if word not in literal]
    composed: str | None = replace(arguments, overrides=others).compose()["output"]
    output = config.literal_value(literal[-1]) if literal else composed
    kind, _ = mimetypes.guess_type(output or "", strict=False)
    if kind not in (None, "text/html"):
        raise UserError(f"output={output}: the report is an HTML page, so its name must end in .html")
    return output
