"""The driver of a run: prepares the folder, refuses drift, feeds shards to an executor, and writes the summary."""

from __future__ import annotations

import asyncio
import signal
import threading
import time
from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import asdict
from itertools import chain
from types import FrameType
from typing import Any

from pipeline import config
from pipeline.console import Console, with_progress
from pipeline.datasets.selection import Selection
from pipeline.engine import resume
from pipeline.engine.configuration import (
    Configuration,
    check_common,
    check_role_names,
    first_equal,
    model_remarks,
    run_dir,
)
from pipeline.engine.early_stopping import EarlyStopping
from pipeline.engine.local import run_local
from pipeline.engine.logs import console_of, json_lines
from pipeline.engine.model_servers import model_servers
from pipeline.engine.progress import RunProgress
from pipeline.engine.rejections import Rejections
from pipeline.engine.repeated_failures import RepeatedFailures
from pipeline.engine.retry_advice import retry_in_search
from pipeline.engine.run_description import RunDescription, read_resumable
from pipeline.engine.run_summary import TIMES, RunTotals, renewed_summary, summarise
from pipeline.engine.shard import Part, Rounds, UnfinishedRounds, count_rows, shards
from pipeline.engine.sources import refuse_edited
from pipeline.engine.unreadable_replies import UnreadableReplies
from pipeline.errors import Outage, StorageError, Unreachable, UserError, single_errors
from pipeline.evaluation.configuration_summary import ConfigurationSummary, differing_overrides
from pipeline.llm.interface import replies_from_gold
from pipeline.methods.interface import uses_gold
from pipeline.text import counted
from pipeline.traces.folder import BATCH, RunFolder
from pipeline.traces.reader import failed_shards, read_shards
from pipeline.traces.storage import storage_path

_BLOCKED = "the run does not stop, because code computes without a pause: press Ctrl-C again to stop at once"
_BLOCKED_S = 2.0
"""Seconds after Ctrl-C without a turn of the event loop after which `_BLOCKED` is printed."""
_STOPPING = "stopping: calls in flight are given up, and made again when the run goes on"


def _folder_remarks(folder: RunFolder) -> Iterator[str]:
    """Say what is unusual about the place of the run folder."""
    if not folder.has_run and (other := folder.other_file()):
        yield f"{folder.path} holds other files, such as {other}"
    if (outer := folder.outer_run()) and not folder.path.name.startswith(BATCH):
        yield f"{folder.path} is inside the run folder {outer}: kgqa ls there or above does not list it"


def execute(configurations: Sequence[Configuration], console: Console) -> list[ConfigurationSummary]:
    """Run the configurations to their end, or resume them, and summarise them.

    Raises UserError for a wrong value, and if the folder holds a run of other configurations.
    """
    distinct = _checked(configurations, console)
    folder = RunFolder(run_dir(configurations))
    restart = configurations[0].config["run"]["restart"]
    saved = None if restart else read_resumable(folder, configurations)
    _refuse_reuse_of_replaced(folder, distinct)
    for remark in resume.check_reuse(distinct):
        console.print(remark, markup=False, soft_wrap=True)
    for remark in _folder_remarks(folder):
        console.print(remark, markup=False, soft_wrap=True)
    created = folder.create()
    engine = configurations[0].config["engine"]
    console = console_of(engine, console)
    try:
        with folder.held(), json_lines(engine, run=folder.path.name, worker="driver"):
            description = RunDescription(configurations, folder, saved, console)
            with description.told_if_stopped():
                totals = asyncio.run(_run_shards(configurations, folder, saved, description, console))
            return summarise(folder, totals)
    except BaseException as error:
        folder.remove_if_empty(created, is_wrong=isinstance(error, Exception) and _is_wrong(error))
        raise


def _checked(configurations: Sequence[Configuration], console: Console) -> list[Mapping[str, Any]]:
    """Return the distinct configurations, and print what is remarkable about them. Raises UserError."""
    firsts = first_equal(configurations)
    distinct = [configurations[number] for number in dict.fromkeys(firsts)]
    for each in with_progress(distinct, "checking the configurations", console):
        each.check()
    if repeated := [(number, first) for number, first in enumerate(firsts) if number != first]:
        said = "configuration {} is equal to configuration {}".format(*repeated[0])
        more = f", and {len(repeated) - 1:,} more to an earlier one" if len(repeated) > 1 else ""
        console.print(f"{said}{more}", markup=False, soft_wrap=True)
    configs = [each.config for each in distinct]
    refuse_edited(configs)
    check_role_names(configs)
    check_common(configurations)
    for remark in dict.fromkeys(chain.from_iterable(map(model_remarks, configs))):
        console.print(remark, markup=False, soft_wrap=True)
    return configs


def _is_wrong(error: Exception) -> bool:
    """Whether the command has to be changed: servers that answer again, or free space on a disk, do not help."""
    return all(
        isinstance(each, UserError) and not isinstance(each, Outage | StorageError) for each in single_errors(error)
    )


def _refuse_reuse_of_replaced(folder: RunFolder, configs: Sequence[Mapping[str, Any]]) -> None:
    """Raise UserError if a new run is to reuse the calls of the run that it replaces."""
    for key, run in resume.replayed_runs(configs):
        if configs[0]["run"]["restart"] and storage_path(run).absolute() == folder.path:
            raise UserError(
                f"{key}={run} names the results that run.restart=true deletes: leave out run.restart=true, and name "
                "another run.dir"
            )


async def _run_shards(
    configurations: Sequence[Configuration],
    folder: RunFolder,
    saved: Mapping[str, Any] | None,
    description: RunDescription,
    console: Console,
) -> RunTotals:
    """Run every shard that is not finished. Raises UserError if there is no question."""
    configs = [each.config for each in configurations]
    run, engine = configs[0]["run"], configs[0]["engine"]
    parts, size = _parts(configurations), engine["shard_size"]
    finished, graphs_compared = set() if saved is None else folder.finished(), False
    if saved is not None and finished:
        finished, graphs_compared = await _compare_dataset(configurations, folder, saved, parts, console)
    is_resumed = bool(finished or description.kept_calls)
    finished -= _shards_to_retry(folder) if finished and run["retry_failed"] else set()
    rejections = Rejections(folder.rejected, strict=config.is_strict(configs[0]))
    ended = description.began
    with console.status("counting the questions"):
        total, done = count_rows(parts, size=size, finished=finished)
        if finished and run["early_stopping"]:  # the configurations that were dropped have no rows there
            done = sum(shard.height for shard in read_shards(folder, ["point"], indices=sorted(finished)))
    may_retry = not (run["early_stopping"] or folder.search or folder.deciding_search)
    failures = RepeatedFailures(
        run["max_equal_failures"],
        questions=(total - done) // len(configs),
        configurations=len(configs),
        may_retry=may_retry,
        is_resumed=bool(finished),
    )
    progress = RunProgress(
        console,
        total=total,
        done=done,
        on_opened=description.on_opened,
        confidence=configs[0]["evaluation"]["confidence"],
        names=_names(configurations),
        is_resumed=is_resumed,
        checks=[failures.check, UnreadableReplies(_names(configurations)).check],
    )
    rounds: Rounds = iter([shards(parts, rejections.add, size=size)])
    if run["early_stopping"]:
        stopping = EarlyStopping(folder, run["early_stopping"], progress.on_drop)
        rounds = stopping.rounds(parts, rejections.add, size=size)
    unfinished = UnfinishedRounds(rounds, finished, description.id)
    with description.stored(rejections):
        has_work = unfinished.find_first()
        if not unfinished.questions:
            unreadable = f". {rejections.first}" if rejections.count else ""
            raise UserError(f"the dataset has no question to answer: see what its keys select{unreadable}")
        if has_work:
            async with model_servers(configs, console) as served:
                try:
                    with progress, _stop_announced(progress.say), _outage_if(is_resumed):
                        await _executor(engine["name"])(served, folder.path, unfinished, progress)
                        progress.on_complete()
                finally:
                    if failures.error:
                        folder.write_error(failures.error)
                ended = time.monotonic()  # servers that are stopped afterwards do not count
        else:
            if saved is not None:
                await resume.refuse_other_models(folder, saved, configs, console)
                if not graphs_compared:
                    await resume.refuse_other_graphs(folder, saved, configs, console)
            description.accept()
            console.print("every shard is finished already: nothing to run")
    times = {
        "wall_s": ended - description.began,
        "opening_s": description.opened - description.began,
        "loop_lag_s": progress.sum.loop_lag_s,
    }
    if not has_work and (earlier := folder.read_summary()):
        times, is_resumed = {name: earlier[name] for name in TIMES}, earlier.get("resumed", False)
    questions = tuple(unfinished.questions[number] for number in range(len(configurations)))
    return RunTotals(questions, rejections.count, run["max_failed"], is_resumed=is_resumed, **times)


@contextmanager
def _outage_if(is_resumed: bool) -> Iterator[None]:
    """Raise Outage in place of Unreachable if the run had begun before: its servers have answered then."""
    try:
        yield
    except (Unreachable, ExceptionGroup) as error:
        reason = next((each for each in single_errors(error) if isinstance(each, Unreachable)), None)
        if not is_resumed or reason is None:
            raise
        raise Outage(str(reason)) from None


@contextmanager
def _stop_announced(say: Callable[[str], None]) -> Iterator[None]:
    """Say at once what Ctrl-C or SIGTERM does: to close models, servers and workers takes seconds."""
    before = signal.getsignal(signal.SIGINT)  # the event loop's, which cancels the run; SIGTERM calls it, too
    if not callable(before) or threading.current_thread() is not threading.main_thread():
        yield
        return
    stop, loop = before, asyncio.get_running_loop()

    def announce(number: int, frame: FrameType | None) -> None:
        signal.signal(signal.SIGINT, stop)  # which a second Ctrl-C reaches directly
        blocked = threading.Timer(_BLOCKED_S, say, [_BLOCKED])
        blocked.daemon = True
        blocked.start()

        def stopping() -> None:
            blocked.cancel()
            say(_STOPPING)

        loop.call_soon_threadsafe(stopping)
        stop(number, frame)

    signal.signal(signal.SIGINT, announce)
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, stop)


async def _compare_dataset(
    configurations: Sequence[Configuration],
    folder: RunFolder,
    saved: Mapping[str, Any],
    parts: Sequence[Part],
    console: Console,
) -> tuple[set[int], bool]:
    """Return the shards that stay finished with the current dataset, and whether the graphs were compared, too.

    They are before a shard is scored again for new gold answers or labels, which is reported.
    """
    configs = [each.config for each in configurations]
    with console.status("comparing the dataset with the answered questions"):
        finished, changes = resume.unchanged_shards(folder, saved, folder.finished(), parts, configs)
    if changes.renewed:
        await resume.refuse_other_graphs(folder, saved, configs, console)
        with renewed_summary(folder):  # before anything is printed: a closed pipe would leave the old scores in it
            resume.score_again(folder, saved, changes, configs[0])
    if changes.labels:
        console.print(f"the labels of {counted(changes.labels, 'question')} have changed: they were read again")
    if changes.gold:
        asked = counted(changes.gold, "question")
        console.print(f"the gold answers or gold paths of {asked} have changed: their rows were scored again")
        if _only_methods_use_gold(configurations, saved):  # for a simulated model, a note below the table says so
            console.print("the answers came from the older gold answers: run.restart=true answers the questions again")
    return finished, bool(changes.renewed)


def _only_methods_use_gold(configurations: Sequence[Configuration], saved: Mapping[str, Any]) -> bool:
    """Whether a method of the run is told about gold answers, and no model of the run replies from them."""
    methods = (config.build("method", each.config) for each in configurations)
    is_simulated = any(replies_from_gold(served["label"]) for served in saved["served"])
    return any(map(uses_gold, methods)) and not is_simulated


def _names(configurations: Sequence[Configuration]) -> list[str]:
    """Return how each configuration differs from the others; nothing for a single one."""
    if len(configurations) == 1:
        return []
    own = map(" ".join, differing_overrides([each.overrides for each in configurations]))
    return [words or each.config["choices"]["method"] for words, each in zip(own, configurations, strict=True)]


def _parts(configurations: Sequence[Configuration]) -> list[Part]:
    """Group the configurations that ask the same questions, in their order."""
    groups: defaultdict[str, list[int]] = defaultdict(list)
    for number, each in enumerate(configurations):
        groups[config.canonical([each.config["dataset"], asdict(Selection.of_run(each.config["run"]))])].append(number)
    firsts = [(tuple(numbers), configurations[numbers[0]].config) for numbers in groups.values()]
    return [Part(numbers, config.build("dataset", first), Selection.of_run(first["run"])) for numbers, first in firsts]


def _executor(name: str) -> Any:
    if name == "local":
        return run_local
    from pipeline.engine.ray import run_ray  # Ray takes a second to import

    return run_ray


def _shards_to_retry(folder: RunFolder) -> set[int]:
    """Return the shards with failed questions. Raises UserError if a search has chosen by their scores."""
    failed = failed_shards(folder)
    if failed and (search := folder.deciding_search):
        raise UserError(retry_in_search(folder.path, search))
    return failed
