"""A plan carried out by PARoG itself, with an oracle that knows the plan and no answer (methods.md §5.3).

What the answers are is left to the graph: the oracle follows each operation, and knows nothing that it is not shown.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import replace
from typing import TypeVar

from pipeline.datasets.gold_paths import QueryGraph, Variable
from pipeline.kg.paths import Leg, RelationPath, instantiate
from pipeline.kg.port import GraphLookups
from pipeline.llm.prompt import Completion, Prompt, Sampling
from pipeline.methods.parog import PARoG
from pipeline.methods.parog.exploration import TAILS
from pipeline.methods.parog.guidance import GoldStep, PlannedTruth
from pipeline.methods.parog.plan import SET_OPERATORS, Plan
from pipeline.methods.port import Tools
from pipeline.text import canonical_literal
from pipeline.training.parog.decompose import Atom, joints
from pipeline.training.parog.query import Asked
from pipeline.types import Answer, Entity, EntityId, Gold, LiteralNode, Node, Question

T = TypeVar("T")

_SAMPLE = 50
"""Nodes that decide whether a variable stands for mediators."""
_WITHOUT_CUTS = PARoG(temperature=0, width=0, entity_prefilter=TAILS, parse_retries=0)
"""A plan is checked, not a beam: nothing is left out that it leads to."""


async def find_mediators(asked: Asked, nodes: Mapping[str, EntityId], kg: GraphLookups) -> set[Variable]:
    """The variables that stand for unnamed nodes, as far as this graph has what the query starts with.

    Where it has not, those that no guard of the query tells apart: queries guard what they would name.
    """
    found: set[Variable] = set()
    for variable in joints(asked):
        names = await _names_of(variable, asked, nodes, kg)
        if not any(names) if names else variable not in asked.guarded:
            found.add(variable)
    return found


async def _names_of(
    variable: Variable, asked: Asked, nodes: Mapping[str, EntityId], kg: GraphLookups
) -> list[str | None]:
    graph = QueryGraph(asked.patterns, variable)
    for constant in graph.topics():
        for path in graph.paths_from(constant)[:1]:
            reached = await instantiate(kg, nodes.get(constant, constant), path)
            if entities := [node for node in reached.nodes if isinstance(node, str)][:_SAMPLE]:
                return list((await kg.labels(entities)).values())
    return []


async def execute_plan(
    question: Question, plan: Plan, atoms: Sequence[Atom], topics: Mapping[EntityId, Entity], tools: Tools
) -> Answer:
    """Let PARoG answer a question with a plan; `topics` are the entities of its constants in the graph.

    Without predictions where a sub-goal comes to nothing: PARoG would make do with the others, which checks no plan.
    """
    steps = await _steps(plan, atoms, topics, tools.kg)
    asked = replace(question, topic_entities=tuple(dict.fromkeys(topics.values())))
    achieved: set[object] = set()

    def record(event: str, /, **payload: object) -> None:
        tools.record(event, **payload)
        if payload.get("answers") and (event == "refined" or payload.get("by") == "code"):
            achieved.add((payload["subgoal"], event))

    model = _Follower(PlannedTruth(asked, Gold(), {}, plan=steps))
    answer = await _WITHOUT_CUTS.answer(asked, replace(tools, llm=model, record=record))
    wanted = {(subgoal.id, "step" if subgoal.op in SET_OPERATORS else "refined") for subgoal in plan}
    return answer if wanted <= achieved else replace(answer, predictions=())


class _Follower:
    """A language model that follows a plan: it writes each reply as a perfect model would that knows the plan alone."""

    def __init__(self, truth: PlannedTruth) -> None:
        self._truth = truth

    async def ask(self, prompt: Prompt[T], sampling: Sampling, *, retries: int = 2, last: bool = False) -> T:
        return prompt.parse(prompt.write_as_oracle(self._truth, None))

    async def read(
        self, prompt: Prompt[T], sampling: Sampling, *, retries: int = 2, last: bool = False
    ) -> tuple[T, Completion]:
        completion = await self.complete(prompt, sampling)
        return prompt.parse(completion.text), completion

    async def complete(self, prompt: Prompt[T], sampling: Sampling) -> Completion:
        return Completion(prompt.write_as_oracle(self._truth, None))

    async def choose(self, prompt: Prompt[T], choices: Sequence[str], sampling: Sampling) -> dict[str, float]:
        raise NotImplementedError("PARoG weighs no choices")


async def _steps(
    plan: Plan, atoms: Sequence[Atom], topics: Mapping[EntityId, Entity], kg: GraphLookups
) -> tuple[GoldStep, ...]:
    """What each sub-goal follows, and from where.

    It does not come back to what the question names, unless it leads nowhere else: the `?x != …` guards of the queries.
    """
    named = {entity.id for entity in topics.values()}
    reached: list[frozenset[Node]] = []
    steps: list[GoldStep] = []
    for subgoal, atom in zip(plan, atoms, strict=True):
        used = [reached[id - 1] for id in atom.uses]
        starts = frozenset([topics[atom.start].id]) if atom.start is not None else used[0]
        if not atom.path:
            steps.append(GoldStep(subgoal))
            reached.append(frozenset.intersection(*used) if atom.op == "conjunction" else starts)
            continue
        nodes = await _follow(starts, atom.path, kg)
        wanted = nodes if atom.value is None else frozenset(end for end in nodes if _is_value(end, atom.value))
        ends = wanted - named or wanted
        leg = Leg(starts, atom.path, nodes, frozenset())
        steps.append(GoldStep(subgoal, leg, ends, filters=atom.op == "filter"))
        reached.append(starts if atom.op == "filter" else ends)
    return tuple(steps)


async def _follow(starts: Collection[Node], path: RelationPath, kg: GraphLookups) -> frozenset[Node]:
    nodes = frozenset(starts)
    for relation in path:
        sources = sorted(node for node in nodes if isinstance(node, str))
        found = await kg.neighbours([(source, relation) for source in sources], TAILS) if sources else {}
        nodes = frozenset(node for hop in found.values() for node in hop.nodes)
    return nodes


def _is_value(node: Node, wanted: LiteralNode) -> bool:
    text = node.value if isinstance(node, LiteralNode) else node
    return canonical_literal(text) == canonical_literal(wanted.value)
