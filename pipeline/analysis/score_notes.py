"""Notes about what the scores of a run rest on, for every command and page that shows some."""

from __future__ import annotations

import shlex
from collections.abc import Iterable, Mapping, Sequence
from itertools import chain
from typing import Any

import polars as pl

from pipeline.engine.retry_advice import begun_by_other, with_new_folder
from pipeline.evaluation.question_groups import MANY_REPEATED, repeated_text
from pipeline.llm.interface import replies_from_gold
from pipeline.text import agreeing, counted, kgqa, printable
from pipeline.traces.folder import BATCH, RunFolder
from pipeline.traces.reader import count_older_replies, count_questions, read_shards
from pipeline.traces.storage import StoragePath


def score_notes(folder: RunFolder) -> list[str]:
    """Say that a run is not complete, has no token counts, or repeats questions.

    Say also that it has replies of several models, or replies from other gold answers.

    Raises UserError if the folder has no finished shard, or a file that cannot be read.
    """
    datasets = [point["config"]["dataset"] for point in folder.require_run()["points"]]
    return [
        *_unfinished_notes(folder),
        *_older_replies_notes(folder),
        *_token_notes(folder),
        *_model_notes(folder),
        *_repeated_notes(folder),
        *alias_notes(datasets),
    ]


def alias_notes(datasets: Iterable[Mapping[str, Any]]) -> list[str]:
    """Say that files gave the gold answers further names, by the `dataset` sections: they raise scores (§9.3)."""
    lists = [files for dataset in datasets if isinstance(files := dataset.get("aliases"), list)]
    files = dict.fromkeys(map(str, chain.from_iterable(lists)))
    return [f"gold answers have further names from dataset.aliases: {', '.join(files)}"] if files else []


def single_run_notes(folder: RunFolder) -> list[str]:
    """Return the notes for a command that reads one run: those of its scores, and the batches that it does not read."""
    return [*score_notes(folder), *unread_batches([folder])]


def unread_batches(folders: Sequence[RunFolder]) -> list[str]:
    """Say that a folder is the first batch of a search, if a command reads it without the other batches."""
    read = {each.path.resolve() for each in folders}
    unread = {each.path: [batch for batch in each.batches() if batch.resolve() not in read] for each in folders}
    return [
        f"{path} has only the first batch of its search. The others are in its folders {BATCH}…: {compares_all(path)}"
        for path, batches in unread.items()
        if batches
    ]


def compares_all(path: StoragePath) -> str:
    """Name the command that compares the configurations of all batches of the search in a folder."""
    return f"{kgqa('compare', path)} {shlex.quote(str(path))}/{BATCH}* compares all"


def _unfinished_notes(folder: RunFolder) -> list[str]:
    if folder.read_summary() is not None:
        return []
    count, state, run = count_questions(folder), folder.state(None), folder.require_run()
    configurations = len(run["points"])
    answered = pl.concat(read_shards(folder, ["point"]))["point"].value_counts()["count"]
    # Those of several datasets have not answered equally many.
    are_alike = len(answered) == configurations > 1 and answered.n_unique() == 1
    each = f", in each of {counted(configurations, 'configuration')}" if are_alike else ""
    goes_on = f"{kgqa('evaluate', folder.path / 'run.yaml')} continues it"
    if other := begun_by_other(run):
        goes_on = f"{other} began it, and this version does not continue it: {with_new_folder(folder.path)}"
    others = f". {goes_on}" if state == "not complete" else ""
    error = folder.read_error()
    reason = f", because {error}" if error else ""
    left = configurations - len(answered)
    left_out = [
        f"{counted(left, 'configuration')} of {folder.path} {agreeing('have', left)} no finished question yet: "
        f"{agreeing('they', left)} {agreeing('are', left)} left out"
    ]
    return [
        f"{folder.path} is {state}: only the {counted(count, 'question')} in its finished shards "
        f"{agreeing('are', count)} counted{each}{reason}{others}",
        *(left_out if left else []),
    ]


def _token_notes(folder: RunFolder) -> list[str]:
    """Say that the servers of a finished run counted no tokens, or not those of all calls."""
    points = (folder.read_summary() or {}).get("points", ())
    # A call that failed counts no tokens either.
    answered = [point for point in points if point.get("llm_calls") and point["failed"] < point["questions"]]
    if all(point["prompt_tokens"] + point["completion_tokens"] for point in answered):
        return uncounted_tokens(points)
    return ["the model servers reported no token counts (`usage`): the tokens are not known, and shown as 0"]


def _model_notes(folder: RunFolder) -> list[str]:
    """Say that servers which were asked for one model answered under several names, perhaps because it was replaced."""
    answered = (folder.read_summary() or {}).get("answered_as", {})
    return [
        f"the servers of {printable(asked)} answered as {printable(', '.join(names))}: the scores are of replies of all"
        for asked, names in answered.items()
        if len(names) > 1
    ]


def _repeated_notes(folder: RunFolder) -> list[str]:
    """Say that many questions of a finished run repeat others."""
    summary = folder.read_summary() or {}
    repeated, questions = summary.get("repeated_questions", 0), summary.get("questions", 0)
    if repeated <= MANY_REPEATED * questions:
        return []
    return [repeated_text(repeated, counted(questions, "question"))]


def uncounted_tokens(points: Iterable[Mapping[str, Any]]) -> list[str]:
    """Say how many calls of some configurations of a summary came without token counts; nothing if none did."""
    uncounted = sum(point.get("calls_without_tokens") or 0 for point in points)
    calls = sum(point["llm_calls"] for point in points)
    said = f"{uncounted:,} of the replies to {counted(calls, 'model call')} had no token counts (`usage`)"
    return [f"{said}: the tokens, and the costs computed from them, are too low"] if uncounted else []


def _older_replies_notes(folder: RunFolder) -> list[str]:
    """Say how many questions of a simulated run were answered from other gold answers than they are scored by."""
    if not any(replies_from_gold(served["label"]) for served in folder.require_run()["served"]):
        return []
    count = count_older_replies(folder)
    return [older_replies_note(folder.path, count)] if count else []


def older_replies_note(path: object, count: int) -> str:
    """Say that so many questions of the run in the folder `path` were answered from older gold answers."""
    return (
        f"in {path}, new gold answers score {counted(count, 'question')} that a simulated model answered from "
        "older ones: run.restart=true answers them again"
    )
