"""The oracle's plan for PARoG: its sub-goals, and the relations that each of them follows in the graph."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

from pipeline.datasets.gold_paths import Operation
from pipeline.methods.grounded_path import GroundedPath
from pipeline.methods.parog.plan import Operator, SubGoal
from pipeline.methods.parog.set_operations import execute, is_executable
from pipeline.methods.parog.subgoal_result import SubgoalAnswer, SubgoalResult
from pipeline.methods.rendering import Names, node_name
from pipeline.retrieval.relations import as_text
from pipeline.simulation.gold_context import GoldContext
from pipeline.simulation.gold_path_search import Leg
from pipeline.types import Entity, EntityId, Node, Relation


@dataclass(frozen=True, slots=True)
class GoldStep:
    """A sub-goal of the oracle's plan."""

    subgoal: SubGoal
    leg: Leg | None = None
    """The relations that it follows; None for a set operation."""
    ends: frozenset[Node] | None = None
    """The answers among the nodes that the leg leads to; None if every node is one."""
    filters: bool = False
    """Whether it keeps those starts of the leg that lead to one of its ends."""

    def relations_from(self, entity: EntityId, name: str | None) -> tuple[Relation, ...]:
        """Return the relations to follow from an entity: the first from a start of the leg, the rest from mediators."""
        if self.leg is None:
            return ()
        if entity in self.leg.starts:
            return self.leg.relations[:1]
        return self.leg.relations[1:] if name is None else ()

    def is_answer(self, fact: GroundedPath) -> bool:
        """Whether a fact ends in an answer of this sub-goal."""
        if self.leg is None or not self._follows(fact):
            return False
        return self.ends is None or fact.end in self.ends

    def is_on_path(self, fact: GroundedPath) -> bool:
        """Whether a fact ends in an answer of this sub-goal, or in a mediator before one."""
        if self.leg is None:
            return False
        steps = tuple(step.relation for step in fact.steps)
        return self.is_answer(fact) or (
            fact.start in self.leg.starts and steps == self.leg.relations[:1] != self.leg.relations
        )

    def _follows(self, fact: GroundedPath) -> bool:
        assert self.leg is not None, "a set operation follows nothing"
        taken = tuple(step.relation for step in fact.steps)
        if fact.start in self.leg.starts:
            return taken == self.leg.relations
        return taken == self.leg.relations[1:]


@dataclass(frozen=True)
class PlannedContext(GoldContext):
    """The gold context of a question whose plan is given."""

    plan: tuple[GoldStep, ...] = ()


def perfect_plan(gold_context: GoldContext) -> tuple[GoldStep, ...]:
    """Return one sub-goal per leg of the best path from each topic entity, then the question's operation on their ends.

    The plan is empty if no path is known. A `PlannedContext` has its own plan.
    """
    if isinstance(gold_context, PlannedContext):
        return gold_context.plan
    plan = _PlanBuilder(gold_context)
    last_steps = [
        plan.follow(entity) for entity in gold_context.question.topic_entities if gold_context.legs.get(entity.id)
    ]
    if not last_steps:
        return ()
    last = last_steps[0]
    if len(last_steps) > 1:
        last = plan.add("Keep what {} have all found", "conjunction", last_steps)
    operation = gold_context.operation
    if gold_context.counted or (operation and operation.kind == "count"):
        plan.add("Count the answers of {}", "count", [last])
    elif operation:
        plan.select(last, operation)
    return tuple(plan.steps)


def steps_for(gold_context: GoldContext, subgoal: SubGoal) -> tuple[GoldStep, ...]:
    """Return the steps of the plan that answer a sub-goal: those that its own step depends on, then its own.

    For the question itself these are all steps; for a sub-goal that is not in the plan there are none.
    """
    plan = perfect_plan(gold_context)
    if subgoal.goal == gold_context.question.text:
        needed = {step.subgoal.id for step in plan[-1:]}
    else:
        needed = {step.subgoal.id for step in plan if step.subgoal.goal == subgoal.goal}
    for step in reversed(plan):
        if step.subgoal.id in needed:
            needed.update(step.subgoal.uses)
    return tuple(step for step in plan if step.subgoal.id in needed)


def answers_question(gold_context: GoldContext, subgoal: SubGoal) -> bool:
    """Whether the answers to a sub-goal answer the question."""
    plan = perfect_plan(gold_context)
    return bool(plan) and subgoal.goal in (gold_context.question.text, plan[-1].subgoal.goal)


def answers_of_steps(
    steps: Sequence[GoldStep], facts: Sequence[GroundedPath], names: Names
) -> tuple[SubgoalAnswer, ...]:
    """Return the answers of the last step as far as the facts show them; set operations are executed in code."""
    results: dict[int, SubgoalResult] = {}
    for step in steps:
        dependencies = [results[id] for id in step.subgoal.uses if id in results]
        if step.leg is None:
            can_execute = is_executable(step.subgoal, dependencies)
            answers = (execute(step.subgoal, dependencies) or ()) if can_execute else ()
        else:
            answering = (fact for fact in facts if step.is_answer(fact))
            ends = dict.fromkeys(fact.start if step.filters else fact.end for fact in answering)
            answers = tuple(SubgoalAnswer(node_name(end, names) or str(end), end) for end in ends)
        results[step.subgoal.id] = SubgoalResult(step.subgoal, answers, tuple(facts), names)
    return results[steps[-1].subgoal.id].answers if steps else ()


def is_computed(gold_context: GoldContext) -> bool:
    """Whether the answer is computed from the ends of the paths by counting or comparing them."""
    return gold_context.operation is not None or bool(gold_context.counted)


def gold_among(answers: Iterable[SubgoalAnswer], gold_context: GoldContext) -> tuple[SubgoalAnswer, ...]:
    """Return the gold answers among these."""
    return tuple(answer for answer in answers if gold_context.is_answer(answer.text, id=answer.id))


class _PlanBuilder:
    """Builds the oracle's plan step by step."""

    def __init__(self, gold_context: GoldContext) -> None:
        self.steps: list[GoldStep] = []
        self._gold_context = gold_context
        ways = [legs for legs in gold_context.legs.values() if legs]
        self._is_plain = not is_computed(gold_context) and len(ways) == 1
        """Whether the end of the only path is the answer, so that nodes which lead to no answer can be ignored."""

    def add(self, goal: str, op: Operator, uses: Sequence[int] = (), **more: Any) -> int:
        """Append a sub-goal, with the numbers in `uses` in place of `{}`. Return its number."""
        id = len(self.steps) + 1
        step = {key: more.pop(key) for key in ("leg", "ends") if key in more}
        goal = goal.replace("{}", " and ".join(map(str, uses)))
        self.steps.append(GoldStep(SubGoal(id, goal, op, tuple(uses), **more), **step))
        return id

    def follow(self, entity: Entity) -> int:
        """Append a sub-goal for each leg of the path from an entity. Return the number of the last one."""
        uses: list[int] = []
        for leg in self._gold_context.legs[entity.id]:
            source = "each answer of {}" if uses else entity.name
            ends = leg.leading if self._is_plain and leg.leading else leg.nodes
            op: Operator = "composition" if uses else "lookup"
            uses = [
                self.add(f"Find what “{in_words(leg.relations)}” leads to from {source}", op, uses, leg=leg, ends=ends)
            ]
        return uses[0]

    def select(self, entities: int, operation: Operation) -> None:
        """Append the sub-goals that look up the values of the answers of sub-goal `entities` and select by them."""
        starts = frozenset(node for step in self.steps for node in step.ends or ())
        leg = Leg(starts, operation.path, frozenset(), frozenset())
        goal = f"Find the value that “{in_words(operation.path)}” has for each answer of {{}}"
        values = self.add(goal, "composition", [entities], leg=leg)
        op: Operator = "superlative" if operation.bound is None else "comparative"
        which = f"with the {operation.kind} value" if operation.bound is None else f"{operation.kind} {operation.bound}"
        goal = f"Of the answers of {{}}, keep those {which}"
        self.add(goal, op, [entities, values], keep=operation.kind, bound=operation.bound)


def in_words(path: Iterable[Relation]) -> str:
    """Return a relation path as the sentences of sub-goals spell it."""
    return ", ".join(f"{as_text(relation.name)}{' (of)' * (relation.direction == 'in')}" for relation in path)
