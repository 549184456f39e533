"""The worker: runs shards in one process. Every executor uses this class, on its own loop or in a Ray actor."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Collection, Mapping, Sequence, Set
from contextlib import AsyncExitStack
from dataclasses import asdict, dataclass, replace
from functools import partial
from itertools import chain
from operator import itemgetter
from typing import Any, Self

from pipeline import config
from pipeline.branches import tasks_as_parts
from pipeline.datasets.interface import Dataset
from pipeline.datasets.selection import Selection
from pipeline.engine.call_cache import CallCache
from pipeline.engine.components import Backends, Components, group_equal
from pipeline.engine.logs import shard_of
from pipeline.engine.metrics import Emit, Recorder, Running
from pipeline.engine.missing_nodes import count_missing_nodes, told_apart
from pipeline.engine.open_shards import OpenShards
from pipeline.engine.question import ConfigurationRuntime, duplicate_row, run_question
from pipeline.engine.shard import Shard
from pipeline.engine.short_pauses import short_pauses
from pipeline.engine.worker_reports import LONG_WAIT_S, FinishedRows, LongCalls, LongLookups, Standing
from pipeline.errors import KgqaError, StorageError
from pipeline.grouping import grouped
from pipeline.llm.interface import replies_from_gold
from pipeline.llm.prompt import Completion, Template
from pipeline.methods.interface import uses_graph
from pipeline.traces.folder import RunFolder
from pipeline.traces.journal import Journal
from pipeline.traces.origin import ShardOrigin, merge_models
from pipeline.traces.reader import KnownCalls, RecordedCalls, answering_models, completions_of
from pipeline.traces.schema import TraceRow
from pipeline.traces.storage import StoragePath
from pipeline.traces.writer import write_shard
from pipeline.types import Example

_log = logging.getLogger(__name__)

_LAG_PERIOD_S = 0.05
_EMIT_PERIOD_S = 1.0
_NONE_KNOWN = KnownCalls({}, {})


@dataclass(frozen=True)
class _ShardRun:
    """A shard that a worker is running."""

    shard: Shard
    journal: Journal
    earlier: Mapping[str, KnownCalls]
    """If the shard is run again, for failed or added questions: its calls so far, by question."""
    on_row: Callable[[FinishedRows], None]
    on_answer: Callable[[], None]
    """Called for each question that all its configurations have answered."""
    running: Running
    golds: Mapping[str, str]
    """The digest of the gold answers of each question."""
    from_gold: bool
    """Whether a model of the run replies from the gold answers."""

    def cache(self, question_id: str, configuration: int | None, reused: Mapping[str, Completion]) -> CallCache:
        """Return a cache for one configuration of a question, or for all of them (None), filled from the journal."""
        # Replies from gold answers must not be those of other ones: the gold is a part of the journal's name for them.
        name = f"{question_id} {self.golds[question_id]}" if self.from_gold else question_id
        earlier = self.earlier.get(question_id, _NONE_KNOWN)
        made = {**earlier.made, **self.journal.calls(name, configuration)}
        on_call = partial(self.journal.append, name, configuration=configuration)
        return CallCache(made_in_this_run=made, from_earlier_runs={**reused, **earlier.taken}, on_call=on_call)


class Worker:
    """Opens the components of a run's configurations and runs shards on them."""

    def __init__(self, configs: Sequence[Mapping[str, Any]], folder: StoragePath, emit: Emit) -> None:
        """Take the resolved configurations, and where metrics go. Nothing is opened yet."""
        self._configs = configs
        self._folder = RunFolder(folder)
        self._runtimes: list[ConfigurationRuntime] = []
        self._earlier: list[RecordedCalls] = []
        self._graphs: Set[str] = frozenset()
        """The fingerprints of the graphs."""
        self._templates: dict[str, asyncio.Task[None]] = {}
        """The task that stores each prompt's fixed text, by its digest."""
        self._stack = AsyncExitStack()
        self._dedupe_calls = configs[0]["engine"]["dedupe_calls"]
        self._caches: dict[tuple[int, str], Sequence[CallCache]] = {}
        """The caches of the questions in flight, by shard and question id."""
        self._slots = asyncio.Semaphore(configs[0]["engine"]["concurrency"])
        self._open = OpenShards(configs[0]["engine"])
        self._writing = asyncio.Semaphore(1)
        """One shard is written at a time: each thread that converts rows slows the event loop down."""
        self._lag_s = 0.0
        self._storage_error: StorageError | None = None
        """Set when the run folder could not store a call: the run is about to end."""
        self._recorder = Recorder(emit)

    async def __aenter__(self) -> Self:
        self._earlier = [RecordedCalls(run) for run in self._configs[0]["run"]["reuse"]]
        groups = group_equal(self._configs) if self._dedupe_calls else [{n: c} for n, c in enumerate(self._configs)]
        try:
            components = await self._stack.enter_async_context(Components())
            for group in groups:
                self._runtimes.append(await components.open_runtime(group))
        except BaseException:
            await self._stack.aclose()
            raise
        self._graphs = {runtime.graph.fingerprint for runtime in self._runtimes}
        self._components = components
        for background in (self._measure_lag(), self._emit_periodically()):
            self._stack.callback(asyncio.create_task(background).cancel)
        self._stack.enter_context(short_pauses())
        self._stack.enter_context(tasks_as_parts())
        return self

    async def __aexit__(self, *exc: object) -> None:
        await self._stack.aclose()

    @property
    def backends(self) -> list[Backends]:
        """The model and graph of each configuration."""
        backends_by_number = {
            number: Backends.of(runtime) for runtime in self._runtimes for number, _ in runtime.configurations
        }
        return [backends_by_number[number] for number in range(len(self._configs))]

    def standing(self) -> Standing:
        """Return what has waited long for a reply of a model or of a graph server."""
        return Standing(self._long_calls(), self._long_lookups())

    def _long_calls(self) -> LongCalls | None:
        waiting = {place: max(cache.longest_s for cache in caches) for place, caches in self._caches.items()}
        long = {place: seconds for place, seconds in waiting.items() if seconds > LONG_WAIT_S}
        if not long:
            return None
        place, longest_s = max(long.items(), key=itemgetter(1))
        return LongCalls(len(long), longest_s, place[1], all(replies_from_gold(each.label) for each in self.backends))

    def _long_lookups(self) -> LongLookups | None:
        graphs = [each for each in self._components.server_stats if each.kind == "graph"]
        slow = [each for each in graphs if each.longest_s > LONG_WAIT_S]
        return LongLookups([each.url for each in slow], max(each.longest_s for each in slow)) if slow else None

    async def missing_nodes(self) -> list[str]:
        """Return a sentence for each kind of nodes that questions name and their graph does not have.

        Each pair of questions and graph is looked at once, and only for methods that use the graph. A sentence that is
        not true of all pairs names the keys of its own.
        """
        asking = [runtime for runtime in self._runtimes if uses_graph(runtime.method)]
        groups = list(grouped(asking, lambda each: config.canonical(self._asked_of(each))).values())
        names = told_apart([self._asked_of(each) for each, *_ in groups])
        found = [await self._missing_nodes_of(runtimes) for runtimes in groups]
        sentences = (
            sentence if all(sentence in others for others in found) else f"{name}{sentence}"
            for name, of_group in zip(names, found, strict=True)
            for sentence in of_group
        )
        return list(dict.fromkeys(sentences))

    async def _missing_nodes_of(self, runtimes: Sequence[ConfigurationRuntime]) -> list[str]:
        """Return the sentences of `missing_nodes` for configurations with equal questions and an equal graph."""
        composed = self._configs[runtimes[0].configurations[0][0]]
        for_oracle = any(replies_from_gold(each.model.label) for each in runtimes)
        try:
            dataset: Dataset = config.build("dataset", composed)
            examples = Selection.of_run(composed["run"]).select(dataset.examples(lambda _: None))
            return (await count_missing_nodes(runtimes[0].graph, examples, for_oracle=for_oracle)).warnings()
        except KgqaError as error:  # the run goes on, and reports itself what is wrong with its own lookups
            return [f"whether the graph has the nodes of the questions could not be checked: {error}"]

    def _asked_of(self, runtime: ConfigurationRuntime) -> dict[str, Any]:
        """Return the keys of the questions and of the graph that a runtime asks."""
        composed = self._configs[runtime.configurations[0][0]]
        return {
            "choices": {group: composed["choices"].get(group) for group in ("dataset", "kg")},
            "dataset": composed["dataset"],
            "kg": composed["kg"],
            "run": asdict(Selection.of_run(composed["run"])),
        }

    async def wait_for_room(self) -> None:
        """Return when this worker should run another shard."""
        await self._open.wait_for_room()

    async def run(self, shard: Shard, on_row: Callable[[FinishedRows], None]) -> None:
        """Run every question of the shard in every configuration of the shard, and commit the shard."""
        questions = len(shard.examples)
        with self._open.shard(questions) as on_answer, self._recorder.shard(questions) as running:
            await self._run_shard(shard, on_row, on_answer, running)

    async def _run_shard(
        self, shard: Shard, on_row: Callable[[FinishedRows], None], on_answer: Callable[[], None], running: Running
    ) -> None:
        shard_of.set(shard.index)
        retry_failed = self._configs[0]["run"]["retry_failed"]
        from_gold = [number for number, each in enumerate(self.backends) if replies_from_gold(each.label)]
        origin = await asyncio.to_thread(ShardOrigin.of, shard.run, shard.index, shard.examples)
        earlier = await asyncio.to_thread(completions_of, self._folder, origin, from_gold, retry_failed=retry_failed)
        before = await asyncio.to_thread(answering_models, self._folder, [shard.index]) if earlier else {}
        async with Journal(self._folder, shard.index) as journal:
            golds = {each.id: each.gold for each in origin.questions}
            run = _ShardRun(shard, journal, earlier, on_row, on_answer, running, golds, bool(from_gold))
            async with asyncio.TaskGroup() as group:
                tasks = [group.create_task(self._run_question(example, run)) for example in shard.examples]
            rows = [row for task in tasks for row in task.result()]
            await asyncio.gather(*self._templates.values())  # a template is stored before a row names it
            async with self._writing:
                written = replace(origin, models=self._answered_as(before))
                await asyncio.to_thread(write_shard, self._folder.shard(shard.index), rows, written)
            await journal.discard()
        _log.info("shard committed", extra={"rows": len(rows)})
        self._emit()
        on_row(FinishedRows(loop_lag_s=self._lag_s))

    def _answered_as(self, before: Mapping[str, Collection[str]]) -> dict[str, list[str]]:
        """Return the names under which the model servers have answered, by the names that they were asked for.

        `before` are those of an earlier file of the shard, whose replies are used again.
        """
        return merge_models([before, *(each.models for each in self._components.server_stats)])

    async def _measure_lag(self) -> None:
        """Keep the longest delay of the loop: a blocked loop blocks every question in flight."""
        loop = asyncio.get_running_loop()
        while True:
            due = loop.time() + _LAG_PERIOD_S
            await asyncio.sleep(_LAG_PERIOD_S)
            self._lag_s = max(self._lag_s, loop.time() - due)

    async def _emit_periodically(self) -> None:
        """Emit metrics also while no shard ends."""
        while True:
            await asyncio.sleep(_EMIT_PERIOD_S)
            self._emit()

    def _emit(self) -> None:
        self._recorder.emit(self._components.server_stats, self._lag_s)

    async def _run_question(self, example: Example, run: _ShardRun) -> list[TraceRow]:
        """Run one question in all configurations of the shard concurrently."""
        question_id = example.question.id
        reused = await asyncio.to_thread(self._reused, question_id, run.golds[question_id]) if self._earlier else {}
        async with self._slots:
            if self._storage_error is not None:  # a call made now could not be stored, and would be repeated
                raise self._storage_error
            runtimes = list(filter(None, (_restrict(each, run.shard.configurations) for each in self._runtimes)))
            shared = run.cache(question_id, None, reused)
            caches = [
                shared if self._dedupe_calls else run.cache(question_id, each.configurations[0][0], reused)
                for each in runtimes
            ]
            place = run.shard.index, question_id
            self._caches[place] = caches
            answering = (
                self._answer(example, runtime, cache, run.on_row)
                for runtime, cache in zip(runtimes, caches, strict=True)
            )
            try:
                with run.running():
                    rows = await asyncio.gather(*answering)
            except StorageError as error:
                self._storage_error = error
                raise
            finally:
                del self._caches[place]
            run.on_answer()
            return sorted(chain.from_iterable(rows), key=lambda row: row.configuration)

    async def _answer(
        self, example: Example, runtime: ConfigurationRuntime, cache: CallCache, on_row: Callable[[FinishedRows], None]
    ) -> list[TraceRow]:
        """Run one question in one configuration, and copy its row for the configurations that compute the same."""
        row = await run_question(example, runtime, cache, self._store_template)
        if row.error is not None:
            failure = {"question": example.question.id, "point": row.configuration, "error": row.error}
            _log.info("question failed", extra=failure)
        rows = [row, *(duplicate_row(row, number, name) for number, name in runtime.configurations[1:])]
        for each in rows:
            self._recorder.add(each)
            on_row(FinishedRows.of(each, is_replayed=cache.is_replayed))
        return rows

    def _reused(self, question_id: str, gold: str) -> dict[str, Completion]:
        calls = (run.reusable(question_id, gold, self._graphs) for run in self._earlier)
        return {key: call.completion for each in calls for key, call in each.items()}

    def _store_template(self, role: str, template: Template) -> None:
        if template.digest not in self._templates:
            storing = asyncio.to_thread(self._folder.write_template, role, template)
            self._templates[template.digest] = asyncio.create_task(storing)


def _restrict(runtime: ConfigurationRuntime, asked: Sequence[int]) -> ConfigurationRuntime | None:
    """Return the runtime with only the configurations in `asked`; None if early stopping has dropped them all."""
    left = [(number, name) for number, name in runtime.configurations if number in asked]
    return replace(runtime, configurations=left) if left else None
