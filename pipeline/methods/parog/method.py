"""PARoG: plans sub-goals, answers each of them, and aggregates their answers (specification §5)."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import ClassVar, Literal

from pydantic import ConfigDict, NonNegativeFloat, NonNegativeInt, PositiveInt
from pydantic.dataclasses import dataclass

from pipeline.errors import BudgetExhausted
from pipeline.llm.prompt import Sampling
from pipeline.methods.answer_linking import entity_names
from pipeline.methods.concurrency import concurrently
from pipeline.methods.exploration import most_relevant_facts
from pipeline.methods.grounded_path import GroundedPath
from pipeline.methods.interface import Caps, Tools
from pipeline.methods.parog.aggregate import Aggregate
from pipeline.methods.parog.entities import SelectEntities
from pipeline.methods.parog.initial_answer import initial_answer
from pipeline.methods.parog.plan import Plan, SubGoal, waves, whole_question
from pipeline.methods.parog.planning import MakePlan
from pipeline.methods.parog.refine import Align, Correct, Read, Refine, Suffice, SufficeAlone
from pipeline.methods.parog.relations import SelectRelations
from pipeline.methods.parog.set_operations import execute, is_executable
from pipeline.methods.parog.state import QuestionState
from pipeline.methods.parog.subgoal_result import SubgoalAnswer, SubgoalResult, last_answers
from pipeline.methods.parog.subgoal_search import MOST_SINGLE_OFFERS, SubgoalSearch
from pipeline.methods.parog.tentative import AnswerTentatively
from pipeline.methods.rendering import Names
from pipeline.types import Answer, Prediction, Question, Status


@dataclass(frozen=True, kw_only=True, config=ConfigDict(extra="forbid"))
class PARoG:
    """Plan-Answer-Refine-on-Graph. Its hyper-parameters are described in `conf/method/parog.yaml`."""

    prompts: ClassVar = (
        MakePlan,
        SelectRelations,
        SelectEntities,
        AnswerTentatively,
        Aggregate,
        Refine,
        Align,
        Correct,
        Suffice,
        SufficeAlone,
        Read,
    )
    name: str
    temperature: NonNegativeFloat
    planner: Literal["finetuned", "prompted", "none"]
    max_subgoals: PositiveInt
    max_rounds: NonNegativeInt
    max_refines: NonNegativeInt
    width: NonNegativeInt
    max_relations: PositiveInt
    relation_prefilter: PositiveInt
    per_entity: bool
    expand_cvt: bool
    entity_prefilter: PositiveInt
    unnamed_sample: PositiveInt
    seed_entities: Literal["topic+deps", "topic"]
    refine: bool
    split_refine: bool
    fallback_to_tentative: bool
    stop_on_question_answered: bool
    initial_answer: bool
    parse_retries: NonNegativeInt
    max_tokens: PositiveInt

    def most_llm_calls(self, question: Question, caps: Caps) -> int:
        """Bound the calls (§5.9): a plan, for each sub-goal a tentative answer and all rounds, and the aggregation."""
        offers = len(question.topic_entities) + MOST_SINGLE_OFFERS if self.per_entity else 1
        of_round = offers + 1 + (3 if self.split_refine else 1)
        of_subgoal = 2 + self.max_rounds * of_round + self.initial_answer
        return (1 + self.parse_retries) * (2 + self.max_subgoals * of_subgoal + self.initial_answer)

    async def answer(self, question: Question, tools: Tools) -> Answer:
        """Make a plan, answer its sub-goals, and answer the question from their results (§5.3)."""
        sampling = Sampling(temperature=self.temperature, max_tokens=self.max_tokens)
        state = QuestionState(question, tools, sampling, self.parse_retries, plan=whole_question(question))
        try:
            state.plan = await self._make_plan(state)
        except BudgetExhausted:
            return await self._aggregate(state, exhausted=True)
        for wave in waves(state.plan):
            results = await concurrently(self._answer_subgoal(state, subgoal) for subgoal in wave)
            state.results.update({result.subgoal.id: result for result in results})
            final = next((result for result in results if result.final), None)
            if final and self.stop_on_question_answered:
                return await self._answer_early(state, final)
            if any(result.exhausted for result in results):
                return await self._aggregate(state, exhausted=True)
        if state.plan != whole_question(state.question):  # else the search ended, not a plan
            found = [fact.end for result in state.results.values() for fact in result.facts]
            state.tools.record("cut", by="plan", nodes=found)
        return await self._aggregate(state)

    async def _make_plan(self, state: QuestionState) -> Plan:
        plan = whole_question(state.question)
        if self.planner != "none":
            is_trained = self.planner == "finetuned"
            read = await state.ask(MakePlan(state.question, is_trained, max_subgoals=self.max_subgoals))
            if read is None:
                state.tools.record("without_plan")
            plan = read or plan
        is_whole = plan == whole_question(state.question)
        state.tools.record("plan", subgoals=plan, planner=self.planner, whole_question=is_whole)
        return plan

    async def _answer_subgoal(self, state: QuestionState, subgoal: SubGoal) -> SubgoalResult:
        """Execute a set operation if all answers that it combines are there; else search the graph (§5.5)."""
        dependencies = [state.results[id] for id in subgoal.uses]
        if not is_executable(subgoal, dependencies):
            return await SubgoalSearch(self, state, subgoal, dependencies).run()
        try:
            return await self._combine(state, subgoal, dependencies)
        except BudgetExhausted:
            return SubgoalResult(subgoal, exhausted=True)

    async def _combine(
        self, state: QuestionState, subgoal: SubGoal, dependencies: Sequence[SubgoalResult]
    ) -> SubgoalResult:
        """Execute a set operation in code, else let the model do it.

        The model does it only if another sub-goal uses the answers: otherwise the final aggregation does it anyway.
        """
        answers, by = execute(subgoal, dependencies), "code"
        if answers is None and any(subgoal.id in later.uses for later in state.plan):
            prompt = await _aggregation(state, subgoal)
            reply = await state.ask(prompt)
            answers, by = tuple(map(prompt.labels.link, reply.texts)), "model"
        names = {id: name for result in dependencies for id, name in result.names.items()}
        state.tools.record("step", subgoal=subgoal.id, op=subgoal.op, by=by, answers=_texts(answers or ()))
        return SubgoalResult(subgoal, answers or (), names=names)

    async def _answer_early(self, state: QuestionState, result: SubgoalResult) -> Answer:
        """Answer with the final answers of a refinement that reported the question answered."""
        facts = await most_relevant_facts(result.facts, result.subgoal.goal, result.names, state.tools)
        status: Status = "ok" if state.question.topic_entities else "no_topic_entity"
        return await self._answer(state, result.final, facts, result.names, raw=result.raw, status=status)

    async def _aggregate(self, state: QuestionState, *, exhausted: bool = False) -> Answer:
        """Answer from the results of the sub-goals. This one call is made even after the budget is exhausted."""
        prompt = await _aggregation(state)
        reply = await state.ask(prompt, last=True)
        answers = tuple(map(prompt.labels.link, reply.texts)) or last_answers(prompt.results)
        status: Status = "ok" if prompt.facts else "no_evidence"
        if exhausted:
            status = "budget_exhausted"
        elif not state.question.topic_entities:
            status = "no_topic_entity"
        return await self._answer(state, answers, prompt.facts, prompt.labels.names, raw=reply.raw, status=status)

    async def _answer(
        self,
        state: QuestionState,
        answers: Sequence[SubgoalAnswer],
        facts: Sequence[GroundedPath],
        names: Names,
        *,
        raw: str,
        status: Status,
    ) -> Answer:
        state.tools.record("answered", answers=_texts(answers), evidence=len(facts), status=status)
        initial = await self._initial(state, answers) if status != "budget_exhausted" else None
        evidence = tuple(fact.triples for fact in facts)
        return Answer(
            predictions=_predictions(answers),
            raw=raw,
            evidence=evidence,
            names=entity_names(evidence, names),
            status=status,
            initial=initial,
        )

    async def _initial(self, state: QuestionState, final: Sequence[SubgoalAnswer]) -> tuple[Prediction, ...] | None:
        """Return the answers before refinement (§9.5); None if they are not asked for, or nothing is refined.

        A tentative answer has no node. One that equals a final answer is replaced by it, so that both score alike.
        """
        if not (self.initial_answer and self.refine and self.max_rounds and self.max_refines):
            return None
        try:
            tentative = await initial_answer(state)
        except BudgetExhausted:
            return None
        state.tools.record("step", op="initial", answers=_texts(tentative))
        return _predictions([next(filter(answer.is_same, final), answer) for answer in tentative])


async def _aggregation(state: QuestionState, target: SubGoal | None = None) -> Aggregate:
    """Return the prompt for the answer to the question, or to a sub-goal in the middle of the plan."""
    results = tuple(state.results.get(subgoal.id, SubgoalResult(subgoal)) for subgoal in state.plan)
    key_facts = dict.fromkeys(fact for result in results if result.is_grounded for fact in _key_facts(result))
    labels = state.node_labels(results)
    goal = target.goal if target else state.question.text
    facts = await most_relevant_facts(list(key_facts), goal, labels.names, state.tools)
    labels.add_facts(facts)
    labels.add_answers(results)
    left_out = len(key_facts) - len(facts)
    return Aggregate(state.question, results, facts, labels, target.id if target else None, left_out)


def _key_facts(result: SubgoalResult) -> Sequence[GroundedPath]:
    """Return the facts that end in the answers of a sub-goal; all of its facts if none does."""
    answers = {answer.node for answer in result.answers}
    return [fact for fact in result.facts if fact.end in answers] or result.facts


def _predictions(answers: Iterable[SubgoalAnswer]) -> tuple[Prediction, ...]:
    return tuple(Prediction(answer.text, answer.id) for answer in answers)


def _texts(answers: Iterable[SubgoalAnswer]) -> list[str]:
    return [answer.text for answer in answers]
