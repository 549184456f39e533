"""Set operations on the answers of sub-goals, executed in code on ids and values (methods.md §5.5)."""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Mapping, Sequence
from decimal import Decimal
from typing import TypeAlias

from pipeline.methods.parog.outcome import Found, Outcome
from pipeline.methods.parog.plan import SET_OPERATORS, Keep, SubGoal
from pipeline.methods.rendering import Names
from pipeline.text import canonical_literal
from pipeline.types import LiteralNode, Node

_NUMBER = re.compile(r"-?[0-9]{1,40}(?:\.[0-9]{1,40})?")
_DATE = re.compile(r"(-?[0-9]{4,9})(?:-([0-9]{2})(?:-([0-9]{2}))?)?")
_STEPS_BACK = 8
"""Facts between a value and what it is a value of."""

_PASSING: Mapping[Keep, Collection[int]] = {"above": {1}, "below": {-1}, "at least": {0, 1}, "at most": {-1, 0}}
"""How a value may compare with a bound to be kept."""

_Key: TypeAlias = tuple[Decimal, ...]
"""What values are ordered by: a number, or the year, month and day of a date as far as it goes."""


def is_executable(subgoal: SubGoal, used: Sequence[Outcome]) -> bool:
    """Whether a sub-goal only combines answers, and all that it combines are there."""
    return subgoal.op in SET_OPERATORS and bool(used) and all(outcome.answers for outcome in used)


def execute(subgoal: SubGoal, used: Sequence[Outcome]) -> tuple[Found, ...] | None:
    """The answers of a set operation, or None where only a reader of its sentence could tell."""
    if not used:
        return None
    if subgoal.op == "conjunction":
        return _common([outcome.answers for outcome in used]) or None
    if subgoal.op == "count":
        return (Found(str(len(used[0].answers))),) if len(used) == 1 else None
    return _picked(subgoal, used)


def _common(lists: Sequence[Sequence[Found]]) -> tuple[Found, ...]:
    """What all lists have, in the order of the first, linked to a node where any list has linked it."""
    first, *others = lists
    matches = [(found, [next(filter(found.is_same, other), None) for other in others]) for found in first]
    return tuple(
        next((one for one in (found, *same) if one is not None and one.node is not None), found)
        for found, same in matches
        if None not in same
    )


def _picked(subgoal: SubGoal, used: Sequence[Outcome]) -> tuple[Found, ...] | None:
    """The things whose value passes the bound, or those with the extreme one; None when values do not compare."""
    values = _values(used)
    order = _order(
        [*(text for texts in values.values() for text in texts), *([subgoal.bound] if subgoal.bound else [])]
    )
    if not values or order is None:
        return None
    names = {id: name for outcome in used for id, name in outcome.names.items()}
    keys = {node: [order(text) for text in texts] for node, texts in values.items()}
    nodes = _passing(subgoal, keys, order)
    return None if nodes is None else tuple(Found(_text(node, names), node) for node in nodes) or None


def _passing(subgoal: SubGoal, keys: Mapping[Node, Sequence[_Key]], order: Callable[[str], _Key]) -> list[Node] | None:
    if subgoal.keep == "highest":
        most = max(max(own) for own in keys.values())
        return [node for node, own in keys.items() if most in own]
    if subgoal.keep == "lowest":
        least = min(min(own) for own in keys.values())
        return [node for node, own in keys.items() if least in own]
    if subgoal.keep is None or subgoal.bound is None:
        return None
    bound = order(subgoal.bound)
    passing = _PASSING[subgoal.keep]
    return [node for node, own in keys.items() if any(_compare(key, bound) in passing for key in own)]


def _compare(key: _Key, bound: _Key) -> int:
    """-1, 0 or 1, as exactly as both are given: 1991-05 is not after 1991."""
    shared = min(len(key), len(bound))
    return (key[:shared] > bound[:shared]) - (key[:shared] < bound[:shared])


def _values(used: Sequence[Outcome]) -> dict[Node, list[str]]:
    """The values that sub-goals have found, by the thing that each is a value of.

    These things are the entities that the used sub-goals have answered with, if any; else where the facts set out from.
    """
    things = [found.id for outcome in used if not _are_values(outcome) for found in outcome.answers if found.id]
    values: dict[Node, list[str]] = {thing: [] for thing in things}
    for outcome in used:
        wanted = {canonical_literal(found.text) for found in outcome.answers}
        back: dict[Node, list[Node]] = {}
        for fact in outcome.facts:
            back.setdefault(fact.end, []).append(fact.start)
        for value in back:
            if value not in values and _is_value(value, outcome.names) and canonical_literal(_plain(value)) in wanted:
                for owner in _owners(value, back, values.keys() if things else ()):
                    values.setdefault(owner, []).append(_plain(value))
    return {thing: texts for thing, texts in values.items() if texts}


def _are_values(outcome: Outcome) -> bool:
    """Whether a sub-goal has answered with values, and nothing else: a film among others may be called 1984."""
    return all(_is_value(found.node, outcome.names) for found in outcome.answers if found.node is not None)


def _is_value(node: Node, names: Names) -> bool:
    """A literal; or, as in graphs without literals, an entity that is a number or a date and has no other name."""
    if isinstance(node, LiteralNode):
        return True
    plain = canonical_literal(node)
    return names.get(node) == node and bool(_NUMBER.fullmatch(plain) or _DATE.fullmatch(plain))


def _plain(node: Node) -> str:
    return node.value if isinstance(node, LiteralNode) else node


def _owners(value: Node, back: Mapping[Node, Sequence[Node]], things: Collection[Node]) -> list[Node]:
    """Follow facts back from a value to the nearest of the things in question, or to its own subjects."""
    layer = list(back[value])
    if not things:
        return layer
    for _ in range(_STEPS_BACK):
        if owners := [node for node in layer if node in things]:
            return owners
        layer = list(dict.fromkeys(source for node in layer for source in back.get(node, ())))
    return []


def _order(texts: Sequence[str]) -> Callable[[str], _Key] | None:
    """What orders all of these values: as numbers, else as dates; None when they are neither."""
    plain = [canonical_literal(text) for text in texts]
    if all(map(_NUMBER.fullmatch, plain)):
        return lambda text: (Decimal(canonical_literal(text)),)
    if all(map(_DATE.fullmatch, plain)):
        return _date
    return None


def _date(text: str) -> _Key:
    found = _DATE.fullmatch(canonical_literal(text))
    assert found, "only texts that were seen to be dates are ordered as dates"
    return tuple(Decimal(part) for part in found.groups() if part)


def _text(node: Node, names: Mapping[str, str | None]) -> str:
    return canonical_literal(node.value) if isinstance(node, LiteralNode) else names.get(node) or node
