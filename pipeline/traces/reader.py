"""Reads a run back: its finished calls by key, and each prompt exactly as it was sent."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

import orjson
import polars as pl

from pipeline.errors import UserError
from pipeline.llm.prompt import Completion, Message
from pipeline.traces.folder import RunFolder
from pipeline.traces.place import Place, place, read_all

_OPEN_SHARDS = 64
"""Finished shards kept in memory; questions come shard by shard."""


def read_shards(
    folder: RunFolder, columns: Sequence[str], *, indices: Sequence[int] | None = None
) -> Iterator[pl.DataFrame]:
    """These columns of each finished shard, or of these shards. Raises UserError when a shard lacks one."""
    shards = folder.traces if indices is None else list(map(folder.shard, indices))
    for rows in _frames(shards):
        there = rows.collect_schema()
        if missing := [name for name in columns if name not in there]:
            raise UserError(
                f"{folder.path} was written by another version of this project, without the column {missing[0]}: "
                "run its questions again in another run.dir"
            )
        yield rows.select(columns).collect()


def read_completions(folder: RunFolder, point: int, *, questions: Collection[str]) -> pl.DataFrame:
    """`question_id`, `key` and `completion` of the model calls that a point made, or was served, for some questions."""
    of_point = (pl.col("point") == point) & pl.col("question_id").is_in(questions)
    columns = (pl.col("steps").struct.field("key"), pl.col("texts").struct.field("completion"))
    shards = (shard.filter(of_point) for shard in _frames(folder.traces))
    calls = (shard.select("question_id", "steps", "texts").explode("steps", "texts") for shard in shards)
    return pl.concat(each.select("question_id", *columns).drop_nulls().collect() for each in calls)


def count_distinct_calls(folder: RunFolder) -> int:
    """Different model calls: an ordinal counts equal calls of one question, so a key is one call of its question."""
    keys = pl.col("steps").list.eval(pl.element().struct.field("key"))
    shards = (shard.select("question_id", keys) for shard in _frames(folder.traces))
    return sum(shard.explode("steps").drop_nulls().unique().collect().height for shard in shards)


def failed_shards(folder: RunFolder) -> set[int]:
    """Indices of the finished shards that hold a question that failed."""
    finished = sorted(folder.finished())
    statuses = (shard.select("status").collect()["status"] for shard in _frames(list(map(folder.shard, finished))))
    return {index for index, status in zip(finished, statuses, strict=True) if "failed" in status}


def completions_of(shard: Place) -> dict[str, dict[str, Completion]]:
    """The completions in one finished shard, by question and call key; none when it is not there."""
    try:
        calls = _read_calls(shard)
    except FileNotFoundError:
        return {}
    return {id: {key: call.completion for key, call in of_question.items()} for id, of_question in calls.items()}


@dataclass(frozen=True, slots=True)
class RecordedCall:
    """A model call of a finished question."""

    key: str
    role: str
    template: str
    inputs: str
    sampling: str
    completion: Completion


class RecordedCalls:
    """The model calls of an earlier run, by question and call key."""

    def __init__(self, run: str | Place) -> None:
        """Index which shard holds which question. Raises UserError when `run` is no run folder with finished shards."""
        self._folder = RunFolder(place(run))
        saved = self._folder.read_run()
        if saved is None:
            raise UserError(f"{run} has no run.yaml: name the folder of an earlier run")
        self.saved: Mapping[str, Any] = saved
        shards = self._folder.traces
        questions = (shard.select("question_id").collect()["question_id"] for shard in _frames(shards))
        self._shards = {id: shard for shard, ids in zip(shards, questions, strict=True) for id in ids}
        self._calls_of = lru_cache(maxsize=_OPEN_SHARDS)(_read_calls)

    def calls(self, question_id: str) -> dict[str, RecordedCall]:
        """The calls of a question by key; empty for a question that the run did not finish."""
        shard = self._shards.get(question_id)
        return self._calls_of(shard).get(question_id, {}) if shard else {}

    def completions(self, question_id: str) -> dict[str, Completion]:
        """The completions of a question by call key."""
        return {key: call.completion for key, call in self.calls(question_id).items()}

    def messages(self, call: RecordedCall) -> tuple[Message, ...]:
        """The exact prompt of a call, rebuilt from its template and inputs."""
        return self._folder.read_template(call.template).render(orjson.loads(call.inputs))


def explain_miss(call: RecordedCall, recorded: Sequence[RecordedCall], *, otherwise: str) -> str:
    """Which fields of the nearest of these calls, all of its role, differ from `call`; `otherwise` when none does."""
    if not recorded:
        return f"the role: {call.role} was never asked of the question"
    _, nearest = min((len(fields), fields) for fields in (_differences(call, other) for other in recorded))
    return ", ".join(nearest) or otherwise


def _differences(call: RecordedCall, other: RecordedCall) -> list[str]:
    inputs, others = orjson.loads(call.inputs), orjson.loads(other.inputs)
    differing = [f"input '{name}'" for name in inputs.keys() | others.keys() if inputs.get(name) != others.get(name)]
    if call.template != other.template:
        differing.append("the prompt's fixed text")
    now, then = orjson.loads(call.sampling), orjson.loads(other.sampling)
    sampling = now["sampling"]
    differing += [f"sampling.{name}" for name in sampling if sampling[name] != then["sampling"].get(name)]
    if now["choices"] != then["choices"]:
        differing.append("the choices")
    return sorted(differing)


def _frames(shards: Sequence[Place]) -> Iterator[pl.LazyFrame]:
    """The rows of each shard."""
    return (pl.scan_parquet(source, glob=False) for source in read_all(shards))


def _read_calls(shard: Place) -> dict[str, dict[str, RecordedCall]]:
    (rows,) = _frames([shard])
    frame = rows.select("question_id", "steps", "texts").collect()
    frame = frame.explode("steps", "texts").unnest("steps", "texts")
    calls: dict[str, dict[str, RecordedCall]] = {}
    for step in frame.filter(pl.col("kind") == "llm", pl.col("completion").is_not_null()).iter_rows(named=True):
        call = RecordedCall(
            key=step["key"],
            role=step["role"],
            template=step["template"],
            inputs=step["inputs"],
            sampling=step["sampling"],
            completion=_completion(step),
        )
        calls.setdefault(step["question_id"], {})[call.key] = call
    return calls


def _completion(step: Mapping[str, Any]) -> Completion:
    return Completion(
        text=step["completion"],
        finish_reason=step["finish_reason"],
        prompt_tokens=step["prompt_tokens"],
        completion_tokens=step["completion_tokens"],
        logprobs=tuple(orjson.loads(step["logprobs"])) if step["logprobs"] else None,
        probabilities=orjson.loads(step["probabilities"]) if step["probabilities"] else None,
    )
