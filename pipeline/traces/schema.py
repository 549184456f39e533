"""The Parquet layout of a run's traces: one row per configuration and question, with its steps.

Only this package knows the layout. `docs/reference/traces.md` documents the columns. `SCHEMA_VERSION` is increased when
a column changes its meaning, and is stored in the metadata of every file.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, fields
from typing import Any

import pyarrow as pa

from pipeline.traces.trail import TrailEvent
from pipeline.types import Answer, Example, Scores

SCHEMA_VERSION = "1"
REFUSED_REPLIES = frozenset({"parse_failed", "over_limit"})
"""The decisions to go on without a reply."""
OVER_LIMIT = "over a limit of the method: "
"""The error of a step begins with it if a key or a rule of the method refused the reply: it could be read."""


@dataclass(slots=True)
class Step:
    """One model call, graph lookup or decision of a method. Steps are in the order in which they started."""

    index: int
    """The number of the step, from 0, within one question of one configuration."""
    kind: str
    """`llm`, `kg` or `decision`."""
    role: str
    """The prompt's role, the lookup's name, or the event (specification §2.6)."""
    start_s: float
    """Seconds since the question started."""
    duration_s: float = 0.0
    own_s: float | None = 0.0
    """Of a model call: the seconds that the model took, also if the reply is shared; 0 without a reply; None if that is
    not known. Of a lookup: `duration_s`."""
    parent: int | None = None
    """For a repeated call: the step whose reply could not be used."""
    shared: bool = False
    """Whether the result came from a cache, another question in flight or an earlier run, without a call or query."""
    key: str | None = None
    """Call key of a model call."""
    template: str | None = None
    """Digest of the prompt's fixed text, stored under `prompts/` of the run folder."""
    inputs: str | None = None
    """JSON object: the values of the template's slots; `complaint` is the line that a repeated call appends."""
    sampling: str | None = None
    """JSON object: sampling parameters, choices and ordinal of the call."""
    completion: str | None = None
    finish_reason: str | None = None
    prompt_tokens: int | None = None
    completion_tokens: int | None = None
    probabilities: str | None = None
    """JSON object: probability of each choice."""
    logprobs: str | None = None
    """JSON array: log-probabilities per generated token."""
    candidates: str | None = None
    """JSON array: the candidates of a call that returns several, best first, each with `text`, `finish_reason` and
    `score`. `completion` is the text of the first."""
    query: str | None = None
    """The arguments of the lookup; only the first few if there are many."""
    rows: int | None = None
    """Number of values that the lookup returned."""
    queries: int | None = None
    """Number of queries that the graph server received for this lookup."""
    endpoint: str | None = None
    """The graph server that answered a lookup last; None for a graph of this process, and for model calls."""
    truncated: bool | None = None
    error: str | None = None
    """Why the reply could not be parsed, or why the call failed. After `OVER_LIMIT`: why a limit of the method refused
    a reply that could be read."""
    payload: str | None = None
    """JSON object: the contents of the decision."""


@dataclass(slots=True)
class Counters:
    """The cost of a question. Calls served by the cache count here as if the configuration had run alone."""

    llm_calls: int = 0
    llm_calls_shared: int = 0
    prompt_tokens: int = 0
    completion_tokens: int = 0
    kg_lookups: int = 0
    """Lookups that the method made. Many nodes in one lookup count once."""
    kg_queries: int = 0
    """Queries that the graph server received for the lookups; see `Batch.queries`."""
    kg_rows: int = 0
    parse_failures: int = 0
    replies_cut: int = 0
    """Replies that ended because they had as many tokens as allowed. Choices, which are one token, do not count."""
    calls_without_tokens: int = 0
    """Calls whose reply came without a count of tokens (`usage`)."""
    at_limit: int = 0
    """1 if the question met a limit of `budget`, or a limit of its method that cuts the search, else 0."""
    without_plan: int = 0
    """1 if no reply of the planner could be used, so that the question itself was the plan, else 0."""
    llm_s: float = 0.0
    """Seconds spent waiting for the model, summed over concurrent calls."""
    kg_s: float = 0.0
    wall_s: float = 0.0
    """Seconds from the start of the question to its answer. In them, other questions and configurations ran as well."""
    critical_s: float | None = 0.0
    """Seconds of the question's own waiting: the longest sequence of model calls and lookups, each of which follows the
    one before it, by their `own_s`. None if the `own_s` of a step is not known."""


@dataclass(slots=True)
class TraceRow:
    """Everything that is recorded of one question in one configuration."""

    configuration: int
    method: str
    example: Example
    answer: Answer
    scores: Scores
    counters: Counters
    steps: list[Step] = field(default_factory=list)
    critical_steps: Sequence[int] = ()
    """The longest sequence of calls and lookups, each of which follows the one before it."""
    error: str | None = None
    """Type and text of the exception that ended the question: it failed, or its method handled no `BudgetExhausted`."""
    followed: Sequence[str] | None = None
    """The relations whose nodes the method looked up, and their inverses; None for a method that uses no graph."""
    trail: Sequence[TrailEvent] = ()
    """What happened to the gold answers and gold paths, in order."""


# Dataframe libraries sum integers in the type of the column, and a sweep has more tokens than 32 bits can count.
_TYPES = {"str": pa.string(), "int": pa.int64(), "float": pa.float32(), "bool": pa.bool_()}
_TEXTS = ("inputs", "completion", "probabilities", "logprobs", "query", "payload", "candidates")


def _columns(kind: Any) -> dict[str, pa.DataType]:
    """Return the name and the type of each field of a dataclass, in its order."""
    return {each.name: _TYPES[str(each.type).removesuffix(" | None")] for each in fields(kind)}


STEP_TYPE = pa.struct([column for column in _columns(Step).items() if column[0] not in _TEXTS])
"""The part of a step that is counted, grouped and averaged."""

TEXT_TYPE = pa.struct([(name, pa.string()) for name in _TEXTS])
"""The texts of a step. They have a column of their own: a reader of a nested column decodes all of it, and the texts
are many times larger than the rest."""

_FACT_TEXTS = ("head", "head_name", "relation", "tail", "tail_name")
FACT_TYPE = pa.struct([("chain", pa.int32()), *((name, pa.string()) for name in _FACT_TEXTS)])

GOLD_PATH_TYPE = pa.struct([("topic", pa.string()), ("relations", pa.list_(pa.string()))])

TRAIL_TYPE = pa.struct(
    [
        ("step", pa.int32()),
        ("event", pa.string()),
        ("edge", pa.int32()),
        ("number", pa.int32()),
        ("of", pa.int32()),
        ("by", pa.string()),
    ]
)

_IDENTITY: dict[str, pa.DataType] = {
    "point": pa.int32(),
    "question_id": pa.string(),
    "dataset": pa.string(),
    "split": pa.string(),
    "method": pa.string(),
    "status": pa.string(),
    "error": pa.string(),
    "question": pa.string(),
    "type": pa.string(),
    "level": pa.string(),
    "hops": pa.int32(),
    "query_type": pa.string(),
    "meta": pa.string(),
}
_ANSWERS: dict[str, pa.DataType] = {
    "answers": pa.list_(pa.string()),
    "answer_ids": pa.list_(pa.string()),
    "initial_answers": pa.list_(pa.string()),
    "initial_answer_ids": pa.list_(pa.string()),
    "first_attempt": pa.string(),
    "raw_answer": pa.string(),
    "gold": pa.list_(pa.string()),
    "gold_ids": pa.list_(pa.string()),
    "gold_aliases": pa.list_(pa.list_(pa.string())),
    "evidence": pa.list_(FACT_TYPE),
    "followed_relations": pa.list_(pa.string()),
    "gold_relations": pa.list_(pa.string()),
    "topic_entities": pa.list_(pa.string()),
    "gold_paths": pa.list_(GOLD_PATH_TYPE),
    "trail": pa.list_(TRAIL_TYPE),
    "critical_steps": pa.list_(pa.int32()),
}

SCHEMA = pa.schema(
    [
        *_IDENTITY.items(),
        *_ANSWERS.items(),
        *_columns(Scores).items(),
        *_columns(Counters).items(),
        ("steps", pa.list_(STEP_TYPE)),
        ("texts", pa.list_(TEXT_TYPE)),
    ]
)
"""The columns of `traces/*.parquet`; `steps` and `texts` are parallel, one element per step."""


def _widened(kind: pa.DataType) -> pa.DataType:
    if pa.types.is_list(kind):
        return pa.list_(_widened(kind.value_type))
    if pa.types.is_struct(kind):
        return pa.struct([(each.name, _widened(each.type)) for each in kind])
    return pa.float64() if kind == pa.float32() else kind


WIDE_SCHEMA = pa.schema([(column.name, _widened(column.type)) for column in SCHEMA])
"""The columns of dataframes: numbers have 64 bits."""

ADDED = frozenset(
    {
        *("critical_s", "at_limit", "without_plan", "replies_cut", "first_attempt", "query_type"),
        "calls_without_tokens",
        *("corrected_tog_em", "damaged_tog_em", "supported_readi_hit", "recovered_halted", "recovered_incorrect"),
        *("relation_recall", "followed_relations", "gold_relations", "compat_rog_precision", "compat_rog_recall"),
        *("topic_entities", "gold_paths", "trail", "critical_steps"),
    }
)
"""Columns that were added after the first version. They may be missing in a shard, and null in one."""
