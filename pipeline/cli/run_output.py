"""What commands print about a finished run: its tables, and notes about failed questions, limits and reused calls."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import asdict
from pathlib import Path
from typing import Any

from rich.console import RenderableType

from pipeline.analysis.cache_misses import NEW_QUESTION, explain_misses
from pipeline.analysis.met_limits import limit_notes
from pipeline.analysis.score_notes import compares_all, score_notes
from pipeline.analysis.seeds import OverSeeds, over_seeds, seed_groups
from pipeline.analysis.unreadable_roles import often_unreadable, unreadable_notes
from pipeline.cli.output import Output
from pipeline.engine.rejections import remarks
from pipeline.engine.retry_advice import RESTART, TOO_LONG, can_retry, is_final, is_too_long, retry_refusals
from pipeline.errors import FAILED_RUN, StorageError, UserError
from pipeline.evaluation.budget_limits import cut_replies_line, without_plan_line
from pipeline.evaluation.configuration_summary import (
    ConfigurationSummary,
    among_others,
    best_first,
    differing_overrides,
    is_oracle,
    rivals,
)
from pipeline.evaluation.score_file import full_score_tables
from pipeline.evaluation.score_tables import breakdown_table, score_table, sweep_table
from pipeline.grouping import grouped
from pipeline.imports import is_own
from pipeline.percentages import percentage
from pipeline.text import agreeing, counted, kgqa, show_command
from pipeline.traces.folder import RunFolder
from pipeline.traces.reader import OTHER_DATA, count_errors
from pipeline.traces.shard_file import results_digest
from pipeline.traces.storage import read_whole

REPORT = "report.html"
"""The name of the report in a run folder."""
DIGEST_NAME = b'name="kgqa-results"'
"""What names the digest of its results in a report."""
_REASONS = 3
"""How many reasons for failed questions, and for calls that could not be reused, are printed."""


def run_figures(folder: RunFolder, summaries: Sequence[ConfigurationSummary]) -> dict[str, Any]:
    """Return the contents of `summary.json` with the folder of the run, and the roles with unreadable replies."""
    roles = [asdict(each) for each in often_unreadable(folder, summaries)]
    return {"run": str(folder.path), **(folder.read_summary() or {}), "unreadable_roles": roles}


def run_output(folder: RunFolder, summaries: Sequence[ConfigurationSummary]) -> Output:
    """Return the scores of a finished run with its notes."""
    figures, notes = run_figures(folder, summaries), run_notes(folder, summaries)
    seeds = hits_over_seeds([folder], [summaries])
    if len(summaries) > 1:
        notes += sweep_notes([folder], [summaries], figures, seeds)
        figures["seeds"] = seeds.to_list()
    tables = score_tables(summaries)
    full = [*full_score_tables(tables, summaries), *seeds.tables()]
    return Output(figures, tables, notes, exit_code=exit_code(folder), full_tables=full)


def exit_code(*folders: RunFolder) -> int:
    """Return `FAILED_RUN` if too many questions of a finished run failed, else 0."""
    return FAILED_RUN if any(map(_failed_share, folders)) else 0


def score_tables(summaries: Sequence[ConfigurationSummary]) -> list[RenderableType]:
    """Return the table of several configurations; for a single one, its scores and their breakdown."""
    if len(summaries) > 1:
        return [sweep_table(summaries)]
    breakdown = [breakdown_table(summaries[0])] if summaries[0].breakdown else []
    return [score_table(summaries), *breakdown]


def run_notes(folder: RunFolder, summaries: Sequence[ConfigurationSummary]) -> list[str]:
    """Return the notes of `result_notes`, and why calls were not reused, by reading the runs that `run.yaml` names."""
    return [*result_notes(folder, summaries, exits=True), *_reuse_notes(folder, folder.read_summary() or {})]


def configuration_names(folders: Sequence[RunFolder], batches: Sequence[Sequence[ConfigurationSummary]]) -> list[str]:
    """Return the number of each configuration; of those of several runs, with the name of its run in front."""
    prefixes = [f"{folder.path.name}:" if len(folders) > 1 else "" for folder in folders]
    return [f"{prefix}{each.number}" for prefix, batch in zip(prefixes, batches, strict=True) for each in batch]


def sweep_notes(
    folders: Sequence[RunFolder],
    batches: Sequence[Sequence[ConfigurationSummary]],
    calls: Mapping[str, int],
    seeds: OverSeeds,
) -> list[str]:
    """Name the best of several configurations, and say how many calls they shared, and where several batches are.

    `calls` has the numbers `logical_llm_calls` and `physical_llm_calls` of all of them.
    """
    summaries = [summary for batch in batches for summary in batch]
    runs = [folder.require_run() for folder in folders]
    configs = [point["config"] for run in runs for point in run["points"]]
    methods = [each["choices"]["method"] for each in configs]
    groups = seed_groups(configs, [served for run in runs for served in run["served"]])
    names = configuration_names(folders, batches)
    best = [_best(summaries, methods, names, groups)] if len(summaries) > 1 else []
    alone, made = counted(calls["logical_llm_calls"], "call"), f"{calls['physical_llm_calls']:,}"
    shared = f"{counted(len(summaries), 'configuration')}: {alone} if each had run alone, {made} made"
    each_a_run = f"{len(folders)} batches, each a run: {compares_all(folders[0].path)}"
    return [*best, *seeds.lines(), *([each_a_run] if len(folders) > 1 else []), shared]


def hits_over_seeds(folders: Sequence[RunFolder], batches: Sequence[Sequence[ConfigurationSummary]]) -> OverSeeds:
    """Return the means of Hits@1 over seeds, of those that were asked the same questions."""
    summaries: list[ConfigurationSummary] = []
    configs: list[Mapping[str, Any]] = []
    served: list[Mapping[str, Any]] = []
    for folder, batch in zip(folders, batches, strict=True):
        run = folder.require_run()
        summaries += batch
        configs += [run["points"][each.number]["config"] for each in batch]
        served += [run["served"][each.number] for each in batch]
    alike = grouped(range(len(summaries)), lambda position: summaries[position].asked or "").values()
    asked = {positions[place] for positions in alike for place in _rivals([summaries[each] for each in positions])}
    hits = [
        each.scores["hits_at_1"].mean if position in asked and "hits_at_1" in each.scores else None
        for position, each in enumerate(summaries)
    ]
    methods = [each["choices"]["method"] for each in configs]
    costs = [each.counters for each in summaries]
    overrides = [each.overrides for each in summaries]
    return over_seeds("Hits@1", configs, served, methods, overrides, scores=hits, costs=costs)


def _rivals(summaries: Sequence[ConfigurationSummary]) -> list[int]:
    return rivals([(each.asked, each.questions, is_oracle(each)) for each in summaries])


def result_notes(folder: RunFolder, summaries: Sequence[ConfigurationSummary], *, exits: bool = False) -> list[str]:
    """Say what the scores rest on, how many questions failed or hit a budget, and which rows could not be read.

    No other folder is read. With `exits`, the command exits with `FAILED_RUN` if too many questions failed.
    """
    summary = folder.read_summary() or {}
    return [
        *score_notes(folder),
        *failure_notes(folder, summaries, exits=exits),
        *unreadable_notes(folder, summaries),
        *limit_notes(folder, summaries),
        *filter(None, [cut_replies_line(summaries), without_plan_line(summaries)]),
        *(_too_few_notes(folder, summaries) if summary.get("complete") else []),
        *remarks(summary.get("rejected", 0), folder.rejected),
        *_older_report(folder),
    ]


def _older_report(folder: RunFolder) -> list[str]:
    """Say that the report in the folder was made of other results than there are now."""
    report = folder.path / REPORT
    if not (isinstance(report, Path) and report.exists()):
        return []
    with suppress(StorageError):
        page = read_whole(report)
        digest = results_digest(list(map(folder.shard, sorted(folder.finished()))))
        if DIGEST_NAME in page and digest.encode() not in page:  # an older version wrote no digest
            return [f"{report} shows older results: {kgqa('report', folder.path)} makes it anew"]
    return []


def _too_few_notes(folder: RunFolder, summaries: Sequence[ConfigurationSummary]) -> list[str]:
    """Say where `run.limit` or `run.sample` asks for more questions than there are."""
    points = folder.require_run()["points"]
    runs = [points[summary.number]["config"]["run"] for summary in summaries]
    # Early stopping drops configurations before the last question: of those with the same questions, the most count.
    most: dict[tuple[str, int | None, int | None], int] = {}
    for summary, run in zip(summaries, runs, strict=True):
        selected = (summary.dataset, run.get("sample"), run.get("limit"))
        most[selected] = max(summary.questions, most.get(selected, 0))
    notes = (_limit_note(*selected, questions) for selected, questions in most.items())
    return list(filter(None, notes))


def _limit_note(dataset: str, sample: int | None, limit: int | None, questions: int) -> str | None:
    given = {key: value for key, value in (("sample", sample), ("limit", limit)) if value is not None}
    if not given:
        return None
    lowest = min(given, key=given.__getitem__)
    asked = f"{counted(questions, 'question')} {agreeing('were', questions)} asked"
    if given[lowest] > questions:
        return f"run.{lowest}={given[lowest]} is more than there are to ask of {dataset}: {asked}"
    if lowest == "sample" and given.get("limit", 0) > given["sample"]:
        return f"run.limit={given['limit']} is more than run.sample={given['sample']} draws: {asked}"
    return None


def failure_notes(folder: RunFolder, summaries: Sequence[ConfigurationSummary], *, exits: bool = False) -> list[str]:
    """Say how many questions failed, with the most frequent errors and one question of each; nothing if none failed.

    With `exits`, the command exits with `FAILED_RUN` if too many failed.
    """
    if not any(each.failed for each in summaries):
        return []
    errors = count_errors(folder)
    several = len(summaries) > 1
    shown = [
        f"  {each.line} ({show_command(folder.path, each.question_id, each.configuration, len(summaries))})"
        for each in errors[:_REASONS]
    ]
    more = [f"  and {counted(len(errors) - _REASONS, 'other error')}"] if len(errors) > _REASONS else []
    share = _failed_share(folder)
    code = f": exit code {FAILED_RUN}" if exits else ""
    much = [f"more questions failed ({percentage(share)} %) than run.max_failed allows{code}"] if share else []
    run = folder.require_run()
    configs = [point["config"] for point in run["points"]]
    own = dict.fromkeys(name for each in configs if not is_own(name := str(each["method"]["_target_"])))
    enough = RESTART if folder.journal_calls() else "the same command is enough"
    free = [f"after an edit of {name}, {enough}" for name in own]
    counts = [(each.failed, each.answered) for each in summaries]
    search = folder.deciding_search
    edited = retry_refusals(folder.path, configs, run, counts, search) or free
    failed, asked = sum(each.failed for each in summaries), sum(each.answered for each in summaries)
    own_count = f", of {asked:,} in {counted(len(summaries), 'configuration')} (each counts its own)" if several else ""
    is_vain = not can_retry(configs, run, counts, search) or all(map(is_final, errors))
    retry = "run.retry_failed=true runs them again"
    if folder.search:  # its command runs other batches, too
        retry = f"run them again by {kgqa('evaluate', folder.path / 'run.yaml', 'run.retry_failed=true')}"
    again = "" if is_vain else f"; {retry}"
    said = f"{counted(failed, 'question')} failed{own_count}{again}:"
    return [said, *shown, *more, *([TOO_LONG] if any(map(is_too_long, errors)) else []), *edited, *much]


def _failed_share(folder: RunFolder) -> float:
    """Return the share of failed questions of the worst configuration if it is above the run's limit, else 0."""
    summary = folder.read_summary() or {"points": []}
    shares = (point["failed"] / max(1, point["questions"]) for point in summary["points"])
    worst = max(shares, default=0)
    return worst if worst > summary.get("max_failed", 1) else 0


def _reuse_notes(folder: RunFolder, summary: Mapping[str, Any]) -> list[str]:
    """Say how many calls a run with `run.reuse` took from the earlier runs, and why it made others."""
    earlier = folder.require_run()["points"][0]["config"]["run"]["reuse"]
    if not earlier or not summary:
        return []
    made, reused = summary["physical_llm_calls"], summary.get("reused_llm_calls")
    found = [] if reused is None else [f"run.reuse: {counted(reused, 'call')} taken from {', '.join(earlier)}"]
    if not made:
        return [*found, "run.reuse: no call had to be made"]
    try:
        return [*found, *_made_lines(explain_misses(folder, earlier), made)]
    except UserError as error:  # the earlier run may be gone, or on another machine: this one is whole without it
        return [*found, f"run.reuse: {counted(made, 'call')} had to be made; it is not known why, as {error}"]


def _made_lines(misses: Counter[str], made: int) -> Iterator[str]:
    """Say why calls were made in spite of `run.reuse`, the most frequent reasons first."""
    if stale := misses.pop(OTHER_DATA, 0):
        yield (
            f"run.reuse: {counted(stale, 'reply')} not taken over: the simulated model made them there from "
            "other gold answers, or for another graph"
        )
    if not (made := made - stale):
        return
    new = misses.pop(NEW_QUESTION, 0)
    reasons = misses.most_common()
    shown = "; ".join(f"{count:,} in {reason}" for reason, count in reasons[:_REASONS])
    others = reasons[_REASONS:]
    more = f"; {sum(count for _, count in others):,} for {counted(len(others), 'other reason')}" if others else ""
    why = [f"{new:,} for questions that no finished shard there has answered"] if new else []
    if reasons:
        why.append(f"{'the others' if new else 'they'} differ from the most similar ones there: {shown}{more}")
    if not why:
        yield f"run.reuse: {counted(made, 'call')} had to be made: they failed, or the earlier runs have gone on since"
        return
    yield f"run.reuse: {counted(made, 'call')} had to be made, because no earlier run has them: {'; '.join(why)}"


def _best(
    summaries: Sequence[ConfigurationSummary],
    methods: Sequence[str],
    names: Sequence[str],
    groups: Sequence[Sequence[int]],
) -> str:
    """Name the configuration with the highest Hits@1 by the choice of its method, and the overrides that only it has.

    Of equal ones, it is the one with the fewest calls per question, and of those the one with the fewest tokens. A
    score that is the oracle's alone is not the best. None is the best if all scores are zero, or if they were asked
    other questions, or of another graph.
    """
    equal = best_first(summaries)
    if not equal:
        return (
            "no configuration is named as the best: not all were asked the same questions of the same graph; equal "
            "calls are made once only for those that were"
        )
    best = equal[0]
    among = among_others(summaries[best], summaries)
    if not any("hits_at_1" in each.scores for each in summaries):
        return "no configuration is named as the best: no question has a gold answer, so none has a score"
    if "hits_at_1" not in (scores := summaries[best].scores) or not scores["hits_at_1"].mean:
        return f"no configuration is named as the best: none{among} has a right first answer"
    own = differing_overrides([summary.overrides for summary in summaries])
    words = [word for word in own[best] if not word.startswith(("run.", "method="))]
    named = f"highest Hits@1{among}: configuration {names[best]}, {' '.join([f'method={methods[best]}', *words])}"
    draws = next((f", one of {len(group)} seeds" for group in groups if best in group), "")
    named = f"{named}{draws}"
    cheapest = f"of {len(equal)} equal ones the one with the fewest calls, and of these the fewest tokens"
    return named if len(equal) == 1 else f"{named} ({cheapest})"
