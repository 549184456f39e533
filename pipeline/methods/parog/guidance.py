"""What a perfect model makes of a question: its plan, and what each sub-goal follows in the graph."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

from pipeline.datasets.gold_paths import Operation
from pipeline.kg.paths import Leg
from pipeline.llm.oracle import Truth
from pipeline.methods.instance import Instance
from pipeline.methods.parog.outcome import Found, Outcome
from pipeline.methods.parog.plan import Operator, SubGoal
from pipeline.methods.parog.sets import execute
from pipeline.methods.rendering import Names, node_name
from pipeline.retrieval.relations import as_text
from pipeline.types import Entity, EntityId, Node, Relation


@dataclass(frozen=True, slots=True)
class GoldStep:
    """A sub-goal of the perfect plan."""

    subgoal: SubGoal
    leg: Leg | None = None
    """What it follows; None for a set operation."""
    ends: frozenset[Node] | None = None
    """The answers among what the leg leads to; None where any value is one."""
    filters: bool = False
    """Whether the answers are what the leg sets out from, where it leads to one of its ends."""

    def relations_from(self, entity: EntityId, name: str | None) -> tuple[Relation, ...]:
        """What to follow from an entity: the leg's first relation where it sets out, the others at its mediators."""
        if self.leg is None:
            return ()
        if entity in self.leg.starts:
            return self.leg.relations[:1]
        return self.leg.relations[1:] if name is None else ()

    def is_answer(self, fact: Instance) -> bool:
        """Whether a fact, followed from its start, ends in an answer of this sub-goal."""
        if self.leg is None or not self._follows(fact):
            return False
        return self.ends is None or fact.end in self.ends

    def is_on_the_way(self, fact: Instance) -> bool:
        """Whether a fact belongs to this sub-goal: it ends in an answer, or in a mediator on the way to one."""
        if self.leg is None:
            return False
        steps = tuple(step.relation for step in fact.steps)
        return self.is_answer(fact) or (
            fact.start in self.leg.starts and steps == self.leg.relations[:1] != self.leg.relations
        )

    def _follows(self, fact: Instance) -> bool:
        assert self.leg is not None, "only a step along a leg is followed"
        taken = tuple(step.relation for step in fact.steps)
        if fact.start in self.leg.starts:
            return taken == self.leg.relations
        return taken == self.leg.relations[1:]


@dataclass(frozen=True)
class PlannedTruth(Truth):
    """What is known of a question to which there is a plan already."""

    plan: tuple[GoldStep, ...] = ()


def perfect_plan(truth: Truth) -> tuple[GoldStep, ...]:
    """One sub-goal per leg of the way from each topic entity, then what the question does with the ends.

    Empty when no way is known; the plan that there is, where there is one already.
    """
    if isinstance(truth, PlannedTruth):
        return truth.plan
    plan = _Plan(truth)
    found = [plan.follow(entity) for entity in truth.question.topic_entities if truth.ways.get(entity.id)]
    if not found:
        return ()
    last = plan.add("Keep what {} have all found", "conjunction", found) if len(found) > 1 else found[0]
    operation = truth.operation
    if truth.counted or (operation and operation.kind == "count"):
        plan.add("Count the answers of {}", "count", [last])
    elif operation:
        plan.pick(last, operation)
    return tuple(plan.steps)


def steps_towards(truth: Truth, subgoal: SubGoal) -> tuple[GoldStep, ...]:
    """What a perfect model pursues for a sub-goal: its own step, last, after those that it builds on.

    All of them when it is the question itself; empty for a sub-goal that is not in the perfect plan.
    """
    plan = perfect_plan(truth)
    own = (
        plan[-1:] if subgoal.goal == truth.question.text else [one for one in plan if one.subgoal.goal == subgoal.goal]
    )
    needed = {one.subgoal.id for one in own}
    for step in reversed(plan):
        if step.subgoal.id in needed:
            needed.update(step.subgoal.uses)
    return tuple(step for step in plan if step.subgoal.id in needed)


def is_last(truth: Truth, subgoal: SubGoal) -> bool:
    """Whether the answers to a sub-goal answer the question."""
    plan = perfect_plan(truth)
    return bool(plan) and subgoal.goal in (truth.question.text, plan[-1].subgoal.goal)


def carry_out(steps: Sequence[GoldStep], facts: Sequence[Instance], names: Names) -> tuple[Found, ...]:
    """The answers of the last of these steps as far as the facts show them: the set operations are executed."""
    outcomes: dict[int, Outcome] = {}
    for step in steps:
        used = [outcomes[id] for id in step.subgoal.uses if id in outcomes]
        if step.leg is None:
            complete = bool(used) and all(outcome.answers for outcome in used)
            answers = (execute(step.subgoal, used) or ()) if complete else ()
        else:
            answering = (fact for fact in facts if step.is_answer(fact))
            ends = dict.fromkeys(fact.start if step.filters else fact.end for fact in answering)
            answers = tuple(Found(node_name(end, names) or str(end), end) for end in ends)
        outcomes[step.subgoal.id] = Outcome(step.subgoal, answers, tuple(facts), names)
    return outcomes[steps[-1].subgoal.id].answers if steps else ()


def works_out(truth: Truth) -> bool:
    """Whether the answer follows from what the ways lead to by counting or comparing, and is no mere end of them."""
    return truth.operation is not None or bool(truth.counted)


def recognised(truth: Truth, answers: Iterable[Found]) -> tuple[Found, ...]:
    """The gold answers among these: a perfect reader knows them when it sees them."""
    return tuple(found for found in answers if truth.is_answer(found.text, id=found.id))


class _Plan:
    """A perfect plan under construction."""

    def __init__(self, truth: Truth) -> None:
        self.steps: list[GoldStep] = []
        self._truth = truth
        ways = [legs for legs in truth.ways.values() if legs]
        self._is_plain = not works_out(truth) and len(ways) == 1
        """Whether what the way leads to is what is asked for, so that ends which are no answer can be left aside."""

    def add(self, goal: str, op: Operator, uses: Sequence[int] = (), **more: Any) -> int:
        """Append a sub-goal, its goal with the numbers of those it uses filled in; returns its own number."""
        id = len(self.steps) + 1
        step = {key: more.pop(key) for key in ("leg", "ends") if key in more}
        goal = goal.replace("{}", " and ".join(map(str, uses)))
        self.steps.append(GoldStep(SubGoal(id, goal, op, tuple(uses), **more), **step))
        return id

    def follow(self, entity: Entity) -> int:
        """Append a sub-goal for each leg from an entity; returns the number of the last."""
        uses: list[int] = []
        for leg in self._truth.ways[entity.id]:
            source = "each answer of {}" if uses else entity.name
            ends = leg.leading if self._is_plain and leg.leading else leg.nodes
            op: Operator = "composition" if uses else "lookup"
            uses = [
                self.add(f"Find what “{in_words(leg.relations)}” leads to from {source}", op, uses, leg=leg, ends=ends)
            ]
        return uses[0]

    def pick(self, things: int, operation: Operation) -> None:
        """Append the sub-goals that look up the values of things, and pick by them."""
        starts = frozenset(node for step in self.steps for node in step.ends or ())
        leg = Leg(starts, operation.path, frozenset(), frozenset())
        goal = f"Find the value that “{in_words(operation.path)}” has for each answer of {{}}"
        values = self.add(goal, "composition", [things], leg=leg)
        op: Operator = "superlative" if operation.bound is None else "comparative"
        which = f"with the {operation.kind} value" if operation.bound is None else f"{operation.kind} {operation.bound}"
        goal = f"Of the answers of {{}}, keep those {which}"
        self.add(goal, op, [things, values], keep=operation.kind, bound=operation.bound)


def in_words(path: Iterable[Relation]) -> str:
    """A relation path as the goals of sub-goals spell it."""
    return ", ".join(f"{as_text(relation.name)}{' (of)' * (relation.direction == 'in')}" for relation in path)
