"""Makes a training pair from a question with a gold query: decompose, verbalise, translate back, execute (§7.3)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import ClassVar, TypeVar

from pydantic import ConfigDict, NonNegativeFloat, NonNegativeInt, PositiveInt
from pydantic.dataclasses import dataclass

from pipeline.datasets.gold_paths import SparqlPaths
from pipeline.llm.prompt import Prompt, Sampling
from pipeline.methods.interface import Tools
from pipeline.methods.parog.plan import Plan, write_plan
from pipeline.training.labelled import LabelledQuestion
from pipeline.training.parog.back_translation import BackTranslate, JudgeEquivalent
from pipeline.training.parog.constants import constants_of, missing_constants
from pipeline.training.parog.decompose import Atom, decompose, plan_type
from pipeline.training.parog.execution import execute_plan, find_mediators
from pipeline.training.parog.query import Rejected, read_query
from pipeline.training.parog.verbalise import Polish, verbalise
from pipeline.types import Answer, Entity, EntityId, Question, Scalar

T = TypeVar("T")


@dataclass(frozen=True, kw_only=True, config=ConfigDict(extra="forbid"))
class PlanningData:
    """Makes one training pair of PARoG per question. Its keys are described in `conf/collect_parog.yaml`.

    It runs as a method, so its calls are traced and resumed like those of any other. Its answer is the answer of the
    plan. Its decisions are the events `decomposed`, and `sample` or `rejected`.
    """

    prompts: ClassVar = (Polish, BackTranslate, JudgeEquivalent)
    name: str
    temperature: NonNegativeFloat
    max_subgoals: PositiveInt
    execute_where: Mapping[str, Scalar] | None
    parse_retries: NonNegativeInt
    max_tokens: PositiveInt

    async def answer(self, question: Question, tools: Tools) -> Answer:
        """Return the answer of the plan; an empty answer if the question is rejected or the plan is not executed."""
        assert isinstance(question, LabelledQuestion), "the collection runs on solved questions"
        try:
            return await self._make(question, tools)
        except Rejected as reason:
            tools.record("rejected", reason=str(reason))
            return Answer()

    async def _make(self, question: LabelledQuestion, tools: Tools) -> Answer:
        if question.held_out:
            raise Rejected("held out")
        if not question.gold.sparql:
            raise Rejected("no gold query")
        query = read_query(question.gold.sparql)
        atoms = decompose(query, await find_mediators(query, _nodes(question), tools.kg))
        tools.record("decomposed", type=plan_type(atoms), operations=atoms)
        if len(atoms) > self.max_subgoals:
            raise Rejected(f"more than {self.max_subgoals} sub-goals")
        topics = await _topics(question, atoms, tools)
        plan, text = await self._verbalise(question, atoms, topics, tools)
        is_executed = self._is_executed(question)
        tools.record("sample", question=text, plan=write_plan(plan), executed=is_executed)
        if not is_executed:
            return Answer()
        without_gold = Question(question.id, question.dataset, question.split, text)
        return await execute_plan(without_gold, plan, atoms, topics, tools)

    async def _verbalise(
        self, question: LabelledQuestion, atoms: Sequence[Atom], topics: Mapping[EntityId, Entity], tools: Tools
    ) -> tuple[Plan, str]:
        """Return the plan in words, and the question that it answers.

        Raises Rejected if that question is not equivalent to the original.
        """
        names = {constant: entity.name for constant, entity in topics.items()}
        constants = constants_of(atoms, names)
        plan = await self._ask(Polish(verbalise(atoms, names), constants), tools)
        text = await self._ask(BackTranslate(plan, constants), tools)
        if missing_constants(text, constants):
            raise Rejected("the back-translation leaves out a constant")
        if not await self._ask(JudgeEquivalent(question, text, constants), tools):
            raise Rejected("the back-translation asks another question")
        return plan, text

    async def _ask(self, prompt: Prompt[T], tools: Tools) -> T:
        sampling = Sampling(temperature=self.temperature, max_tokens=self.max_tokens)
        return await tools.llm.ask(prompt, sampling, retries=self.parse_retries)

    def _is_executed(self, question: Question) -> bool:
        wanted = self.execute_where or {}
        return all(field in question.meta and question.meta[field] == value for field, value in wanted.items())


async def _topics(question: LabelledQuestion, atoms: Sequence[Atom], tools: Tools) -> dict[EntityId, Entity]:
    """Return the entity of each constant that a lookup starts from. Raises Rejected for one without a name."""
    nodes = _nodes(question)
    ids = {atom.start: nodes.get(atom.start, atom.start) for atom in atoms if atom.start is not None}
    known = {entity.id: entity.name for entity in question.topic_entities if entity.name != entity.id}
    looked_up = await tools.kg.labels([id for id in dict.fromkeys(ids.values()) if id not in known])
    names = {**looked_up, **known}
    topics = {constant: Entity(id, name) for constant, id in ids.items() if (name := names.get(id))}
    if len(topics) < len(ids):
        raise Rejected("a constant without a name")
    return topics


def _nodes(question: LabelledQuestion) -> Mapping[str, EntityId]:
    """Return the ids of topic entities in the graph, by their ids in the query."""
    paths = question.gold.paths
    return paths.topics if isinstance(paths, SparqlPaths) else {}
