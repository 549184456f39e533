"""Plans of sub-goals with operations and dependencies: their types, format and parser (specification §5.5)."""

from __future__ import annotations

import json
import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal, TypeAlias, get_args

from pipeline.errors import ParseError
from pipeline.methods.parsing import Value, numbered, read_literal, truncate
from pipeline.types import Question

Operator: TypeAlias = Literal[
    "lookup", "filter", "composition", "conjunction", "union", "comparative", "superlative", "count"
]
OPERATORS: tuple[Operator, ...] = get_args(Operator)
SET_OPERATORS = frozenset[Operator]({"conjunction", "union", "comparative", "superlative", "count"})
"""Operations on the answers of other sub-goals; they look nothing up in the graph."""

Keep: TypeAlias = Literal["highest", "lowest", "above", "below", "at least", "at most"]
"""The values that a superlative or comparative keeps. Without it, code cannot execute the operation."""
_KEEPS: tuple[Keep, ...] = get_args(Keep)

_REFERENCE = re.compile(
    r"(?:#|\b(?:steps?|sub-?goals?|items?|results?|both)\s{0,3}(?:of\s{0,3})?(?:steps?\s{0,3})?[#(]?|\()([0-9]{1,2})\b"
    r"((?:[\s)]{0,3}(?:,|and\b|or\b|&)\s{0,3}(?:steps?\b)?\s{0,3}[#(]?[0-9]{1,2}\b){0,8})",
    re.IGNORECASE,
)
_NUMBER = re.compile(r"[0-9]{1,2}")
_INTERSECT = re.compile(r"\b(?:both|intersect\w{0,6}|in common|overlap\w{0,4})\b", re.IGNORECASE)
_COUNT = re.compile(r"\A\W{0,3}(?:count\b|how many\b|the number of\b)", re.IGNORECASE)


@dataclass(frozen=True, slots=True)
class SubGoal:
    """One step of a plan."""

    id: int
    goal: str
    op: Operator = "lookup"
    uses: tuple[int, ...] = ()
    """The ids of the sub-goals whose answers this one needs."""
    keep: Keep | None = None
    bound: str | None = None
    """The value that a comparative compares with; `#3` for the answer of sub-goal 3."""


Plan: TypeAlias = tuple[SubGoal, ...]
"""Sub-goals without cycles; the last one answers the question."""


def whole_question(question: Question) -> Plan:
    """Return the plan with the question as its only sub-goal."""
    return (SubGoal(1, question.text),)


def write_plan(plan: Sequence[SubGoal]) -> str:
    """Return a plan as the JSON that planners are trained to write."""
    optional = ("keep", "bound")
    items = (
        {"id": subgoal.id, "goal": subgoal.goal, "op": subgoal.op, "uses": list(subgoal.uses)}
        | {key: value for key in optional if (value := getattr(subgoal, key)) is not None}
        for subgoal in plan
    )
    return "[" + ",\n ".join(json.dumps(item, ensure_ascii=False) for item in items) + "]"


def waves(plan: Plan) -> list[list[SubGoal]]:
    """Return the sub-goals in groups that can be answered concurrently: each depends on earlier groups only.

    Raises ParseError for a duplicate or unknown id, and for a cycle of dependencies.
    """
    ids = {subgoal.id for subgoal in plan}
    if len(ids) < len(plan):
        raise ParseError("two sub-goals have the same id")
    if unknown := sorted({used for subgoal in plan for used in subgoal.uses} - ids):
        raise ParseError(f"there is no sub-goal {unknown[0]} that could be used")
    left, done, groups = list(plan), set[int](), list[list[SubGoal]]()
    while left:
        ready = [subgoal for subgoal in left if done.issuperset(subgoal.uses)]
        if not ready:
            raise ParseError(f"sub-goal {left[0].id} waits for itself")
        groups.append(ready)
        done.update(subgoal.id for subgoal in ready)
        left = [subgoal for subgoal in left if subgoal.id not in done]
    return groups


def under_set_operations(plan: Plan) -> frozenset[int]:
    """Return the sub-goals on which a set operation depends, directly or not."""
    by_id = {subgoal.id: subgoal for subgoal in plan}
    pending = [used for subgoal in plan if subgoal.op in SET_OPERATORS for used in subgoal.uses]
    needed: set[int] = set()
    while pending:
        id = pending.pop()
        if id not in needed:
            needed.add(id)
            pending += by_id[id].uses
    return frozenset(needed)


def read_plan(text: str) -> Plan:
    """Read a plan from a JSON list of sub-goals or sentences, or else from numbered lines.

    Raises ParseError when there is no plan, or one that cannot be executed.
    """
    plan = tuple(_read_item(item, position) for position, item in enumerate(_read_list(text), start=1))
    waves(plan)
    return plan


def _read_list(text: str) -> list[Value]:
    try:
        items = read_literal(text, "[")
    except ParseError as error:
        if "[" in text:
            raise
        items = [line for _, line in numbered(text)]
        if not items:
            raise ParseError("there is neither a JSON list of sub-goals nor a numbered list") from error
    assert isinstance(items, list), "a literal that opens with a bracket is a list"
    if not items:
        raise ParseError("the plan is empty")
    return items


def _read_item(item: Value, position: int) -> SubGoal:
    if isinstance(item, str):
        return _from_sentence(item, position)
    if not isinstance(item, dict):
        raise ParseError(f"sub-goal {position} is neither an object nor a sentence: {truncate(str(item))}")
    goal, id = item.get("goal"), _id(item.get("id", position))
    if not isinstance(goal, str) or not goal.strip():
        raise ParseError(f"sub-goal {position} has no goal")
    if id is None:
        raise ParseError(f"the id of sub-goal {position} is not a number")
    op = str(item.get("op", "")).strip().lower() or _operator(goal, id)
    if op not in OPERATORS:
        raise ParseError(f"sub-goal {position} has the unknown op '{truncate(op)}'")
    uses = _uses(item.get("uses"), goal, op, id)
    keep, bound = str(item.get("keep", "")).strip().lower(), item.get("bound")
    return SubGoal(
        id=id,
        goal=goal.strip(),
        op=op,
        uses=uses,
        keep=keep if keep in _KEEPS else None,
        bound=str(bound) if isinstance(bound, (str, int, float)) and not isinstance(bound, bool) else None,
    )


def _from_sentence(goal: str, id: int) -> SubGoal:
    if not goal.strip():
        raise ParseError(f"sub-goal {id} is blank")
    op = _operator(goal, id)
    return SubGoal(id, goal.strip(), op, _uses(None, goal, op, id))


def _uses(value: Value, goal: str, op: Operator, id: int) -> tuple[int, ...]:
    """Return the ids that a sub-goal lists; else those that its sentence mentions; else the sub-goal before it."""
    if isinstance(value, list):
        ids = [_id(item) for item in value]
        if None in ids:
            raise ParseError(f"what sub-goal {id} uses is not a list of numbers")
        return tuple(dict.fromkeys(used for used in ids if used is not None))
    previous = (id - 1,) if op != "lookup" and id > 1 else ()
    return _references(goal, id) or previous


def _operator(goal: str, id: int) -> Operator:
    """Guess the operator of a sentence from its words."""
    references = _references(goal, id)
    if _COUNT.match(goal) and references:
        return "count"
    if len(references) > 1 and _INTERSECT.search(goal):
        return "conjunction"
    return "composition" if references else "lookup"


def _references(goal: str, id: int) -> tuple[int, ...]:
    """Return the earlier sub-goals that a sentence mentions, as in "step 2", "#2" or "both 1 and 2"."""
    numbers = (int(number) for match in _REFERENCE.finditer(goal) for number in _NUMBER.findall(match[1] + match[2]))
    return tuple(dict.fromkeys(number for number in numbers if 0 < number < id))


def _id(value: Value) -> int | None:
    if isinstance(value, str) and (match := _NUMBER.search(value)):
        return int(match[0])
    return value if isinstance(value, int) and not isinstance(value, bool) else None
