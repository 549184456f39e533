"""Runs one question at one point: a method between its ports, with a deadline, until it is a trace row.

Whatever a method does, the question ends as a row; nothing that happens here reaches another question.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from random import Random

from pipeline.engine.ledger import Budget, Ledger
from pipeline.engine.memo import Memo
from pipeline.engine.ports import QuestionGraph, QuestionModel
from pipeline.errors import BudgetExhausted, StorageError
from pipeline.evaluation.metrics import score_question
from pipeline.evaluation.settings import Evaluation
from pipeline.kg.port import KnowledgeGraph
from pipeline.llm.prompt import Template
from pipeline.llm.roles import FULL, ByRole, Wording
from pipeline.methods.port import Method, Refereed, Tools, Verdict
from pipeline.retrieval.port import RetrievalBackend
from pipeline.traces.schema import TraceRow
from pipeline.types import Answer, Example, Prediction


@dataclass(frozen=True)
class Setting:
    """All that a point of a run is made of, opened; points that are the same but for their name share one."""

    points: Sequence[tuple[int, str]]
    """Each with the name of its method, as printed in tables."""
    method: Method
    model: ByRole
    graph: KnowledgeGraph
    retrieval: RetrievalBackend
    evaluation: Evaluation
    budget: Budget
    seed: int
    wording: Wording = FULL


async def run_question(
    example: Example, setting: Setting, memo: Memo, on_template: Callable[[str, Template], None]
) -> TraceRow:
    """Answer and score one question. Every end is a row, but for cancellation and StorageError."""
    ledger = Ledger(setting.budget)
    tools = _tools(example, setting, memo, ledger, on_template)
    answer, error = await _answer(example, setting, tools, ledger)
    point, name = setting.points[0]
    return TraceRow(
        point=point,
        method=name,
        example=example,
        answer=answer,
        scores=score_question(answer, example.gold, dataset=example.question.dataset, settings=setting.evaluation),
        counters=ledger.finish(),
        steps=ledger.steps,
        error=error,
    )


def row_of_twin(row: TraceRow, point: int, name: str) -> TraceRow:
    """The row of a point that is the same as another but for its name: as if run alone, with every call shared."""
    steps = [
        replace(step, shared=step.kind != "decision", queries=None if step.queries is None else 0) for step in row.steps
    ]
    counters = replace(row.counters, llm_calls_shared=row.counters.llm_calls, kg_queries=0)
    return replace(row, point=point, method=name, steps=steps, counters=counters)


def _tools(
    example: Example, setting: Setting, memo: Memo, ledger: Ledger, on_template: Callable[[str, Template], None]
) -> Tools:
    question = example.question
    graph = setting.graph.for_question(question)

    def rng(role: str, round: int = 0, /) -> Random:
        return Random(f"{setting.seed}|{question.id}|{role}|{round}")

    model = setting.model.for_question(example, graph)
    lookups = QuestionGraph(graph, ledger)
    refereed = isinstance(setting.method, Refereed) and setting.method.refereed
    return Tools(
        llm=QuestionModel(model, memo, ledger, seed=setting.seed, wording=setting.wording, on_template=on_template),
        kg=lookups,
        retrieval=setting.retrieval.for_graph(graph),
        record=ledger.record,
        rng=rng,
        caps=setting.budget,
        attributes=lookups if lookups.is_attributed else None,
        verdict=_referee(example, setting.evaluation) if refereed else None,
    )


def _referee(example: Example, settings: Evaluation) -> Verdict:
    """Tells whether answers are exactly the gold answers. Nothing of it is recorded."""

    def is_right(predictions: Sequence[Prediction], /) -> bool:
        answer = Answer(predictions=tuple(predictions))
        scores = score_question(answer, example.gold, dataset=example.question.dataset, settings=settings)
        exact = scores.exact_match if scores.grbench_em is None else scores.grbench_em
        return exact != 0

    return is_right


async def _answer(example: Example, setting: Setting, tools: Tools, ledger: Ledger) -> tuple[Answer, str | None]:
    limit_s = setting.budget.max_wall_s + setting.budget.grace_s
    deadline = asyncio.timeout(limit_s)
    try:
        async with deadline:
            answer = await setting.method.answer(example.question, tools)
    except TimeoutError as error:
        reason = f"no answer within {limit_s:g} s" if deadline.expired() else str(error)
        return _failed(ledger, f"TimeoutError: {reason}")
    except BudgetExhausted as error:
        return Answer(status="budget_exhausted"), f"BudgetExhausted: {error}"
    except StorageError:
        raise
    except Exception as error:  # noqa: BLE001 - one question's bug is one failed row
        return _failed(ledger, f"{type(error).__name__}: {error}")
    if ledger.exhausted is not None:
        answer = replace(answer, status="budget_exhausted")
    return answer, None


def _failed(ledger: Ledger, error: str) -> tuple[Answer, str]:
    ledger.record("error", error=error)
    return Answer(status="failed"), error
