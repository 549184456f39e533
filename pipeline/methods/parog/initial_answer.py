"""The answer to a question from tentative answers alone, by which error correction is measured (specification §9.5).

Its calls come after the method has answered, and change nothing of its answer.
"""

from __future__ import annotations

from collections.abc import Sequence

from pipeline.methods.parog.aggregate import Aggregate
from pipeline.methods.parog.plan import SubGoal, waves
from pipeline.methods.parog.set_operations import execute, is_executable
from pipeline.methods.parog.state import QuestionState
from pipeline.methods.parog.subgoal_result import SubgoalAnswer, SubgoalResult, last_answers
from pipeline.methods.parog.tentative import AnswerTentatively


async def initial_answer(state: QuestionState) -> tuple[SubgoalAnswer, ...]:
    """Return what the method would have answered without refinement. Raises BudgetExhausted.

    If a refinement ended the question before its last sub-goals, this is the tentative answer to the question itself.
    """
    if any(subgoal.id not in state.results for subgoal in state.plan):
        return await _ask(state, SubGoal(0, state.question.text), [])
    tentative: dict[int, SubgoalResult] = {}
    for subgoal in (subgoal for wave in waves(state.plan) for subgoal in wave):
        dependencies = [tentative[id] for id in subgoal.uses]
        tentative[subgoal.id] = SubgoalResult(subgoal, await _tentative(state, subgoal, dependencies))
    results = tuple(tentative[subgoal.id] for subgoal in state.plan)
    reply = await state.ask(Aggregate(state.question, results, (), state.node_labels([])))
    return tuple(map(SubgoalAnswer, reply.texts)) or last_answers(results)


async def _tentative(
    state: QuestionState, subgoal: SubGoal, dependencies: Sequence[SubgoalResult]
) -> tuple[SubgoalAnswer, ...]:
    """Return the tentative answers to a sub-goal, asked for again if they were told refined ones."""
    if is_executable(subgoal, dependencies):
        return execute(subgoal, dependencies) or ()
    result = state.results[subgoal.id]
    told = [[answer.text for answer in state.results[id].answers] for id in subgoal.uses]
    if result.tentative is not None and told == [[answer.text for answer in one.answers] for one in dependencies]:
        return tuple(map(SubgoalAnswer, result.tentative))
    return await _ask(state, subgoal, dependencies)


async def _ask(
    state: QuestionState, subgoal: SubGoal, dependencies: Sequence[SubgoalResult]
) -> tuple[SubgoalAnswer, ...]:
    prompt = AnswerTentatively(state.question, subgoal, tuple(dependencies), state.node_labels([]))
    return tuple(map(SubgoalAnswer, (await state.ask(prompt)).answers))
