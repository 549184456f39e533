"""Executes a plan with PARoG and an oracle that knows the plan but no answers (specification §5.3).

The answers come from the graph alone: the oracle follows each operation, and knows only what prompts show.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import replace
from functools import cache
from typing import TypeVar

from pipeline.config import default
from pipeline.datasets.gold_paths import QueryGraph, Variable
from pipeline.kg.interface import GraphLookups
from pipeline.kg.paths import instantiate
from pipeline.llm.prompt import Completion, Prompt, Sampling
from pipeline.methods.exploration import MAX_TAILS
from pipeline.methods.interface import Tools
from pipeline.methods.parog import PARoG
from pipeline.methods.parog.plan import SET_OPERATORS, Plan
from pipeline.methods.parog.set_operations import passes
from pipeline.normalisation import canonical_literal
from pipeline.simulation.gold_path_search import Leg
from pipeline.simulation.parog_plan import GoldStep, PlannedContext
from pipeline.simulation.registry import write_as_oracle
from pipeline.training.parog.decompose import Atom, possible_mediators
from pipeline.training.parog.query import ParsedQuery
from pipeline.types import Answer, Entity, EntityId, Gold, LiteralNode, Node, Question, RelationPath

T = TypeVar("T")

_SAMPLE = 50
"""Nodes that are looked up to decide whether a variable is a mediator."""


async def find_mediators(query: ParsedQuery, nodes: Mapping[str, EntityId], kg: GraphLookups) -> set[Variable]:
    """Return the variables whose nodes have no names in this graph.

    If the graph has no nodes for a variable, it is a mediator unless the query has a `!=` guard on it: queries guard
    only variables that have names.
    """
    mediators: set[Variable] = set()
    for variable in possible_mediators(query):
        names = await _names_of(variable, query, nodes, kg)
        if not any(names) if names else variable not in query.guarded:
            mediators.add(variable)
    return mediators


async def _names_of(
    variable: Variable, query: ParsedQuery, nodes: Mapping[str, EntityId], kg: GraphLookups
) -> list[str | None]:
    """Return the names of some nodes that match a variable; empty if the graph has none."""
    graph = QueryGraph(query.all_patterns, variable)
    for constant in graph.topics():
        for path in graph.paths_from(constant)[:1]:
            reached = await instantiate(kg, nodes.get(constant, constant), path)
            if entities := [node for node in reached.nodes if isinstance(node, str)][:_SAMPLE]:
                return list((await kg.labels(entities)).values())
    return []


async def execute_plan(
    question: Question, plan: Plan, atoms: Sequence[Atom], topics: Mapping[EntityId, Entity], tools: Tools
) -> Answer:
    """Let PARoG answer a question with a given plan; `topics` are the entities of its constants in the graph.

    If a sub-goal has no answers, the result has no predictions: PARoG would continue without them.
    """
    steps = await _steps(plan, atoms, topics, tools.kg)
    with_topics = replace(question, topic_entities=tuple(dict.fromkeys(topics.values())))
    answered: set[object] = set()

    def record(event: str, /, **payload: object) -> None:
        tools.record(event, **payload)
        if payload.get("answers") and (event == "refined" or payload.get("by") == "code"):
            answered.add((payload["subgoal"], event))

    model = _PlanFollower(PlannedContext(with_topics, Gold(), {}, plan=steps))
    answer = await _unlimited().answer(with_topics, replace(tools, llm=model, record=record))
    expected = {(subgoal.id, "step" if subgoal.op in SET_OPERATORS else "refined") for subgoal in plan}
    return answer if expected <= answered else replace(answer, predictions=())


@cache
def _unlimited() -> PARoG:
    """Return PARoG without beam width and prefilter: an execution has to find all that the plan leads to."""
    return default(
        PARoG, temperature=0, width=0, relation_prefilter=MAX_TAILS, entity_prefilter=MAX_TAILS, parse_retries=0
    )


class _PlanFollower:
    """A language model that replies as the oracle, and knows the plan but no gold answers."""

    def __init__(self, gold_context: PlannedContext) -> None:
        self._gold_context = gold_context

    async def ask(self, prompt: Prompt[T], sampling: Sampling, *, retries: int = 2, last: bool = False) -> T:
        return prompt.parse(write_as_oracle(prompt, self._gold_context, None))

    async def read(
        self, prompt: Prompt[T], sampling: Sampling, *, retries: int = 2, last: bool = False
    ) -> tuple[T, Completion]:
        completion = await self.complete(prompt, sampling)
        return prompt.parse(completion.text), completion

    async def complete(self, prompt: Prompt[T], sampling: Sampling) -> Completion:
        return Completion(write_as_oracle(prompt, self._gold_context, None))

    async def choose(self, prompt: Prompt[T], choices: Sequence[str], sampling: Sampling) -> dict[str, float]:
        raise NotImplementedError("PARoG makes no choices")


async def _steps(
    plan: Plan, atoms: Sequence[Atom], topics: Mapping[EntityId, Entity], kg: GraphLookups
) -> tuple[GoldStep, ...]:
    """Return the steps of a plan: the relations and the start nodes of each sub-goal.

    The ends of a step exclude the entities that the question names, unless these are the only ends: this does what the
    `?x != …` guards of the queries do.
    """
    topic_ids = {entity.id for entity in topics.values()}
    reached: list[frozenset[Node]] = []
    steps: list[GoldStep] = []
    for subgoal, atom in zip(plan, atoms, strict=True):
        used = [reached[id - 1] for id in atom.uses]
        starts = frozenset([topics[atom.start].id]) if atom.start is not None else used[0]
        if not atom.path:
            steps.append(GoldStep(subgoal))
            combine = {"conjunction": frozenset.intersection, "union": frozenset.union}.get(atom.op)
            reached.append(combine(*used) if combine else starts)
            continue
        nodes = await _follow(starts, atom.path, kg)
        matching = frozenset(end for end in nodes if _matches(end, atom))
        ends = matching - topic_ids or matching
        leg = Leg(starts, atom.path, nodes, frozenset())
        steps.append(GoldStep(subgoal, leg, ends, filters=atom.op == "filter"))
        reached.append(starts if atom.op == "filter" else ends)
    return tuple(steps)


async def _follow(starts: Collection[Node], path: RelationPath, kg: GraphLookups) -> frozenset[Node]:
    nodes = frozenset(starts)
    for relation in path:
        sources = sorted(node for node in nodes if isinstance(node, str))
        found = await kg.neighbours([(source, relation) for source in sources], MAX_TAILS) if sources else {}
        nodes = frozenset(node for hop in found.values() for node in hop.nodes)
    return nodes


def _matches(node: Node, atom: Atom) -> bool:
    """Whether a node may be the end of an operation: a filter has conditions on it."""
    text = node.value if isinstance(node, LiteralNode) else node
    if atom.op != "filter":
        return True
    if atom.value is not None:
        return canonical_literal(text) == canonical_literal(atom.value.value)
    assert atom.keep is not None, "a filter without a value has a bound"
    assert atom.bound is not None, "a filter without a value has a bound"
    return passes(text, atom.keep, atom.bound)
