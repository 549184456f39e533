"""Plans: sub-goals with operations and dependencies, written and read (methods.md §5.5)."""

from __future__ import annotations

import json
import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal, TypeAlias, get_args

from pipeline.errors import ParseError
from pipeline.methods.parsing import Value, clip, numbered, read_literal
from pipeline.types import Question

Operator: TypeAlias = Literal["lookup", "filter", "composition", "conjunction", "comparative", "superlative", "count"]
OPERATORS: tuple[Operator, ...] = get_args(Operator)
SET_OPERATORS = frozenset[Operator]({"conjunction", "comparative", "superlative", "count"})
"""What is done with the answers of other sub-goals, without looking anything up."""

Keep: TypeAlias = Literal["highest", "lowest", "above", "below", "at least", "at most"]
"""Which values a superlative or a comparative keeps. Optional: with it, the operation is executed in code."""
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
    """Sub-goals whose answers this one needs."""
    keep: Keep | None = None
    bound: str | None = None
    """The value that the others compare with."""


Plan: TypeAlias = tuple[SubGoal, ...]
"""Sub-goals without cycles; the last one answers the question."""


def whole_question(question: Question) -> Plan:
    """The plan with the question itself as its only sub-goal."""
    return (SubGoal(1, question.text),)


def write_plan(plan: Sequence[SubGoal]) -> str:
    """A plan as the JSON that planners are trained to write."""
    optional = ("keep", "bound")
    items = (
        {"id": subgoal.id, "goal": subgoal.goal, "op": subgoal.op, "uses": list(subgoal.uses)}
        | {key: value for key in optional if (value := getattr(subgoal, key)) is not None}
        for subgoal in plan
    )
    return "[" + ",\n ".join(json.dumps(item, ensure_ascii=False) for item in items) + "]"


def waves(plan: Plan) -> list[list[SubGoal]]:
    """The sub-goals in groups that can be pursued at once: each needs only groups before its own.

    Raises ParseError when an id comes twice or is unknown, or when sub-goals wait for each other.
    """
    ids = {subgoal.id for subgoal in plan}
    if len(ids) < len(plan):
        raise ParseError("two sub-goals have the same id")
    if unknown := sorted({used for subgoal in plan for used in subgoal.uses} - ids):
        raise ParseError(f"there is no sub-goal {unknown[0]} that could be used")
    left, done, found = list(plan), set[int](), list[list[SubGoal]]()
    while left:
        ready = [subgoal for subgoal in left if done.issuperset(subgoal.uses)]
        if not ready:
            raise ParseError(f"sub-goal {left[0].id} waits for itself")
        found.append(ready)
        done.update(subgoal.id for subgoal in ready)
        left = [subgoal for subgoal in left if subgoal.id not in done]
    return found


def under_set_operations(plan: Plan) -> frozenset[int]:
    """The sub-goals on which a set operation rests, directly or not: half of their answers would make it wrong."""
    by_id = {subgoal.id: subgoal for subgoal in plan}
    pending = [used for subgoal in plan if subgoal.op in SET_OPERATORS for used in subgoal.uses]
    found: set[int] = set()
    while pending:
        id = pending.pop()
        if id not in found:
            found.add(id)
            pending += by_id[id].uses
    return frozenset(found)


def read_plan(text: str) -> Plan:
    """A JSON list of sub-goals or of sentences, else numbered lines.

    Raises ParseError when there is none, or when it cannot be carried out.
    """
    plan = tuple(_read_item(item, place) for place, item in enumerate(_read_list(text), start=1))
    waves(plan)
    return plan


def _read_list(text: str) -> list[Value]:
    try:
        listed = read_literal(text, "[")
    except ParseError as error:
        if "[" in text:
            raise
        listed = [line for _, line in numbered(text)]
        if not listed:
            raise ParseError("there is neither a JSON list of sub-goals nor a numbered list") from error
    assert isinstance(listed, list), "a literal that opens with a bracket is a list"
    if not listed:
        raise ParseError("the plan is empty")
    return listed


def _read_item(item: Value, place: int) -> SubGoal:
    if isinstance(item, str):
        return _from_sentence(item, place)
    if not isinstance(item, dict):
        raise ParseError(f"sub-goal {place} is neither an object nor a sentence: {clip(str(item))}")
    goal, id = item.get("goal"), _id(item.get("id", place))
    if not isinstance(goal, str) or not goal.strip():
        raise ParseError(f"sub-goal {place} has no goal")
    if id is None:
        raise ParseError(f"the id of sub-goal {place} is not a number")
    op = str(item.get("op", "")).strip().lower() or _operator(goal, id)
    if op not in OPERATORS:
        raise ParseError(f"sub-goal {place} has the unknown op '{clip(op)}'")
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


def _uses(listed: Value, goal: str, op: Operator, id: int) -> tuple[int, ...]:
    """What a sub-goal says that it uses, else what its sentence refers to, else the one before it."""
    if isinstance(listed, list):
        ids = [_id(item) for item in listed]
        if None in ids:
            raise ParseError(f"what sub-goal {id} uses is not a list of numbers")
        return tuple(dict.fromkeys(used for used in ids if used is not None))
    previous = (id - 1,) if op != "lookup" and id > 1 else ()
    return _references(goal, id) or previous


def _operator(goal: str, id: int) -> Operator:
    """The kind of step that a sentence asks for, as far as its words tell."""
    references = _references(goal, id)
    if _COUNT.match(goal) and references:
        return "count"
    if len(references) > 1 and _INTERSECT.search(goal):
        return "conjunction"
    return "composition" if references else "lookup"


def _references(goal: str, id: int) -> tuple[int, ...]:
    """The earlier sub-goals that a sentence mentions, as in "step 2", "#2" or "both 1 and 2"."""
    numbers = (int(number) for found in _REFERENCE.finditer(goal) for number in _NUMBER.findall(found[1] + found[2]))
    return tuple(dict.fromkeys(number for number in numbers if 0 < number < id))


def _id(value: Value) -> int | None:
    if isinstance(value, str) and (found := _NUMBER.search(value)):
        return int(found[0])
    return value if isinstance(value, int) and not isinstance(value, bool) else None
