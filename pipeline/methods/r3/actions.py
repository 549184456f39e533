"""Parses action lines: `Tool[argument] Tool[argument, argument]`, with balanced brackets (specification §6.2)."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Literal, NamedTuple, TypeAlias

from pipeline.errors import ParseError
from pipeline.methods.parsing import Value, read_literal, read_string, unquoted

Tool: TypeAlias = Literal["RetrieveNode", "NodeFeature", "NeighbourCheck", "NodeDegree", "Relations", "Finish"]

_TOOLS: dict[str, Tool] = {
    "retrievenode": "RetrieveNode",
    "nodefeature": "NodeFeature",
    "neighbourcheck": "NeighbourCheck",
    "neighborcheck": "NeighbourCheck",
    "nodedegree": "NodeDegree",
    "relations": "Relations",
    "finish": "Finish",
}
MAX_CHARACTERS = 20_000
"""Characters read of a reply."""
MAX_ACTIONS = 50
"""Actions executed of a line."""

_CALL = re.compile(rf"\b({'|'.join(_TOOLS)})[ ]?\[", re.IGNORECASE | re.ASCII)
_UNKNOWN = re.compile(r"\b(\w{1,40})\[[^\[\]]*\]")
_BRACKET = re.compile(r"[\[\]]")
_AFTER = re.compile(rf"[\s.,;&|]*+(?:(?:and|then)\s++)?(?:\Z|(?:{'|'.join(_TOOLS)})[ ]?\[)", re.IGNORECASE | re.ASCII)
"""What may follow the closing bracket of an action: the end of the line or the next action."""
_QUOTED = r"\"[^\"\\]*+(?:\\.[^\"\\]*+)*+\""
_FIRST_QUOTED = re.compile(rf"\s*({_QUOTED})\s*,", re.DOTALL)
_LAST_QUOTED = re.compile(rf",\s*({_QUOTED})\s*\Z", re.DOTALL)
_PLAIN_PART = r"[^\[\]\",]*+"
_QUOTED_ARGUMENTS = re.compile(
    rf"\s*+(?:{_QUOTED}\s*+(?:,\s*+(?:{_QUOTED}\s*+|{_PLAIN_PART}))?|{_PLAIN_PART},\s*+{_QUOTED}\s*+)(?=\])", re.DOTALL
)
"""One or two arguments, of which at least one is in quotes, up to the closing bracket."""


class Action(NamedTuple):
    """One action as written."""

    tool: Tool | None
    """None for an unknown tool."""
    content: str
    """The text between the brackets; for an unknown tool, its name."""


@dataclass(frozen=True, slots=True)
class ActionLine:
    """The actions that a model chose for one step."""

    text: str
    """The line as written into the scratchpad."""
    actions: tuple[Action, ...]
    """Empty if the line holds no action."""


def read_actions(text: str) -> ActionLine:
    """Read the actions of the first line that has one. Never raises: a line without actions becomes an observation."""
    lines = [line.strip() for line in re.split(r"[\r\n]", text[:MAX_CHARACTERS]) if line.strip()]
    for line in lines:
        if actions := _known_actions(line):
            return ActionLine(line, actions)
    for line in lines:
        if unknown := _UNKNOWN.search(line):
            return ActionLine(line, (Action(None, unknown[1]),))
    return ActionLine(lines[0] if lines else "", ())


def split_two(content: str, *, at: Literal["first", "last"]) -> tuple[str, str] | None:
    """Split the two arguments of a tool at a comma, and remove their quotes; None if there are not two.

    Ids of GRBench contain no comma, so `at="first"` is right there. If the ids are names, which may contain commas,
    relations contain none, so `at="last"` is right. An argument in double quotes ends with its quotes.
    """
    if quoted := _FIRST_QUOTED.match(content):
        return _both(read_string(quoted[1]), one_argument(content[quoted.end() :]))
    if last := _LAST_QUOTED.search(content):
        return _both(unquoted(content[: last.start()]), read_string(last[1]).strip())
    if at == "first":
        first, _, second = content.partition(",")
    else:
        first, _, second = content.rpartition(",")
    return _both(unquoted(first), unquoted(second))


def _both(first: str, second: str) -> tuple[str, str] | None:
    return (first, second) if first and second else None


def one_argument(content: str) -> str:
    """Return the whole content without a pair of quotes around it."""
    content = content.strip()
    if len(content) > 1 and content[0] == content[-1] == '"':
        return read_string(content).strip()
    return unquoted(content)


def read_finish(content: str) -> tuple[str, ...]:
    """Return the answers of `Finish`: the items of a list literal, or else the whole text as one answer."""
    content = content.strip()
    if content.startswith("[") and content.endswith("]"):
        try:
            items = read_literal(content, "[")
        except ParseError:
            pass
        else:
            assert isinstance(items, list), "a literal that opens with a bracket is a list"
            return tuple(dict.fromkeys(text for text in map(_as_text, items) if text))
    text = one_argument(content)
    return (text,) if text else ()


def _known_actions(line: str) -> tuple[Action, ...]:
    """Read the actions with a known tool."""
    actions: list[Action] = []
    position = 0
    while len(actions) < MAX_ACTIONS and (call := _CALL.search(line, position)):
        tool = _TOOLS[call[1].lower()]
        closing = _closing_bracket(line, call.end())
        if closing < 0:
            break
        actions.append(Action(tool, line[call.end() : closing]))
        position = closing + 1
    return tuple(actions)


def _closing_bracket(line: str, start: int) -> int:
    """Find the closing bracket of the action whose content begins at `start`; -1 if there is none.

    It is the first closing bracket at which the brackets balance and after which the line ends or the next action
    begins: a title may have a bracket of its own. If there is none, because words follow, it is the first one at which
    they balance; if none balances, the first one before the end or the next action. Brackets in quoted arguments do not
    count.
    """
    if in_quotes := _QUOTED_ARGUMENTS.match(line, start):
        return in_quotes.end()
    depth, balanced, unbalanced = 1, -1, -1
    for bracket in _BRACKET.finditer(line, start):
        depth += 1 if bracket[0] == "[" else -1
        if bracket[0] == "]":
            is_last = _AFTER.match(line, bracket.end()) is not None
            if is_last and depth <= 0:
                return bracket.start()
            if depth <= 0:
                balanced = bracket.start() if balanced < 0 else balanced
            elif is_last:
                unbalanced = bracket.start() if unbalanced < 0 else unbalanced
        depth = max(depth, 1)
    return unbalanced if balanced < 0 else balanced


def _as_text(item: Value) -> str:
    """Return a list item as text; an empty text for anything that is no answer."""
    if isinstance(item, str):
        return item.strip()
    if item is None or isinstance(item, (list, dict)):
        return ""
    return str(item)
