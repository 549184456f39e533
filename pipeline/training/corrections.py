"""Extracts on-policy training data: what a teacher would have written at each call of a model's own run.

The method runs again with the recorded replies of the model, so it comes to the same states as in the run. At each call
the teacher, by default the oracle, writes what the model should have replied in that state.
"""

from __future__ import annotations

import zlib
from collections import defaultdict, deque
from collections.abc import AsyncIterator, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Self

import orjson
from pydantic import ConfigDict
from pydantic.dataclasses import dataclass as checked_dataclass
from rich.table import Table
from rich.text import Text

from pipeline import config
from pipeline.datasets.interface import Dataset
from pipeline.datasets.selection import Selection as Questions
from pipeline.engine.call_cache import CallCache
from pipeline.engine.components import Components
from pipeline.engine.question import ConfigurationRuntime, run_question
from pipeline.errors import ParseError, Unanswerable
from pipeline.evaluation.score_tables import percent, plain_table
from pipeline.kg.interface import KnowledgeGraph
from pipeline.llm.interface import Model, ModelBackend, OneModel
from pipeline.llm.prompt import Call, Completion, Message, Prompt
from pipeline.llm.roles import PromptStyle, RoleRouter
from pipeline.text import counted
from pipeline.traces.folder import RunFolder
from pipeline.traces.reader import RecordedCalls
from pipeline.training.call_collection import call_row
from pipeline.training.labelled import TrainingSource, is_held_out, read_held_out
from pipeline.types import Example


@checked_dataclass(frozen=True, kw_only=True, config=ConfigDict(extra="forbid"))
class Selection:
    """The selection of calls. `conf/collect_corrections.yaml` documents the keys."""

    right_share: float


@dataclass
class RoleCounts:
    """Counts of the calls of one role."""

    calls: int = 0
    wrong: int = 0
    """Calls to which the model replied otherwise than the teacher."""
    left_out: int = 0
    """Further calls to which the teacher gave no reply that could be read."""
    rows: int = 0


@dataclass
class Report:
    """Counts of the calls that were compared with the teacher's."""

    questions: int = 0
    """A question counts once for each configuration that asked it."""
    roles: dict[str, RoleCounts] = field(default_factory=dict)
    held_out: int = 0
    """Questions that were left out because they are held out."""

    def document(self) -> dict[str, Any]:
        """Return the report as JSON."""
        roles = {name: vars(counts) for name, counts in sorted(self.roles.items())}
        return {"questions": self.questions, "held_out": self.held_out, "roles": roles}


@dataclass
class _Compared:
    """A call of a run, with the reply of the model and that of the teacher."""

    call: Call
    said: str
    right: str

    def is_wrong(self) -> bool:
        """Whether the model's reply means something else than the teacher's, or cannot be read.

        Raises ParseError if the teacher's cannot be read.
        """
        prompt: Prompt[Any] = self.call.prompt
        right = prompt.parse(self.right)
        try:
            return bool(prompt.parse(self.said) != right)
        except ParseError:
            return True


class _Comparing(OneModel):
    """A model backend that gives the recorded replies, and also asks the teacher wherever the model wrote a text."""

    label = None

    def __init__(self, served: Mapping[str, Any], recorded: RecordedCalls, teacher: ModelBackend) -> None:
        self.identity = str(served["model"])
        self._served = served
        self._recorded = recorded
        self._teacher = teacher
        self.compared: list[_Compared] = []

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *exc: object) -> None:
        pass

    def for_question(self, example: Example, kg: KnowledgeGraph) -> Model:
        """Return the model of one question, and forget the calls of the question before."""
        self.compared = []
        self._replies = self._read_replies(example.question.id)
        self._right = self._teacher.for_question(example, kg)
        return self

    async def complete(self, call: Call) -> Completion:
        said = await self.choose(call)
        right = await self._right.complete(call)
        self.compared.append(_Compared(call, said.text, right.text))
        return said

    async def choose(self, call: Call) -> Completion:
        replies = self._replies[_content(call.messages, call.sampling.as_hashed(), call.choices)]
        if not replies:
            raise Unanswerable("the run did not record this call")
        return replies.popleft()

    def _read_replies(self, question_id: str) -> defaultdict[bytes, deque[Completion]]:
        """Return the replies to each prompt in their order. Their keys would need the model: its limits are in them."""
        replies: defaultdict[bytes, deque[Completion]] = defaultdict(deque)
        calls = [(orjson.loads(call.sampling), call) for call in self._recorded.calls(question_id).values()]
        for asked, call in sorted(calls, key=lambda each: each[0]["ordinal"]):
            if self._recorded.saved["served"][call.configuration] == self._served:
                content = _content(self._recorded.messages(call), asked["sampling"], asked["choices"])
                replies[content].append(call.completion)
        return replies


async def read_corrections(
    folder: RunFolder,
    configs: Sequence[Mapping[str, Any]],
    *,
    teacher: ModelBackend,
    source: TrainingSource,
    selection: Selection,
    report: Report,
) -> AsyncIterator[dict[str, Any]]:
    """Yield one row for each distinct call of a run that the model got wrong, and for a share of the others.

    `configs` are the configurations of the run. They run again on their own graphs, without the model. `teacher` is
    open. A question that the run did not finish gives no row. Raises UserError for a test split, unless it is allowed.
    """
    for each in configs:
        source.refuse_test(each["dataset"]["split"], given=f"a test split in {folder.path}", fix="name another run")
    recorded, held_out, seen = RecordedCalls(folder.path), read_held_out(source.held_out), set[bytes]()
    for served, each in zip(recorded.saved["served"], configs, strict=True):
        model = _Comparing(served, recorded, teacher)
        async with Components() as components:
            runtime = await _open(components, folder, each, model)
            for example in _finished(each, recorded):
                if is_held_out(example.question.id, example.question.text, held_out):
                    report.held_out += 1
                    continue
                report.questions += 1
                await run_question(example, runtime, _no_cache(), _ignore)
                for row in _rows(model.compared, example, selection, report):
                    if (line := orjson.dumps(row)) not in seen:
                        seen.add(line)
                        report.roles[row["role"]].rows += 1
                        yield row


def table(report: Report) -> Table:
    """Return the report as a table."""
    shown = plain_table(
        f"calls of {counted(report.questions, 'question')}, counted in each configuration, next to the teacher's"
    )
    shown.add_column("role", overflow="fold")
    for name in ("calls", "wrong", "% wrong", "left out", "rows"):
        shown.add_column(name, justify="right")
    for name, role in sorted(report.roles.items()):
        share = percent(role.wrong / role.calls) if role.calls else "–"
        shown.add_row(Text(name), f"{role.calls:,}", f"{role.wrong:,}", share, f"{role.left_out:,}", f"{role.rows:,}")
    return shown


async def _open(
    components: Components, folder: RunFolder, each: Mapping[str, Any], model: _Comparing
) -> ConfigurationRuntime:
    """Open a configuration, with the model in place of its own, which need not run any more."""
    replay = {"_target_": "pipeline.traces.replay.Replay", "run": str(folder.path)}
    runtime = await components.open_runtime({0: {**each, "llm": replay}})
    styles = PromptStyle(config.prompt_styles(each["llm"]))
    return replace(runtime, model=RoleRouter(model, {}), prompt_style=styles)


def _finished(each: Mapping[str, Any], recorded: RecordedCalls) -> Iterator[Example]:
    dataset: Dataset = config.build("dataset", each)
    for example in Questions.of_run(each["run"]).select(dataset.examples(lambda _: None)):
        if recorded.calls(example.question.id):
            yield example


def _content(messages: Sequence[Message], sampling: Mapping[str, Any], choices: Sequence[str]) -> bytes:
    return orjson.dumps([[tuple(message) for message in messages], sampling, choices], option=orjson.OPT_SORT_KEYS)


def _ignore(*_: object) -> None:
    pass


def _no_cache() -> CallCache:
    return CallCache(made_in_this_run={}, from_earlier_runs={})


def _rows(
    compared: Sequence[_Compared], example: Example, selection: Selection, report: Report
) -> Iterator[dict[str, Any]]:
    for each in compared:
        role = each.call.prompt.role
        counts = report.roles.setdefault(role, RoleCounts())
        try:
            is_wrong = each.is_wrong()
        except ParseError:
            counts.left_out += 1
            continue
        counts.calls += 1
        counts.wrong += is_wrong
        question = example.question
        row = call_row((question.id, question.dataset, question.split), role, each.call.messages, each.right)
        if is_wrong or zlib.crc32(orjson.dumps(row)) / 2**32 < selection.right_share:
            yield {**row, "said": each.said}
