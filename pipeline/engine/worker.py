"""The worker: one process's share of a run. Every executor runs this same object, on this loop or in a Ray actor."""

from __future__ import annotations

import asyncio
import gc
import logging
from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from contextlib import AsyncExitStack
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any, Self

from pipeline import config
from pipeline.engine.logs import shard_of
from pipeline.engine.memo import Memo
from pipeline.engine.metrics import Recorder, Tell
from pipeline.engine.question import Setting, row_of_twin, run_question
from pipeline.engine.shard import Progress, Shard
from pipeline.errors import StorageError
from pipeline.llm.prompt import Completion, Template
from pipeline.llm.roles import ByRole, Wording, check_roles
from pipeline.traces.draft import Draft
from pipeline.traces.folder import RunFolder
from pipeline.traces.place import Place
from pipeline.traces.reader import RecordedCalls, completions_of
from pipeline.traces.schema import TraceRow
from pipeline.traces.writer import write_shard
from pipeline.traffic import Connected, Traffic
from pipeline.types import Example

_log = logging.getLogger(__name__)

_LAG_PERIOD_S = 0.05
_TELL_PERIOD_S = 1.0


@dataclass(frozen=True, slots=True)
class Served:
    """What the opened components turned out to be; a resumed run must find the same."""

    model: str
    label: str | None
    """Set when the answers are not a language model's: it is printed in every table."""
    graph: str
    roles: Mapping[str, str] = field(default_factory=dict)
    """The models of the roles that have one of their own."""


class Worker:
    """Opens the components of a run's points and runs shards on them."""

    def __init__(self, points: Sequence[Mapping[str, Any]], folder: Place, tell: Tell) -> None:
        """Take the resolved configuration of each point, and where metrics go; nothing is opened yet."""
        self._points = points
        self._folder = RunFolder(folder)
        self._settings: list[Setting] = []
        self._earlier: list[RecordedCalls] = []
        self._templates: dict[str, asyncio.Task[None]] = {}
        """The storing of each prompt's fixed text, by its digest."""
        self._stack = AsyncExitStack()
        self._share = points[0]["engine"]["share"]
        self._slots = asyncio.Semaphore(points[0]["engine"]["concurrency"])
        self._lag_s = 0.0
        self._unwritable: str | None = None
        """Why the run folder took a call no more; the run is about to end."""
        self._recorder = Recorder(tell)
        self._traffic: list[Traffic] = []

    async def __aenter__(self) -> Self:
        opened: dict[str, Any] = {}
        try:
            for points in self._distinct():
                self._settings.append(await self._open(points, opened))
        except BaseException:
            await self._stack.aclose()
            raise
        self._earlier = [RecordedCalls(run) for run in self._points[0]["run"]["reuse"]]
        self._traffic = [one for part in opened.values() if isinstance(part, Connected) for one in part.traffic]
        for watch in (self._watch_loop(), self._keep_telling()):
            self._stack.callback(asyncio.create_task(watch).cancel)
        gc.freeze()  # what is open stays open: to walk it in every full collection would hold up the loop for 0.1 s
        return self

    async def __aexit__(self, *exc: object) -> None:
        await self._stack.aclose()

    @property
    def served(self) -> list[Served]:
        """Per point, what it runs on."""
        by_point = {point: setting for setting in self._settings for point, _ in setting.points}
        ordered = (by_point[point] for point in range(len(self._points)))
        return [Served(s.model.identity, s.model.label, s.graph.fingerprint, s.model.identities) for s in ordered]

    async def run(self, shard: Shard, on_row: Callable[[Progress], None]) -> None:
        """Run every question of the shard at every point, and commit the shard."""
        shard_of.set(shard.index)
        self._recorder.queued += len(shard.examples)
        retried = await asyncio.to_thread(completions_of, self._folder.shard(shard.index))
        async with Draft(self._folder, shard.index) as draft:
            async with asyncio.TaskGroup() as group:
                tasks = [
                    group.create_task(self._run_points(example, shard.points, draft, retried, on_row))
                    for example in shard.examples
                ]
            rows = [row for task in tasks for row in task.result()]
            await asyncio.gather(*self._templates.values())  # whatever a row names is there before it
            await asyncio.to_thread(write_shard, self._folder.shard(shard.index), rows)
            await draft.discard()
        _log.info("shard committed", extra={"rows": len(rows)})
        self._tell()
        on_row(Progress(loop_lag_s=self._lag_s))

    async def _watch_loop(self) -> None:
        """Note the longest that the loop was late: whatever held it up held up every question in flight."""
        loop = asyncio.get_running_loop()
        while True:
            due = loop.time() + _LAG_PERIOD_S
            await asyncio.sleep(_LAG_PERIOD_S)
            self._lag_s = max(self._lag_s, loop.time() - due)

    async def _keep_telling(self) -> None:
        """Tell the metrics now and then, also while no shard ends."""
        while True:
            await asyncio.sleep(_TELL_PERIOD_S)
            self._tell()

    def _tell(self) -> None:
        self._recorder.tell(self._traffic, self._lag_s)

    async def _run_points(
        self,
        example: Example,
        points: Sequence[int],
        draft: Draft,
        retried: Mapping[str, Mapping[str, Completion]],
        on_row: Callable[[Progress], None],
    ) -> list[TraceRow]:
        """Run one question at all points that ask it, together; `retried` are the calls of questions that failed."""
        id = example.question.id
        reused = await asyncio.to_thread(self._reused, id) if self._earlier else {}

        def memo_of(owner: str) -> Memo:
            made = {**retried.get(id, {}), **draft.calls(owner)}
            return Memo(made=made, reused=reused, on_call=partial(draft.append, owner))

        async def run(setting: Setting, memo: Memo) -> list[TraceRow]:
            row = await run_question(example, setting, memo, self._store_template)
            if row.error is not None:
                _log.info("question failed", extra={"question": id, "point": row.point, "error": row.error})
            rows = [row, *(row_of_twin(row, point, name) for point, name in setting.points[1:])]
            for each in rows:
                self._recorder.add(each)
                on_row(Progress.of(each))
            return rows

        async with self._slots:
            if self._unwritable is not None:  # whatever is asked now could not be kept, and would be asked again
                raise StorageError(self._unwritable)
            self._recorder.begin()
            common = memo_of(id)
            asking = [alive for setting in self._settings if (alive := _among(setting, points)).points]
            memos = [common if self._share else memo_of(f"{id} at point {s.points[0][0]}") for s in asking]
            try:
                rows = await asyncio.gather(*map(run, asking, memos))
            except StorageError as error:
                self._unwritable = str(error)
                raise
            self._recorder.in_flight -= 1
            return sorted((row for of_setting in rows for row in of_setting), key=lambda row: row.point)

    def _reused(self, question_id: str) -> dict[str, Completion]:
        return {key: call for run in self._earlier for key, call in run.completions(question_id).items()}

    def _store_template(self, role: str, template: Template) -> None:
        if template.digest not in self._templates:
            storing = asyncio.to_thread(self._folder.write_template, role, template)
            self._templates[template.digest] = asyncio.create_task(storing)

    def _distinct(self) -> list[list[int]]:
        """The points, those together that compute the same."""
        same: defaultdict[str, list[int]] = defaultdict(list)
        for index, point in enumerate(self._points):
            same[config.computation(point) if self._share else str(index)].append(index)
        return list(same.values())

    async def _open(self, points: Sequence[int], opened: dict[str, Any]) -> Setting:
        """Open what points are made of that compute the same; points that agree on a section share what it opens to."""
        point = self._points[points[0]]

        async def enter(section: str, keys: Mapping[str, Any]) -> Any:
            key = f"{section} {config.canonical(keys)}"
            if key not in opened:
                opened[key] = await self._stack.enter_async_context(config.build(section, {section: keys}))
            return opened[key]

        methods = [config.build("method", self._points[index]) for index in points]
        sections = config.models(point["llm"])
        default = sections.pop(None)
        roles = {role: keys for role, keys in sections.items() if role is not None}
        check_roles(roles)
        return Setting(
            points=[(index, method.name) for index, method in zip(points, methods, strict=True)],
            method=methods[0],
            model=ByRole(await enter("llm", default), {role: await enter("llm", keys) for role, keys in roles.items()}),
            graph=await enter("kg", point["kg"]),
            retrieval=await enter("retrieval", point["retrieval"]),
            evaluation=config.build("evaluation", point),
            budget=config.build("budget", point),
            seed=point["run"]["seed"],
            wording=Wording(config.prompts(point["llm"])),
        )


def _among(setting: Setting, points: Sequence[int]) -> Setting:
    """The setting of those of its points alone that ask a question: early stopping may have dropped the others."""
    return replace(setting, points=[(point, name) for point, name in setting.points if point in points])
