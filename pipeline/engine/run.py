"""The driver of a run: prepares the folder, refuses drift, feeds shards to an executor, and writes the summary."""

from __future__ import annotations

import asyncio
import importlib.metadata
import platform
import secrets
import signal
import subprocess
import threading
import time
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import asdict, dataclass
from itertools import chain
from pathlib import Path
from types import FrameType
from typing import Any, TypeVar

from rich.progress import track

from pipeline import config
from pipeline.console import Console
from pipeline.datasets.interface import Dataset
from pipeline.datasets.remote import versions
from pipeline.datasets.selection import Selection
from pipeline.engine import resume
from pipeline.engine.begun_in import begun_in
from pipeline.engine.components import Backends
from pipeline.engine.early_stopping import EarlyStopping
from pipeline.engine.local import run_local
from pipeline.engine.logs import console_of, json_lines
from pipeline.engine.model_servers import model_servers
from pipeline.engine.progress import RunProgress
from pipeline.engine.rejections import Rejections
from pipeline.engine.repeated_failures import RepeatedFailures
from pipeline.engine.retry_advice import begun_by_other, retry_in_search
from pipeline.engine.run_summary import TIMES, RunTotals, renewed_summary, summarise
from pipeline.engine.shard import Part, Rounds, UnfinishedRounds, count_rows, shards
from pipeline.engine.sources import model_sources, project_sources, refuse_edited, user_sources
from pipeline.errors import Outage, RunStopped, StorageError, Unreachable, UserError, single_errors
from pipeline.evaluation.configuration_summary import ConfigurationSummary, differing_overrides
from pipeline.llm.interface import replies_from_gold
from pipeline.llm.roles import check_roles, remarks
from pipeline.methods.interface import Method, uses_gold
from pipeline.suggestions import did_you_mean
from pipeline.text import agreeing, counted
from pipeline.traces.folder import BATCH, RunFolder
from pipeline.traces.reader import failed_shards, read_shards
from pipeline.traces.storage import StoragePath, storage_path

T = TypeVar("T")

_INTERFACES = {"method": Method, "dataset": Dataset}
"""What a class must have that a section names."""
_BLOCKED = "the run does not stop, because code computes without a pause: press Ctrl-C again to stop at once"
_BLOCKED_S = 2.0
"""Seconds after Ctrl-C without a turn of the event loop after which `_BLOCKED` is printed."""
_STOPPING = "stopping: calls in flight are given up, and made again when the run goes on"
_PACKAGES = ("kgqa-pipeline", "hydra-core", "polars", "pyarrow", "pyoxigraph", "ray")


@dataclass(frozen=True)
class Configuration:
    """One configuration of a run."""

    overrides: tuple[str, ...]
    """The overrides as the user gave them."""
    config: Mapping[str, Any]
    """The resolved configuration."""
    file: StoragePath | None = None
    """The file that it was read from, for messages; None if it was composed."""
    is_chosen_by_scores: bool = False
    """Whether a search has chosen it by the scores of earlier batches."""

    def check(self) -> None:
        """Raise UserError if a value is wrong, naming the file that holds it."""
        try:
            built = config.check(self.config)
            for section, interface in _INTERFACES.items():
                _check_members(f"{section}._target_={self.config[section]['_target_']}", built[section], interface)
        except UserError as error:
            if self.file is None:
                raise
            points = (RunFolder(self.file.parent).read_run() or {"points": []})["points"]
            saved = [point for point in points if tuple(point["overrides"]) == self.overrides]
            edited = [name for point in saved for name in resume.edited_sources(point, self.config)]
            remedy = "give the command of the run in place of this file"
            edit = f". The source of {edited[0]} has changed since the run was begun: {remedy}" if edited else ""
            raise UserError(f"{self.file}: {error}{edit}") from None

    def refuse_early_stopping(self) -> None:
        """Raise UserError if `run.early_stopping` is set, for a run of this configuration alone."""
        if self.config["run"]["early_stopping"]:
            raise UserError("run.early_stopping drops configurations that fall behind: a run of one has none to drop")


def _check_members(named: str, component: object, interface: type) -> None:
    """Raise UserError if a component lacks what its interface has."""
    names = {*interface.__annotations__, *vars(interface)}
    for missing in sorted(name for name in names if not name.startswith("_") and not hasattr(component, name)):
        raise UserError(f"{named} has no `{missing}`.{did_you_mean(missing, dir(component))}")


def compose_configurations(overrides: Sequence[Sequence[str]], console: Console) -> list[Configuration]:
    """Compose one configuration for each list of overrides. Raises UserError naming a wrong override."""
    # Each takes about a hundredth of a second, or a tenth if it chooses other groups, which is long in a large sweep.
    shown = _with_progress(overrides, "composing the configurations", console)
    return [Configuration(tuple(each), config.compose(each)) for each in shown]


def _with_progress(items: Sequence[T], description: str, console: Console) -> Iterable[T]:
    """Yield the items, and show on a terminal how many are done and how long the others will take."""
    return track(items, description, console=console, transient=True, disable=not console.is_terminal)


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
    firsts = _first_equal(configurations)
    checked = [configurations[number] for number in dict.fromkeys(firsts)]
    for each in _with_progress(checked, "checking the configurations", console):
        each.check()
    if repeated := [(number, first) for number, first in enumerate(firsts) if number != first]:
        said = "configuration {} is equal to configuration {}".format(*repeated[0])
        more = f", and {len(repeated) - 1:,} more to an earlier one" if len(repeated) > 1 else ""
        console.print(f"{said}{more}", markup=False, soft_wrap=True)
    distinct = [each.config for each in checked]
    refuse_edited(distinct)
    _check_roles(distinct)
    _check_common(configurations)
    for remark in dict.fromkeys(chain.from_iterable(map(_remarks, distinct))):
        console.print(remark, markup=False, soft_wrap=True)
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
            description = _RunDescription(configurations, folder, saved, console)
            with description.told_if_stopped():
                totals = asyncio.run(_run_shards(configurations, folder, saved, description, console))
            return summarise(folder, totals)
    except BaseException as error:
        folder.remove_if_empty(created, is_wrong=isinstance(error, Exception) and _is_wrong(error))
        raise


def _is_wrong(error: Exception) -> bool:
    """Whether the command has to be changed: servers that answer again, or free space on a disk, do not help."""
    return all(
        isinstance(each, UserError) and not isinstance(each, Outage | StorageError) for each in single_errors(error)
    )


def _first_equal(configurations: Sequence[Configuration]) -> list[int]:
    """Return for each configuration the number of the first one that is equal to it, which may be its own."""
    numbers: dict[str, int] = {}
    return [numbers.setdefault(config.canonical(each.config), number) for number, each in enumerate(configurations)]


def read_resumable(folder: RunFolder, configurations: Sequence[Configuration]) -> Mapping[str, Any] | None:
    """Return the contents of `run.yaml`; None for a new run. Raises UserError if the folder holds another run.

    A run without an answer and a reply, such as one whose server refused every call, is no hindrance to another one;
    nor is one without an answer to a run of a mended method.
    """
    saved = folder.read_run()
    if saved is not None:
        configs = [each.config for each in configurations]
        try:
            resume.refuse_other_configurations(folder, saved, configs)
        except UserError:
            if resume.has_results(folder):
                raise
            return None
        try:
            resume.refuse_other_code(folder, saved, configs, _version("kgqa-pipeline"))
        except UserError:
            if (resume.has_results if begun_by_other(saved) else resume.has_answers)(folder):
                raise
            return None
    elif folder.finished():
        raise UserError(
            f"{folder.path} holds traces but no run.yaml that describes them: name another run.dir, or delete them "
            "with run.restart=true"
        )
    return saved


def _updated(saved: Mapping[str, Any], configurations: Sequence[Configuration]) -> Mapping[str, Any]:
    """Return the contents of `run.yaml` with configurations that ask more questions, and with new tags and a new note.

    Tags and note decide no result.
    """
    run = configurations[0].config["run"]
    saved = {**saved, **{name: run[name] for name in ("tags", "note") if run[name] is not None}}
    pairs = list(zip(saved["points"], configurations, strict=True))
    if not any(resume.asks_more(point["config"], now.config) for point, now in pairs):
        return saved
    points = [{**point, "overrides": list(now.overrides), "config": _resuming(now.config)} for point, now in pairs]
    return {**saved, "points": points}


def run_dir(configurations: Sequence[Configuration]) -> StoragePath:
    """Return `run.dir`, or a name made of the keys that decide results: the same command finds the same folder."""
    configs = [each.config for each in configurations]
    if configs[0]["run"]["dir"]:
        return storage_path(configs[0]["run"]["dir"]).absolute()
    choices = [dict.fromkeys(each["choices"][group] for each in configs) for group in ("dataset", "method", "llm")]
    return Path.cwd() / "runs" / "-".join([*map("+".join, choices), config.identity_hash(*configs)])


def _refuse_reuse_of_replaced(folder: RunFolder, configs: Sequence[Mapping[str, Any]]) -> None:
    """Raise UserError if a new run is to reuse the calls of the run that it replaces."""
    for key, run in resume.replayed_runs(configs):
        if configs[0]["run"]["restart"] and storage_path(run).absolute() == folder.path:
            raise UserError(
                f"{key}={run} names the results that run.restart=true deletes: leave out run.restart=true, and name "
                "another run.dir"
            )


class _RunDescription:
    """Writes `run.yaml` when nothing refuses the run any more, and refuses other components afterwards.

    A new run is described when the first worker has opened its components. Only then are the results of an earlier run
    deleted, which it replaces: they stay if a server, a file or a model is missing.
    """

    def __init__(
        self,
        configurations: Sequence[Configuration],
        folder: RunFolder,
        saved: Mapping[str, Any] | None,
        console: Console,
    ) -> None:
        self._configurations = configurations
        self._folder = folder
        self._console = console
        self.id: str = (saved or {}).get("id") or secrets.token_hex(8)
        """Names the run in the file of every shard."""
        self._saved = None if saved is None else _updated(saved, configurations)
        has_id = saved is not None and "id" in saved  # else `run.yaml` was written to say which model must answer
        if self._saved is not None and not folder.finished():
            self._saved = {"id": self.id, **self._saved}
        self._is_changed = self._saved != saved
        self._is_going_on = False
        self.kept_calls = 0 if saved is None else folder.journal_calls()
        """The calls of unfinished shards that earlier attempts have made."""
        self._is_empty = has_id and not folder.finished() and not self.kept_calls
        """Whether the run has nothing yet that a model or a graph has replied: they may be others now."""
        self._started = time.time()
        self.began = self.opened = time.monotonic()
        """Seconds of a clock that never goes back; `opened` is when the last worker had opened its components."""

    @property
    def has_begun(self) -> bool:
        """Whether the folder has the `run.yaml` of this run."""
        return self._saved is not None

    @contextmanager
    def told_if_stopped(self) -> Iterator[None]:
        """Raise RunStopped for a KeyboardInterrupt after the run has begun."""
        try:
            yield
        except KeyboardInterrupt:
            if self.has_begun:
                raise RunStopped from None
            raise

    @contextmanager
    def stored(self, rejections: Rejections) -> Iterator[None]:
        """Store rejected rows at the end, if the run has begun: before, `rejected.jsonl` is that of an earlier one."""

        def end(*error: Any) -> None:
            if self.has_begun:
                rejections.__exit__(*error)

        with ExitStack() as stack:
            stack.push(end)
            yield

    def on_opened(self, backends: Sequence[Backends]) -> None:
        """Check the backends of a worker. Raises UserError if they are not those that the run began with."""
        if self._saved is None:
            self._replace_earlier()
            self._saved = {"id": self.id, **_describe(self._configurations, self._folder, backends, self._started)}
            self._folder.write_run(self._saved)
        if self._is_empty:
            self._saved = {**self._saved, "served": [asdict(each) for each in backends]}
            self._folder.write_run(self._saved)
            self._is_empty = False
        resume.refuse_other_backends(self._folder, self._saved, backends)
        if not self._is_going_on:
            self.accept()
            self._folder.remove_summary()
            self._is_going_on = True
        self.opened = time.monotonic()

    def _replace_earlier(self) -> None:
        """Delete what an earlier run has left in the folder. Say so if nobody has asked for it."""
        restart = self._configurations[0].config["run"]["restart"]
        if restart:
            self._folder.clear_batches()
        elif self._folder.has_run:
            said = f"the earlier run in {self._folder.path} answered no question: its files are deleted"
            self._console.print(said, markup=False, soft_wrap=True)
        self._folder.clear()

    def accept(self) -> None:
        """Name the folder, now that nothing refuses the run, and write what has changed in `run.yaml`."""
        self._console.print(f"run folder: {self._folder.path}", markup=False, soft_wrap=True)
        if self.kept_calls:
            stored = f"of unfinished shards {agreeing('are', self.kept_calls)} stored from before"
            self._console.print(f"{counted(self.kept_calls, 'model call')} {stored}")
        if self._is_changed:
            assert self._saved is not None, "a new run has not changed"
            self._folder.write_run(self._saved)


async def _run_shards(
    configurations: Sequence[Configuration],
    folder: RunFolder,
    saved: Mapping[str, Any] | None,
    description: _RunDescription,
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
        run["max_equal_failures"], configurations=len(configs), may_retry=may_retry, is_resumed=bool(finished)
    )
    progress = RunProgress(
        console,
        total=total,
        done=done,
        on_opened=description.on_opened,
        confidence=configs[0]["evaluation"]["confidence"],
        names=_names(configurations),
        is_resumed=is_resumed,
        check=failures.check,
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


def _check_roles(configs: Sequence[Mapping[str, Any]]) -> None:
    """Raise UserError if `llm.roles` names a role that no method of the run has."""
    named = {role: None for each in configs for role in each["llm"].get("roles") or ()}
    if named:
        check_roles(named, [config.build("method", each) for each in configs])


def _shards_to_retry(folder: RunFolder) -> set[int]:
    """Return the shards with failed questions. Raises UserError if a search has chosen by their scores."""
    failed = failed_shards(folder)
    if failed and (search := folder.deciding_search):
        raise UserError(retry_in_search(folder.path, search))
    return failed


def _remarks(each: Mapping[str, Any]) -> Iterator[str]:
    """Yield what the models of a configuration say about its method and its dataset."""
    method, dataset = config.build("method", each), config.build("dataset", each)
    for keys in config.models(each["llm"]).values():
        yield from remarks(config.build("llm", {"llm": keys}), method, dataset.name, each)


def _check_common(configurations: Sequence[Configuration]) -> None:
    """Raise UserError if the configurations differ in a key that has one value for the whole run."""
    for key, values in _differing(configurations).items():
        if config.has_one_value(key):
            listed = ", ".join(map(str, values))
            raise UserError(
                f"{key} has one value for the whole run, and the configurations have {listed}: give it once"
            )
    run = configurations[0].config["run"]
    if run["early_stopping"] and run["retry_failed"]:
        raise UserError(
            "run.retry_failed=true cannot be combined with run.early_stopping, whose decisions are made: "
            "start a new run"
        )


def _differing(configurations: Sequence[Configuration]) -> dict[str, list[Any]]:
    """Return the keys in which configurations differ, with their distinct values."""
    flat = [dict(config.flatten(each.config)) for each in configurations]
    values = {key: list({config.canonical(each.get(key)): each.get(key) for each in flat}.values()) for key in flat[0]}
    return {key: found for key, found in values.items() if len(found) > 1}


def _describe(
    configurations: Sequence[Configuration], folder: RunFolder, backends: Sequence[Backends], began: float
) -> dict[str, Any]:
    run = configurations[0].config["run"]
    return {
        "started": time.strftime("%Y-%m-%dT%H:%M:%S%z", time.localtime(began)),
        "tags": run["tags"] or [],
        "note": run["note"],
        "begun_in": begun_in(folder),
        "chosen_by_scores": configurations[0].is_chosen_by_scores,
        "points": [
            {
                "overrides": list(each.overrides),
                "config": _resuming(each.config),
                "sources": user_sources(each.config) | project_sources(each.config),
                "models": model_sources(each.config),
                "data": versions(each.config["dataset"]),
            }
            for each in configurations
        ],
        "served": [asdict(each) for each in backends],
        "seed": run["seed"],
        "versions": {name: _version(name) for name in _PACKAGES} | {"python": platform.python_version()},
        "git_commit": _git_commit(),
    }


def _resuming(resolved: Mapping[str, Any]) -> dict[str, Any]:
    """Return the configuration that resumes the run: without the keys that act once."""
    once = {"restart": False, "extend": False, "trust": False, "tags": None, "note": None}
    return {**resolved, "run": {**resolved["run"], **once}}


def _version(package: str) -> str | None:
    try:
        return importlib.metadata.version(package)
    except importlib.metadata.PackageNotFoundError:
        return None


def _git_commit() -> str | None:
    """Return the commit of the checkout that this package runs from; None for an installed package."""
    command = ["git", "-C", str(Path(__file__).parent), "rev-parse", "HEAD"]
    try:
        return subprocess.run(command, capture_output=True, text=True, check=True).stdout.strip()  # noqa: S603
    except (OSError, subprocess.CalledProcessError):
        return None
