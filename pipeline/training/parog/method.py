"""From a question with its gold query to a training pair: take apart, word, translate back, carry out (§7.3)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TypeVar

from pydantic import ConfigDict, NonNegativeFloat, NonNegativeInt, PositiveInt
from pydantic.dataclasses import dataclass

from pipeline.datasets.gold_paths import SparqlPaths
from pipeline.llm.prompt import Prompt, Sampling
from pipeline.methods.parog.plan import Plan, write_plan
from pipeline.methods.port import Tools
from pipeline.training.parog.back_translation import BackTranslate, JudgeEquivalent
from pipeline.training.parog.constants import constants_of, left_out
from pipeline.training.parog.decompose import Atom, decompose, plan_type
from pipeline.training.parog.execution import execute_plan, find_mediators
from pipeline.training.parog.query import Inexpressible, read_query
from pipeline.training.parog.verbalise import Polish, word
from pipeline.training.solved import Solved
from pipeline.types import Answer, Entity, EntityId, Question, Scalar

T = TypeVar("T")


@dataclass(frozen=True, kw_only=True, config=ConfigDict(extra="forbid"))
class PlanningData:
    """Makes PARoG's training pairs, a question each. Its keys are described in `conf/collect_parog.yaml`.

    It runs as a method does, so that its calls are resumed and traced like any other; its answer is what the plan comes
    to, and every decision is an event: `decomposed`, then `sample` or `rejected`.
    """

    name: str = "collect-parog"
    temperature: NonNegativeFloat = 0.0
    max_subgoals: PositiveInt = 6
    execute_where: Mapping[str, Scalar] | None = None
    parse_retries: NonNegativeInt = 2
    max_tokens: PositiveInt = 2048

    async def answer(self, question: Question, tools: Tools) -> Answer:
        """What the plan of a question comes to; nothing for one that is rejected, or that is not carried out."""
        assert isinstance(question, Solved), "only solved questions make training pairs"
        try:
            return await self._make(question, tools)
        except Inexpressible as reason:
            tools.record("rejected", reason=str(reason))
            return Answer()

    async def _make(self, question: Solved, tools: Tools) -> Answer:
        if question.held_out:
            raise Inexpressible("held out")
        if not question.gold.sparql:
            raise Inexpressible("no gold query")
        asked = read_query(question.gold.sparql)
        atoms = decompose(asked, await find_mediators(asked, _nodes(question), tools.kg))
        tools.record("decomposed", type=plan_type(atoms), operations=atoms)
        if len(atoms) > self.max_subgoals:
            raise Inexpressible(f"more than {self.max_subgoals} sub-goals")
        topics = await _topics(question, atoms, tools)
        plan, text = await self._word(question, atoms, topics, tools)
        executed = self._is_to_be_executed(question)
        tools.record("sample", question=text, plan=write_plan(plan), executed=executed)
        if not executed:
            return Answer()
        return await execute_plan(_asking(text, question), plan, atoms, topics, tools)

    async def _word(
        self, question: Solved, atoms: Sequence[Atom], topics: Mapping[EntityId, Entity], tools: Tools
    ) -> tuple[Plan, str]:
        """The plan and the question that it answers. Raises Inexpressible when the two do not hold together."""
        names = {constant: entity.name for constant, entity in topics.items()}
        constants = constants_of(atoms, names)
        plan = await self._ask(Polish(word(atoms, names), constants), tools)
        text = await self._ask(BackTranslate(plan, constants), tools)
        if left_out(text, constants):
            raise Inexpressible("the back-translation leaves out a constant")
        if not await self._ask(JudgeEquivalent(question, text, constants), tools):
            raise Inexpressible("the back-translation is another question")
        return plan, text

    async def _ask(self, prompt: Prompt[T], tools: Tools) -> T:
        sampling = Sampling(temperature=self.temperature, max_tokens=self.max_tokens)
        return await tools.llm.ask(prompt, sampling, retries=self.parse_retries)

    def _is_to_be_executed(self, question: Question) -> bool:
        wanted = self.execute_where or {}
        return all(field in question.meta and question.meta[field] == value for field, value in wanted.items())


async def _topics(question: Solved, atoms: Sequence[Atom], tools: Tools) -> dict[EntityId, Entity]:
    """The entity of each constant that a lookup sets out from. Raises Inexpressible for one that has no name."""
    nodes = _nodes(question)
    ids = {atom.start: nodes.get(atom.start, atom.start) for atom in atoms if atom.start is not None}
    known = {entity.id: entity.name for entity in question.topic_entities if entity.name != entity.id}
    looked_up = await tools.kg.labels([id for id in dict.fromkeys(ids.values()) if id not in known])
    names = {**looked_up, **known}
    topics = {constant: Entity(id, name) for constant, id in ids.items() if (name := names.get(id))}
    if len(topics) < len(ids):
        raise Inexpressible("a constant without a name")
    return topics


def _nodes(question: Solved) -> Mapping[str, EntityId]:
    """The id that a topic entity has in the query → its id in the graph."""
    paths = question.gold.paths
    return paths.topics if isinstance(paths, SparqlPaths) else {}


def _asking(text: str, question: Solved) -> Question:
    """The question as the planner will meet it: its own words, and no gold."""
    return Question(question.id, question.dataset, question.split, text)
