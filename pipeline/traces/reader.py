"""Reads the traces of a run: rows, finished calls by key, and prompts exactly as they were sent."""

from __future__ import annotations

import logging
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Any, NamedTuple

import orjson
import polars as pl
from polars.io.plugins import register_io_source
from pydantic import ValidationError

from pipeline.errors import UserError
from pipeline.llm.interface import replies_from_gold
from pipeline.llm.prompt import STORED_COMPLETION, Completion, Message
from pipeline.text import error_kind, plural
from pipeline.traces.folder import RunFolder
from pipeline.traces.origin import ShardOrigin, merge_models
from pipeline.traces.schema import OVER_LIMIT, SCHEMA
from pipeline.traces.shard_file import ShardFile
from pipeline.traces.storage import StoragePath, read_all, storage_path

_log = logging.getLogger(__name__)

OTHER_DATA = "a reply that was made from other gold answers, or for another graph"
"""Why a recorded call cannot be used again: a simulated model read other data."""
_OPEN_SHARDS = 64
"""Finished shards kept in memory; questions are requested shard by shard."""


def read_shards(
    folder: RunFolder, columns: Sequence[str], *, indices: Sequence[int] | None = None
) -> Iterator[pl.DataFrame]:
    """Yield these columns of each finished shard, or of `indices`.

    Columns that were added after the first version are null where a shard lacks them. Raises UserError if there is no
    shard, or one is damaged, belongs to another run, or lacks a column.
    """
    for _, shard in open_shards(folder, indices):
        yield shard.frame(columns)


def scan_shards(folder: RunFolder, indices: Sequence[int]) -> pl.LazyFrame:
    """Return all columns of some shards as one frame, which reads only what is asked of it.

    Collecting it raises UserError like `read_shards`.
    """
    _, first = next(iter(open_shards(folder, indices[:1])))
    schema = first.frame(SCHEMA.names).clear().schema

    def read(
        columns: list[str] | None, predicate: pl.Expr | None, limit: int | None, _batch_size: int | None
    ) -> Iterator[pl.DataFrame]:
        for rows in read_shards(folder, SCHEMA.names if columns is None else columns, indices=indices):
            kept = rows if predicate is None else rows.filter(predicate)
            yield kept if limit is None else kept.head(limit)
            if limit is not None and (limit := limit - kept.height) <= 0:
                return

    return register_io_source(read, schema=schema)


def read_row(folder: RunFolder, indices: Sequence[int], configuration: int, question_id: str) -> dict[str, Any] | None:
    """Return the row of a question in a configuration from the first of some shards that has it; None if none has.

    Raises UserError like `read_shards`.
    """
    for _, shard in open_shards(folder, indices):
        if (number := shard.find(configuration, question_id)) is not None:
            return shard.frame(SCHEMA.names, number).row(0, named=True)
    return None


def open_shards(
    folder: RunFolder, indices: Sequence[int] | None = None, *, run: str | None = None
) -> Iterator[tuple[int, ShardFile]]:
    """Open the finished shards, or those of `indices`, and check that each is of this run.

    `run` is the id of the run, if the caller knows it already. Raises UserError like `read_shards`.
    """
    if indices is None:
        indices = folder.require_finished()
    run = run or (folder.read_run() or {}).get("id")
    paths = list(map(folder.shard, indices))
    for index, path, source in zip(indices, paths, read_all(paths), strict=True):
        shard = ShardFile(path, source)
        shard.check_origin(run, index)
        yield index, shard


def read_completions(folder: RunFolder, configuration: int, *, questions: Collection[str]) -> pl.DataFrame:
    """Return `question_id`, `key` and `completion` of all model calls of a configuration for some questions."""
    wanted = (pl.col("point") == configuration) & pl.col("question_id").is_in(questions)
    columns = (pl.col("steps").struct.field("key"), pl.col("texts").struct.field("completion"))
    shards = (rows.filter(wanted) for rows in read_shards(folder, ["point", "question_id", "steps", "texts"]))
    calls = (shard.explode("steps", "texts") for shard in shards)
    return pl.concat(each.select("question_id", *columns).drop_nulls() for each in calls)


def count_distinct_calls(folder: RunFolder) -> tuple[int, int]:
    """Count distinct model calls, and those among them that no question of the run made: earlier runs made them.

    A key includes the ordinal of equal calls, so it is one call of its question.
    """
    fields = {name: pl.col("steps").list.eval(pl.element().struct.field(name)) for name in ("key", "shared")}
    counts = [0, 0]
    for rows in read_shards(folder, ["question_id", "steps"]):
        steps = rows.select("question_id", **fields).explode(*fields).drop_nulls("key")
        calls = steps.group_by("question_id", "key").agg(reused=pl.col("shared").all())
        counts = [counts[0] + calls.height, counts[1] + int(calls["reused"].sum())]
    return counts[0], counts[1]


def failed_shards(folder: RunFolder) -> set[int]:
    """Return the indices of the finished shards with a failed question."""
    shards = open_shards(folder, sorted(folder.finished()))
    return {index for index, shard in shards if "failed" in shard.frame(["status"])["status"]}


def count_questions(folder: RunFolder) -> int:
    """Count the questions in the finished shards, each once for all configurations. Raises UserError if none is."""
    return pl.concat(read_shards(folder, ["question_id"]))["question_id"].n_unique()


def count_older_replies(folder: RunFolder) -> int:
    """Count the questions whose rows were scored again for other gold answers than those at the time of the replies."""
    origins = (shard.origin for _, shard in open_shards(folder))
    return sum(each.replied is not None for origin in origins if origin for each in origin.questions)


def answering_models(folder: RunFolder, indices: Sequence[int] | None = None) -> dict[str, list[str]]:
    """Return the names under which the model servers of shards answered, by the names that they were asked for."""
    return merge_models(shard.origin.models for _, shard in open_shards(folder, indices) if shard.origin)


@dataclass(frozen=True, slots=True)
class FailedRows:
    """The rows of failed questions with errors of one kind (`pipeline.text.error_kind`)."""

    error: str
    """The first line of one of them."""
    texts: int
    """Different first lines."""
    count: int
    """Rows: a question counts in each configuration in which it failed."""
    configuration: int
    """The number of a configuration with such a row."""
    question_id: str
    """The question of this row."""

    @property
    def line(self) -> str:
        """The number of rows and their error. The word `like` stands before it if the rows have several texts."""
        return f"{self.count:,} {'×' if self.texts == 1 else 'like'} {self.error}"


def count_errors(folder: RunFolder) -> list[FailedRows]:
    """Count the rows of failed questions by their error, the most frequent one first.

    Errors of one class that one source line raised count as one. So do others that differ only in numbers and quotes.
    """
    example = ["point", "question_id"]
    rows = pl.concat(
        rows.filter(pl.col("status") == "failed").select(*example, "error")
        for rows in read_shards(folder, ["status", *example, "error"])
    )
    first_line = pl.col("error").fill_null("unknown").str.split("\n").list.first()
    kinds = rows.with_columns(first_line.alias("error"), first_line.map_elements(error_kind, pl.String).alias("kind"))
    groups = kinds.group_by("kind", maintain_order=True).agg(
        pl.first("error"), pl.n_unique("error").alias("texts"), pl.len(), pl.first(*example)
    )
    return [FailedRows(*row) for row in groups.sort("len", descending=True).drop("kind").iter_rows()]


HAS_REPLY = pl.col("prompt_tokens").is_not_null()
"""Whether the model replied to a call. A call that failed has an error, too, but no tokens, and no reply."""

UNREADABLE = HAS_REPLY & pl.col("error").is_not_null() & ~pl.col("error").str.starts_with(OVER_LIMIT)
"""Whether no parser could read the reply to a call. A reply that a limit of the method refused was read."""


@dataclass(frozen=True, slots=True)
class RoleReplies:
    """The model calls of one role in one configuration, and how many replies no parser could read."""

    configuration: int
    """Its number."""
    role: str
    calls: int
    unreadable: int
    question_id: str
    """A question with such a reply."""


def count_unreadable(folder: RunFolder, configurations: Collection[int]) -> list[RoleReplies]:
    """Count the replies that no parser could read, by configuration and role, the largest number first.

    Roles without such a reply are left out.
    """
    fields = ("kind", "role", "error", "prompt_tokens")
    parts = []
    for rows in read_shards(folder, ["point", "question_id", "steps"]):
        steps = rows.filter(pl.col("point").is_in(configurations)).explode("steps").drop_nulls("steps")
        named = steps.select("point", "question_id", *(pl.col("steps").struct.field(name) for name in fields))
        calls = named.filter((pl.col("kind") == "llm") & HAS_REPLY)
        counts = (pl.len(), UNREADABLE.sum().alias("bad"), pl.col("question_id").filter(UNREADABLE).first())
        parts.append(calls.group_by("point", "role", maintain_order=True).agg(*counts))
    first = pl.col("question_id").drop_nulls().first()
    of_role = pl.concat(parts).group_by("point", "role", maintain_order=True).agg(pl.sum("len", "bad"), first)
    ordered = of_role.filter(pl.col("bad") > 0).sort("bad", descending=True, maintain_order=True)
    return [RoleReplies(*row) for row in ordered.iter_rows()]


@dataclass(frozen=True, slots=True)
class MetLimit:
    """A limit that ended or cut the search of some questions (specification §2.5)."""

    name: str
    """The key without its section, such as `max_wall_s`; a method may record other names."""
    rows: int
    """Rows of questions that met it: a question counts in each configuration in which it did."""
    configuration: int
    """The number of a configuration with such a row."""
    question_id: str
    """The question of this row."""


def count_limits(folder: RunFolder, configurations: Collection[int], *, enough: int) -> tuple[list[MetLimit], int]:
    """Count the rows of some configurations that met each limit, the most frequent one first, and all these rows.

    The names of limits are among the texts of steps, which take long to read: the search ends with the shard in which
    `enough` rows have been found. A question whose time ended without an answer met `max_wall_s`.
    """
    met = pl.col("point").is_in(configurations) & (pl.col("at_limit") == 1)
    is_limit = pl.col("steps").struct.field("role") == "cap_hit"
    name = pl.col("texts").struct.field("payload").str.json_path_match("$.cap").alias("name")
    row = ["point", "question_id"]
    found, parts = 0, []
    for rows in read_shards(folder, [*row, "at_limit", "steps", "texts"]):
        limited = rows.filter(met)
        named = limited.explode("steps", "texts").filter(is_limit).select(*row, name).unique(maintain_order=True)
        late = limited.join(named, on=row, how="anti").select(*row, name=pl.lit("max_wall_s"))
        parts += [named, late]
        found += limited.height
        if found >= enough:
            break
    groups = pl.concat(parts).group_by("name", maintain_order=True).agg(pl.len(), pl.first(*row))
    ordered = groups.sort("len", descending=True, maintain_order=True)
    return [MetLimit(*each) for each in ordered.iter_rows()], found


class KnownCalls(NamedTuple):
    """The completions of a question by call key."""

    made: dict[str, Completion]
    """Those of calls that the run made."""
    taken: dict[str, Completion]
    """Those that it took over from earlier runs."""


def completions_of(
    folder: RunFolder, shard: ShardOrigin, from_gold: Collection[int], *, retry_failed: bool
) -> dict[str, KnownCalls]:
    """Return the completions of a shard by question; empty if the shard is not finished.

    `shard` says what it asks today. If the gold answers of a question were others when it was answered, its calls in
    the configurations `from_gold`, whose models reply from gold answers, are left out. With `retry_failed`, so is the
    last call of each failed row, unless another row of its question, which did not fail, has it as well. Raises
    UserError like `read_shards`.
    """
    try:
        ((_, finished),) = open_shards(folder, [shard.index], run=shard.run)
    except FileNotFoundError:
        return {}
    left_out = _last_calls_of_failed_rows(finished) if retry_failed else set()
    gold_before = _gold_of_replies(finished)
    other_gold = {each.id for each in shard.questions if gold_before.get(each.id, each.gold) != each.gold}
    found: dict[str, KnownCalls] = {}
    for id, of_question in _read_calls(finished).items():
        known = found[id] = KnownCalls({}, {})
        for key, call in of_question.items():
            if (id, key) not in left_out and not (id in other_gold and call.configuration in from_gold):
                (known.taken if call.taken else known.made)[key] = call.completion
    return found


@dataclass(frozen=True, slots=True)
class RecordedCall:
    """A model call of a finished question."""

    key: str
    role: str
    template: str
    inputs: str
    sampling: str
    completion: Completion
    configuration: int = 0
    """One of the configurations that made it."""
    taken: bool = False
    """Whether no configuration made it: it was taken over from an earlier run."""


class RecordedCalls:
    """The model calls of an earlier run, by question and call key."""

    def __init__(self, run: str | StoragePath) -> None:
        """Index the questions of each shard. Raises UserError if `run` is not a run folder with finished shards."""
        self._folder = RunFolder(storage_path(run))
        saved = self._folder.read_run()
        if saved is None:
            raise UserError(f"{run} has no run.yaml: name the folder of an earlier run")
        if not self._folder.finished():
            raise UserError(
                f"{run} holds no finished shard, and only the calls of finished ones can be used again: finish this "
                "run, or name another one"
            )
        self.saved = saved
        self._shards: dict[str, int] = {}
        self._gold: dict[str, str] = {}
        for index, shard in open_shards(self._folder):
            self._shards |= dict.fromkeys(shard.frame(["question_id"])["question_id"], index)
            self._gold |= _gold_of_replies(shard)
        self._calls_of = lru_cache(maxsize=_OPEN_SHARDS)(self._read_calls)

    @property
    def question_ids(self) -> Collection[str]:
        """The questions that the run finished, in the order of its shards."""
        return self._shards.keys()

    def calls(self, question_id: str) -> dict[str, RecordedCall]:
        """Return the calls of a question by key; empty if the run did not finish the question."""
        shard = self._shards.get(question_id)
        return {} if shard is None else self._calls_of(shard).get(question_id, {})

    def _read_calls(self, index: int) -> dict[str, dict[str, RecordedCall]]:
        ((_, shard),) = open_shards(self._folder, [index], run=self.saved.get("id"))
        return _read_calls(shard)

    def reusable(self, question_id: str, gold: str | None, graphs: Collection[str]) -> dict[str, RecordedCall]:
        """Return the calls of a question by key, without replies that a simulated model made from other data.

        A model that replies from the gold answers looks up the ways to them in the graph, and neither is in the key.
        `gold` is the digest of the current gold answers, and `graphs` are the fingerprints of the current graphs.
        """
        is_same_gold = self._gold.get(question_id, gold) == gold  # an older version did not record it
        return {
            key: call
            for key, call in self.calls(question_id).items()
            if self._is_reusable(self.saved["served"][call.configuration], is_same_gold, graphs)
        }

    @staticmethod
    def _is_reusable(served: Mapping[str, Any], is_same_gold: bool, graphs: Collection[str]) -> bool:
        return not replies_from_gold(served["label"]) or (is_same_gold and served["graph"] in graphs)

    def gold_of_replies(self, question_id: str) -> str | None:
        """Return the digest of the gold answers of a question when it was answered; None for an older version."""
        return self._gold.get(question_id)

    def messages(self, call: RecordedCall) -> tuple[Message, ...]:
        """Rebuild the exact prompt of a call from its template and inputs."""
        return self._folder.read_template(call.template).render(orjson.loads(call.inputs))


def explain_miss(call: RecordedCall, recorded: Sequence[RecordedCall], *, otherwise: str) -> str:
    """Name the fields in which `call` differs from the nearest recorded call of its role, or return `otherwise`."""
    if not recorded:
        return f"the role: {call.role} was never asked of the question"
    _, inputs, others = min(_differences(call, other) for other in recorded)
    named = [f"the {plural('input', len(inputs))} {' and '.join(inputs)}"] if inputs else []
    return " and ".join([*named, *others]) or otherwise


def _differences(call: RecordedCall, other: RecordedCall) -> tuple[int, list[str], list[str]]:
    """Return the number of differences, the inputs that differ, and what else differs."""
    mine, others = orjson.loads(call.inputs), orjson.loads(other.inputs)
    inputs = sorted(name for name in mine.keys() | others.keys() if mine.get(name) != others.get(name))
    differing = []
    if call.template != other.template:
        differing.append("the prompt's fixed text")
    now, then = orjson.loads(call.sampling), orjson.loads(other.sampling)
    sampling = now["sampling"]
    names = dict.fromkeys([*sampling, *then["sampling"]])
    differing += [f"sampling.{name}" for name in names if sampling.get(name) != then["sampling"].get(name)]
    if now["choices"] != then["choices"]:
        differing.append("the choices")
    if now.get("ordinal", 0) != then.get("ordinal", 0):
        differing.append("the number of equal calls before it")
    return len(inputs) + len(differing), inputs, differing


def _gold_of_replies(shard: ShardFile) -> dict[str, str]:
    """Return the digest of the gold answers of each question when it was answered; empty for an older version."""
    return {each.id: each.gold_of_replies for each in shard.origin.questions} if shard.origin else {}


def _last_calls_of_failed_rows(shard: ShardFile) -> set[tuple[str, str]]:
    """Return the question and the key of the last call of each failed row, except calls of rows that did not fail."""
    frame = shard.frame(["point", "question_id", "status", "steps"]).explode("steps").unnest("steps")
    calls = frame.filter(pl.col("kind") == "llm")
    failed = calls.filter(pl.col("status") == "failed").group_by("point", "question_id", maintain_order=True).last()
    others = calls.filter(pl.col("status") != "failed")
    left_out = failed.join(others, on=("question_id", "key"), how="anti")
    return set(left_out.select("question_id", "key").iter_rows())


def _read_calls(shard: ShardFile) -> dict[str, dict[str, RecordedCall]]:
    frame = shard.frame(["point", "question_id", "steps", "texts"])
    frame = frame.explode("steps", "texts").unnest("steps", "texts")
    calls: dict[str, dict[str, RecordedCall]] = {}
    unusable = 0
    for step in frame.filter(pl.col("kind") == "llm", pl.col("completion").is_not_null()).iter_rows(named=True):
        try:
            completion = _completion(step)
        except (ValidationError, orjson.JSONDecodeError):
            unusable += 1
            continue
        texts = {name: step[name] for name in ("key", "role", "template", "inputs", "sampling")}
        of_question = calls.setdefault(step["question_id"], {})
        before = of_question.get(texts["key"])
        taken = step["shared"] and (before is None or before.taken)
        call = RecordedCall(**texts, completion=completion, configuration=step["point"], taken=taken)
        of_question[call.key] = call
    if unusable:
        _log.warning("%d calls in %s have replies that cannot be used: they count as not made", unusable, shard.path)
    return calls


def _completion(step: Mapping[str, Any]) -> Completion:
    """Return the reply of a call. Raises ValidationError or JSONDecodeError if it has a wrong type."""
    parsed = {name: orjson.loads(step[name]) if step[name] else None for name in ("logprobs", "probabilities")}
    candidates = orjson.loads(step.get("candidates") or "[]")
    counted = {name: step[name] for name in ("finish_reason", "prompt_tokens", "completion_tokens")}
    return STORED_COMPLETION.validate_python(
        {"text": step["completion"], **counted, **parsed, "candidates": candidates, "seconds": step.get("own_s")}
    )
