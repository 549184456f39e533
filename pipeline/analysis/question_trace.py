"""Shows one question of a run for reading: answers, scores, and each step with its prompt."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from textwrap import indent
from typing import Any

import orjson

from pipeline.analysis.losses import LOSS_COLUMNS, Loss, find_loss
from pipeline.evaluation.rescore import SCORES
from pipeline.llm.prompt import Message
from pipeline.text import counted, printable
from pipeline.traces.folder import RunFolder

_COUNTERS = {"llm_calls": "model call", "prompt_tokens": "prompt token", "completion_tokens": "completion token"}


_AS_STORED = (
    *("kind", "role", "start_s", "duration_s", "own_s", "parent", "shared", "error"),
    *("completion", "finish_reason", "prompt_tokens", "completion_tokens"),
    *("query", "rows", "queries", "endpoint", "truncated"),
)
"""The fields of a step that are stored as they are shown."""


@dataclass(frozen=True, slots=True)
class StepTrace:
    """One model call, graph lookup or decision."""

    number: int
    kind: str
    """`llm`, `kg` or `decision`."""
    role: str
    """The role of the prompt, the name of the lookup, or the name of the decision."""
    duration_s: float
    shared: bool
    """Whether the result came from a cache, another configuration or an earlier run."""
    prompt: Sequence[Message] = ()
    """The exact messages of a model call; empty for other steps."""
    completion: str | None = None
    """None if the call failed, or the step is not a model call."""
    query: str | None = None
    """The arguments of a lookup."""
    rows: int | None = None
    """Number of values that a lookup returned."""
    payload: Mapping[str, Any] | None = None
    """The data of a decision."""
    error: str | None = None
    """Why the completion could not be parsed, or why the step failed."""
    start_s: float = 0.0
    """Seconds since the question started."""
    own_s: float | None = None
    """Seconds without time in queues (`docs/reference/traces.md`); None if they are not known."""
    parent: int | None = None
    """Of a repeated call: the step whose reply could not be used."""
    prompt_tokens: int | None = None
    completion_tokens: int | None = None
    finish_reason: str | None = None
    candidates: Sequence[Mapping[str, Any]] = ()
    """The candidates of a call that returns several, best first, each with `text`, `finish_reason` and `score`."""
    probabilities: Mapping[str, float] | None = None
    """The probability of each choice, where a call had choices."""
    queries: int | None = None
    """Number of queries that the graph server received for a lookup."""
    endpoint: str | None = None
    truncated: bool | None = None
    """Whether a lookup returned only a part of the values."""

    @property
    def seconds_text(self) -> str:
        """How long the step took, with its queues and without, where that is known."""
        if self.own_s is None:
            return f"{self.duration_s:.3f} s"
        if self.own_s > self.duration_s:  # the reply was there already
            return f"{self.duration_s:.3f} s, and {self.own_s:.3f} s when the call was made"
        return f"{self.duration_s:.3f} s, of which {self.own_s:.3f} s outside queues"

    @property
    def ending(self) -> str:
        """How the reply ended, unless the model has ended it."""
        if self.finish_reason in (None, "stop"):
            return ""
        cut = "cut off at the number of tokens that it was allowed"
        return cut if self.finish_reason == "length" else f"ended by {self.finish_reason}"

    def __str__(self) -> str:
        heading = f"[{self.number}] {self.kind} {self.role}, {self.seconds_text}{', shared' if self.shared else ''}"
        return printable("\n".join([heading, *(indent(line, "    ") for line in self._details())]))

    def _details(self) -> Iterator[str]:
        for message in self.prompt:
            yield f"{message.role}:\n{indent(message.content, '  ')}"
        if self.completion is not None:
            yield f"completion{f' ({self.ending})' if self.ending else ''}:\n{indent(self.completion, '  ')}"
        if self.query is not None:
            yield f"{self.query} → {self.rows} values"
        if self.payload is not None:
            payload = dict(self.payload)
            traceback = payload.pop("traceback", None)
            yield orjson.dumps(payload).decode()
            if traceback is not None:
                yield str(traceback).rstrip()
        if self.error is not None:
            yield f"error: {self.error}"


@dataclass(frozen=True, slots=True)
class QuestionTrace:
    """A question with its answers, scores, costs and steps. `print` shows it as plain text."""

    id: str
    configuration: int
    text: str
    method: str
    dataset: str
    status: str
    """`ok`, `failed`, `budget_exhausted` or another status of `pipeline.types.Answer`."""
    error: str | None
    """Why the question failed."""
    answers: Sequence[str]
    gold: Sequence[str]
    scores: Mapping[str, float]
    """The scores that the question has."""
    row: Mapping[str, Any]
    """All other columns of its trace row, such as `evidence` and the counters."""
    steps: Sequence[StepTrace]
    loss: Loss | None = None
    """Where a wrong question lost its answer; None if its first answer is right."""

    @property
    def score_text(self) -> str:
        """All scores in one line."""
        return ", ".join(f"{name} {score:.3g}" for name, score in self.scores.items()) or "none"

    @property
    def cost_text(self) -> str:
        """Model calls and tokens in one line."""
        return ", ".join(counted(self.row[name], unit) for name, unit in _COUNTERS.items())

    def __str__(self) -> str:
        lines = [
            f"question {self.id} of {self.dataset}, answered by {self.method} (configuration {self.configuration})",
            self.text,
            f"gold:    {', '.join(self.gold) or 'none'}",
            f"answers: {', '.join(self.answers) or 'none'}",
            f"status:  {self.status}{f': {self.error}' if self.error else ''}",
            f"scores:  {self.score_text}",
            *([f"lost:    {self.loss}"] if self.loss else []),
            f"cost:    {self.cost_text}",
        ]
        return "\n".join([*map(printable, lines), "", *map(str, self.steps)])


def build_question_trace(row: Mapping[str, Any], folder: RunFolder) -> QuestionTrace:
    """Build the view of a trace row, whose `point` is called `configuration`, with prompts from `prompts/`."""
    template = cache(folder.read_template)

    def step(fields: Mapping[str, Any]) -> StepTrace:
        prompt = template(fields["template"]).render(orjson.loads(fields["inputs"])) if fields["template"] else ()
        return StepTrace(
            number=fields["index"],
            payload=fields["payload"] and orjson.loads(fields["payload"]),
            prompt=prompt,
            candidates=orjson.loads(fields.get("candidates") or "[]"),
            probabilities=fields["probabilities"] and orjson.loads(fields["probabilities"]),
            **{name: fields.get(name) for name in _AS_STORED},  # type: ignore[arg-type]
        )

    shown = {"question_id", "configuration", "question", "steps", "texts", *SCORES}
    return QuestionTrace(
        id=row["question_id"],
        text=row["question"],
        scores={name: row[name] for name in SCORES if row[name] is not None},
        row={name: value for name, value in row.items() if name not in shown},
        loss=find_loss({name: row.get(name) for name in LOSS_COLUMNS}),
        steps=[step({**fields, **texts}) for fields, texts in zip(row["steps"], row["texts"], strict=True)],
        **{name: row[name] for name in ("configuration", "method", "dataset", "status", "error", "answers", "gold")},
    )
