"""Runs the method on one question in one configuration, under a deadline, and returns the trace row.

Every question ends as a row, also if its method fails, and no other question is affected.
"""

from __future__ import annotations

import asyncio
import traceback
from collections.abc import Awaitable, Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from inspect import isawaitable
from itertools import zip_longest
from pathlib import Path
from random import Random

from pipeline.datasets.query_shapes import gold_relations, is_parsed
from pipeline.engine.budget import Budget
from pipeline.engine.call_cache import CallCache
from pipeline.engine.gold_trail import GoldTrail
from pipeline.engine.question_record import QuestionRecord
from pipeline.engine.returned_answer import check_answer
from pipeline.engine.tools import QuestionGraph, QuestionModel
from pipeline.errors import BudgetExhausted, ServiceError, UserError
from pipeline.evaluation.config import ScoringConfig
from pipeline.evaluation.metrics import score_question
from pipeline.kg.fit_to_graph import fit_to_graph
from pipeline.kg.interface import AttributedGraph, GraphLookups, KnowledgeGraph
from pipeline.kg.paths import gold_paths
from pipeline.llm.prompt import Template
from pipeline.llm.roles import FULL, PromptStyle, RoleRouter
from pipeline.methods.interface import GoldFeedback, GoldPaths, Method, Tools, uses_gold, uses_graph
from pipeline.retrieval.interface import RetrievalBackend
from pipeline.traces.schema import TraceRow
from pipeline.types import Answer, Example, Gold, Prediction, RelationPath

_OWN_LOOKUPS_S = 10
"""Seconds that the engine's own lookups for the trail of a question may take."""
_TRACEBACK_FRAMES = 20
"""Innermost frames of a traceback that are stored."""


@dataclass(frozen=True)
class ConfigurationRuntime:
    """The open components of a configuration. Configurations that differ only in their name share one."""

    configurations: Sequence[tuple[int, str]]
    """Number and name of each configuration, as printed in tables."""
    method: Method
    model: RoleRouter
    graph: KnowledgeGraph
    retrieval: RetrievalBackend
    evaluation: ScoringConfig
    budget: Budget
    seed: int
    prompt_style: PromptStyle = FULL


async def run_question(
    example: Example, runtime: ConfigurationRuntime, cache: CallCache, on_template: Callable[[str, Template], None]
) -> TraceRow:
    """Answer and score one question. Returns a row for every failure except cancellation, UserError and MemoryError."""
    example, unready = await _fitted(example, runtime)
    trail = GoldTrail(example.gold, [topic.id for topic in example.question.topic_entities])
    if uses_graph(runtime.method) and not (unready or trail.has_directions):
        await _look_up(trail.find_directions(runtime.graph.for_question(example.question)))
    record = QuestionRecord(runtime.budget, trail=trail)
    tools = _tools(example, runtime, cache, record, on_template)
    answer, error = _failed(record, unready) if unready else await _answer(example, runtime, tools, record)
    record.trail.answer(record.steps, answer.raw)
    counters = record.finish()
    configuration, name = runtime.configurations[0]
    without_graph = not uses_graph(runtime.method)
    followed = None if without_graph else sorted(record.followed)
    scores = score_question(
        answer,
        example.gold,
        dataset=example.question.dataset,
        method=name,
        scoring=runtime.evaluation,
        followed=followed,
        gold_relations=await _gold_relations(example.gold),
    )
    if scores.hits_at_1 == 0 and not without_graph:
        await _look_up(_complete(record, runtime.graph.for_question(example.question)))
    return TraceRow(
        configuration=configuration,
        method=name,
        example=example,
        answer=answer,
        scores=scores,
        followed=followed,
        counters=counters,
        steps=record.steps,
        critical_steps=record.critical_steps,
        error=error,
        trail=record.trail.events,
    )


async def _gold_relations(gold: Gold) -> tuple[str, ...] | None:
    """Return the relations of the gold query. It is parsed in a thread, so that no other question waits for that."""
    if gold.sparql and not is_parsed(gold.sparql):
        return await asyncio.to_thread(gold_relations, gold.sparql)
    return gold_relations(gold.sparql)


async def _fitted(example: Example, runtime: ConfigurationRuntime) -> tuple[Example, str | None]:
    """Return the example as the graph knows it; as it is, and the reason, if the graph does not answer in time."""
    try:
        async with asyncio.timeout(runtime.budget.limit_s):
            return await fit_to_graph(example, runtime.graph.for_question(example.question)), None
    except TimeoutError:
        return example, f"TimeoutError: the graph did not name the entities of the question {_in_time(runtime)}"
    except ServiceError as error:
        return example, f"{type(error).__name__}: {error}"


def _in_time(runtime: ConfigurationRuntime) -> str:
    """Return how long a question could take, with the key that allows more, as the end of a sentence."""
    budget = runtime.budget
    grace = f" and budget.grace_s, {budget.grace_s:g} s" if budget.grace_s else ""
    return f"within {budget.limit_s:g} s (raise budget.max_wall_s, here {budget.max_wall_s:g} s{grace})"


async def _look_up(lookups: Awaitable[None]) -> None:
    """Make lookups for the trail, which stays as it is if the graph does not answer: no score needs it."""
    with suppress(ServiceError, TimeoutError):
        async with asyncio.timeout(_OWN_LOOKUPS_S):
            await lookups


async def _complete(record: QuestionRecord, graph: GraphLookups) -> None:
    """Complete the trail of a wrong question. Raises ServiceError."""
    last = max(0, len(record.steps) - 1)
    await record.trail.look_topics_up(last, graph)
    await record.trail.look_ahead(last, graph)


def duplicate_row(row: TraceRow, configuration: int, name: str) -> TraceRow:
    """Return the row of a configuration that differs from that of `row` only in its name: every call is shared."""
    steps = [
        replace(step, shared=step.kind != "decision", queries=None if step.queries is None else 0) for step in row.steps
    ]
    counters = replace(row.counters, llm_calls_shared=row.counters.llm_calls, kg_queries=0)
    return replace(row, configuration=configuration, method=name, steps=steps, counters=counters)


def _tools(
    example: Example,
    runtime: ConfigurationRuntime,
    cache: CallCache,
    record: QuestionRecord,
    on_template: Callable[[str, Template], None],
) -> Tools:
    question = example.question
    graph = runtime.graph.for_question(question)

    def rng(role: str, round: int = 0, /) -> Random:
        return Random(f"{runtime.seed}|{question.id}|{role}|{round}")

    model = runtime.model.for_question(example, graph)
    lookups = QuestionGraph(graph, record)
    gold = uses_gold(runtime.method)
    return Tools(
        llm=QuestionModel(
            model,
            cache,
            record,
            seed=runtime.seed,
            prompt_style=runtime.prompt_style,
            on_template=on_template,
            question_id=question.id,
        ),
        kg=lookups,
        retrieval=runtime.retrieval.for_graph(graph),
        record=record.add_decision,
        rng=rng,
        caps=runtime.budget,
        attributes=lookups if isinstance(graph, AttributedGraph) else None,
        gold_feedback=_gold_check(example, runtime.evaluation) if gold else None,
        gold_paths=_gold_paths(example, graph) if gold else None,
    )


def _gold_check(example: Example, scoring: ScoringConfig) -> GoldFeedback:
    """Return a function that compares answers with the gold answers. It leaves nothing in the trace."""

    def is_right(predictions: Sequence[Prediction], /, *, one_is_enough: bool = False) -> bool:
        answer = Answer(predictions=tuple(predictions))
        scores = score_question(answer, example.gold, dataset=example.question.dataset, scoring=scoring)
        exact = scores.exact_match if scores.grbench_em is None else scores.grbench_em
        return (scores.hits_any if one_is_enough else exact) != 0

    return is_right


def _gold_paths(example: Example, graph: KnowledgeGraph) -> GoldPaths:
    """Return a function that finds the gold paths in the graph. It leaves nothing in the trace."""
    topics, gold = example.question.topic_entities, example.gold

    async def find() -> list[RelationPath]:
        of_topics = await asyncio.gather(
            *(gold_paths(graph, topic.id, gold.paths.get(topic.id, ()), gold.answers) for topic in topics)
        )
        return [path for each in zip_longest(*of_topics) for path in each if path is not None]

    return find


async def _answer(
    example: Example, runtime: ConfigurationRuntime, tools: Tools, record: QuestionRecord
) -> tuple[Answer, str | None]:
    deadline = asyncio.timeout(runtime.budget.limit_s)
    try:
        async with deadline:
            record.most_llm_calls = runtime.budget.most_llm_calls(runtime.method, example.question)
            answering = runtime.method.answer(example.question, tools)
            if not isawaitable(answering):
                raise TypeError("the method must write `async def answer`")
            answer = check_answer(await answering)
    except (TimeoutError, asyncio.CancelledError) as error:
        # before Python 3.13, the deadline cancels the question if a TaskGroup of the method has failed
        if isinstance(error, asyncio.CancelledError) and not deadline.expired():
            raise
        reason = str(error)
        if deadline.expired():
            record.counters.at_limit = 1
            reason = f"no answer {_in_time(runtime)}"
        return _failed(record, f"TimeoutError: {reason}")
    except BudgetExhausted as error:
        return Answer(status="budget_exhausted"), f"BudgetExhausted: {error}"
    except (UserError, MemoryError):  # the user must fix the configuration, the storage or the machine: the run stops
        raise
    except ServiceError as error:  # a traceback names no server
        return _failed(record, f"{type(error).__name__}: {error}")
    except (Exception, SystemExit) as error:  # noqa: BLE001 - a bug of the method fails one question
        text = "".join(traceback.format_exception(error, limit=-_TRACEBACK_FRAMES))
        first, newline, rest = str(error).partition("\n")
        said = f"{type(error).__name__}: {first}{_hint(error)}{_place(error)}{newline}{rest}"
        return _failed(record, said, traceback=text)
    if record.exhausted is not None:
        answer = replace(answer, status="budget_exhausted")
    return answer, None


def _hint(error: BaseException) -> str:
    """Return what to look for in a method whose error names a call that nobody awaited."""
    return " (is an await missing before a call of the tools?)" if "'coroutine' object" in str(error) else ""


def _place(error: BaseException) -> str:
    """Return the source line of a method that raised an error: the same words may come from several."""
    frames = traceback.extract_tb(error.__traceback__)
    outside = [frame for frame in frames if Path(frame.filename).parent != Path(__file__).parent]
    return f" ({Path(outside[-1].filename).name}:{outside[-1].lineno})" if outside else ""


def _failed(record: QuestionRecord, error: str, **details: str) -> tuple[Answer, str]:
    record.add_decision("error", error=error, **details)
    return Answer(status="failed"), error
