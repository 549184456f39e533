"""Executes set operations on the answers of sub-goals in code, by ids and values (specification §5.5)."""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import replace
from decimal import Decimal
from typing import TypeAlias

from pipeline.methods.parog.plan import SET_OPERATORS, Keep, SubGoal
from pipeline.methods.parog.subgoal_result import SubgoalAnswer, SubgoalResult
from pipeline.methods.rendering import Names, node_name
from pipeline.normalisation import canonical_literal
from pipeline.types import LiteralNode, Node

_NUMBER = re.compile(r"-?[0-9]{1,40}(?:\.[0-9]{1,40})?")
_DATE = re.compile(r"(-?[0-9]{4,9})(?:-([0-9]{2})(?:-([0-9]{2}))?)?")
_MAX_FACTS_TO_OWNER = 8
"""Facts between a value and the entity that has it, at most."""

_PASSING: Mapping[Keep, Collection[int]] = {"above": {1}, "below": {-1}, "at least": {0, 1}, "at most": {-1, 0}}
"""The results of `_compare` with which a value is kept."""

_SortKey: TypeAlias = tuple[Decimal, ...]
"""A number, or the year, month and day of a date, as far as they are given."""


def is_executable(subgoal: SubGoal, dependencies: Sequence[SubgoalResult]) -> bool:
    """Whether a sub-goal is a set operation and all sub-goals that it uses have answers; for a union, some of them."""
    enough = any if subgoal.op == "union" else all
    return subgoal.op in SET_OPERATORS and bool(dependencies) and enough(result.answers for result in dependencies)


def execute(subgoal: SubGoal, dependencies: Sequence[SubgoalResult]) -> tuple[SubgoalAnswer, ...] | None:
    """Return the answers of a set operation; None if code cannot execute it."""
    if not dependencies:
        return None
    if subgoal.op == "conjunction":
        return _intersection([result.answers for result in dependencies]) or None
    if subgoal.op == "union":
        return _union([result.answers for result in dependencies])
    if subgoal.op == "count":
        return (SubgoalAnswer(str(len(dependencies[0].answers))),) if len(dependencies) == 1 else None
    return _select_by_value(subgoal, dependencies)


def _intersection(lists: Sequence[Sequence[SubgoalAnswer]]) -> tuple[SubgoalAnswer, ...]:
    """Return the answers that all lists have, in the order of the first; of equal answers, one with a node."""
    first, *others = lists
    matches = [(answer, [next(filter(answer.is_same, other), None) for other in others]) for answer in first]
    return tuple(
        next((one for one in (answer, *same) if one is not None and one.node is not None), answer)
        for answer, same in matches
        if None not in same
    )


def _union(lists: Sequence[Sequence[SubgoalAnswer]]) -> tuple[SubgoalAnswer, ...]:
    """Return the answers that any list has, each once."""
    kept: list[SubgoalAnswer] = []
    for answer in (answer for answers in lists for answer in answers):
        if not any(map(answer.is_same, kept)):
            kept.append(answer)
    return tuple(kept)


def passes(value: str, keep: Keep, bound: str) -> bool:
    """Whether a value is on the side of a bound that is kept; False if the two cannot be compared."""
    sort_key = _sort_key([value, bound])
    return sort_key is not None and _compare(sort_key(value), sort_key(bound)) in _PASSING[keep]


def _select_by_value(subgoal: SubGoal, dependencies: Sequence[SubgoalResult]) -> tuple[SubgoalAnswer, ...] | None:
    """Return the entities whose value passes the bound, or is the extreme one; None if values cannot be compared."""
    if subgoal.bound and subgoal.bound.startswith("#"):
        looked_up = next((one for one in dependencies if f"#{one.subgoal.id}" == subgoal.bound), None)
        if looked_up is None or len(looked_up.answers) != 1:
            return None
        subgoal = replace(subgoal, bound=looked_up.answers[0].text)
        dependencies = [one for one in dependencies if one is not looked_up]
    values = _values(dependencies)
    bounds = [subgoal.bound] if subgoal.bound else []
    sort_key = _sort_key([*(text for texts in values.values() for text in texts), *bounds])
    if not values or sort_key is None:
        return None
    names = {id: name for result in dependencies for id, name in result.names.items()}
    keys = {node: [sort_key(text) for text in texts] for node, texts in values.items()}
    nodes = _passing(subgoal, keys, sort_key)
    answers = [SubgoalAnswer(node_name(node, names) or str(node), node) for node in nodes or ()]
    return tuple(answers) or None


def _passing(
    subgoal: SubGoal, keys: Mapping[Node, Sequence[_SortKey]], sort_key: Callable[[str], _SortKey]
) -> list[Node] | None:
    if subgoal.keep == "highest":
        highest = max(max(own) for own in keys.values())
        return [node for node, own in keys.items() if highest in own]
    if subgoal.keep == "lowest":
        lowest = min(min(own) for own in keys.values())
        return [node for node, own in keys.items() if lowest in own]
    if subgoal.keep is None or subgoal.bound is None:
        return None
    bound = sort_key(subgoal.bound)
    passing = _PASSING[subgoal.keep]
    return [node for node, own in keys.items() if any(_compare(key, bound) in passing for key in own)]


def _compare(key: _SortKey, bound: _SortKey) -> int:
    """Return -1, 0 or 1, at the precision that both have: 1991-05 is not after 1991."""
    shared = min(len(key), len(bound))
    return (key[:shared] > bound[:shared]) - (key[:shared] < bound[:shared])


def _values(dependencies: Sequence[SubgoalResult]) -> dict[Node, list[str]]:
    """Return the values among the answers of sub-goals, by the entity that has them.

    These entities are those among the answers of the sub-goals; if there are none, the starts of the facts that end in
    the values.
    """
    entities = [
        answer.id for result in dependencies if not _are_values(result) for answer in result.answers if answer.id
    ]
    values: dict[Node, list[str]] = {entity: [] for entity in entities}
    for result in dependencies:
        wanted = {canonical_literal(answer.text) for answer in result.answers}
        starts: dict[Node, list[Node]] = {}
        for fact in result.facts:
            starts.setdefault(fact.end, []).append(fact.start)
        for value in starts:
            if value not in values and _is_value(value, result.names) and canonical_literal(_plain(value)) in wanted:
                for owner in _owners(value, starts, values.keys() if entities else ()):
                    values.setdefault(owner, []).append(_plain(value))
    return {entity: texts for entity, texts in values.items() if texts}


def _are_values(result: SubgoalResult) -> bool:
    """Whether all answers of a sub-goal are values. A film called 1984 is none if other films are answers, too."""
    return all(_is_value(answer.node, result.names) for answer in result.answers if answer.node is not None)


def _is_value(node: Node, names: Names) -> bool:
    """Whether a node is a literal, or, in graphs without literals, an entity whose id and name is a number or date."""
    if isinstance(node, LiteralNode):
        return True
    plain = canonical_literal(node)
    return names.get(node) == node and bool(_NUMBER.fullmatch(plain) or _DATE.fullmatch(plain))


def _plain(node: Node) -> str:
    return node.value if isinstance(node, LiteralNode) else node


def _owners(value: Node, starts: Mapping[Node, Sequence[Node]], entities: Collection[Node]) -> list[Node]:
    """Follow facts back from a value to the nearest of the entities; without entities, return the facts' starts."""
    layer = list(starts[value])
    if not entities:
        return layer
    for _ in range(_MAX_FACTS_TO_OWNER):
        if owners := [node for node in layer if node in entities]:
            return owners
        layer = list(dict.fromkeys(source for node in layer for source in starts.get(node, ())))
    return []


def _sort_key(texts: Sequence[str]) -> Callable[[str], _SortKey] | None:
    """Return the key that sorts all of these values as numbers, or else as dates; None if they are neither."""
    plain = [canonical_literal(text) for text in texts]
    if all(map(_NUMBER.fullmatch, plain)):
        return lambda text: (Decimal(canonical_literal(text)),)
    if all(map(_DATE.fullmatch, plain)):
        return _date
    return None


def _date(text: str) -> _SortKey:
    match = _DATE.fullmatch(canonical_literal(text))
    assert match, "all texts were checked to be dates"
    return tuple(Decimal(part) for part in match.groups() if part)
