"""Action lines: `Tool[argument] Tool[argument, argument]`, read by balanced brackets (methods.md §6.2)."""

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
_LONGEST = 20_000
"""Characters of a reply that are read."""
MOST_ACTIONS = 50
"""Actions of a line that are executed."""

_CALL = re.compile(rf"\b({'|'.join(_TOOLS)})[ ]?\[", re.IGNORECASE | re.ASCII)
_UNKNOWN = re.compile(r"\b(\w{1,40})\[[^\[\]]*\]")
_BRACKET = re.compile(r"[\[\]]")
_AFTER = re.compile(rf"[\s.,;&|]*+(?:(?:and|then)\s++)?(?:\Z|(?:{'|'.join(_TOOLS)})[ ]?\[)", re.IGNORECASE | re.ASCII)
"""What may follow the bracket that closes an action: the end of the line or the next action."""
_FIRST_QUOTED = re.compile(r"\s*(\"[^\"\\]*(?:\\.[^\"\\]*)*\")\s*,", re.DOTALL)


class Action(NamedTuple):
    """One action as written."""

    tool: Tool | None
    """None for a tool that there is not."""
    content: str
    """What stands between the brackets; for an unknown tool its name."""


@dataclass(frozen=True, slots=True)
class ActionLine:
    """What a model wants to do next."""

    text: str
    """The line as it goes into the scratchpad."""
    actions: tuple[Action, ...]
    """Empty when nothing on the line is an action."""


def read_actions(text: str) -> ActionLine:
    """The actions of the first line that has any; never raises, for a line without actions is an observation too."""
    lines = [line.strip() for line in text[:_LONGEST].splitlines() if line.strip()]
    for line in lines:
        if actions := _known(line):
            return ActionLine(line, actions)
    for line in lines:
        if unknown := _UNKNOWN.search(line):
            return ActionLine(line, (Action(None, unknown[1]),))
    return ActionLine(lines[0] if lines else "", ())


def split_two(content: str, *, at: Literal["first", "last"]) -> tuple[str, str] | None:
    """The two arguments of a tool without their quotes, parted at a comma outside a quoted first one; None for one.

    Ids of GRBench hold no commas, so the first one parts. Where the nodes are names, which may hold commas, relations
    do not, so the last one does.
    """
    if quoted := _FIRST_QUOTED.match(content):
        first, second = read_string(quoted[1]), content[quoted.end() :]
    elif at == "first":
        first, _, second = content.partition(",")
    else:
        first, _, second = content.rpartition(",")
    first, second = unquoted(first), unquoted(second)
    return (first, second) if first and second else None


def one_argument(content: str) -> str:
    """The whole content, without a pair of quotes around it."""
    content = content.strip()
    if len(content) > 1 and content[0] == content[-1] == '"':
        return read_string(content).strip()
    return unquoted(content)


def read_finish(content: str) -> tuple[str, ...]:
    """The answers of `Finish`: the items of a list literal, else the whole text as one answer."""
    content = content.strip()
    if content.startswith("[") and content.endswith("]"):
        try:
            items = read_literal(content, "[")
        except ParseError:
            pass
        else:
            assert isinstance(items, list), "a literal that opens with a bracket is a list"
            return tuple(dict.fromkeys(text for text in map(_plain, items) if text))
    text = one_argument(content)
    return (text,) if text else ()


def _known(line: str) -> tuple[Action, ...]:
    actions: list[Action] = []
    at = 0
    while len(actions) < MOST_ACTIONS and (call := _CALL.search(line, at)):
        tool = _TOOLS[call[1].lower()]
        closing = line.rfind("]", call.end()) if tool == "Finish" else _closing(line, call.end())
        if closing < 0:
            break
        actions.append(Action(tool, line[call.end() : closing]))
        at = closing + 1
    return tuple(actions)


def _closing(line: str, start: int) -> int:
    """Where the bracket opened before `start` closes: where brackets balance and the line may go on; -1 for nowhere.

    A title with a bracket too many, or one missing, still ends where the line ends or the next action begins.
    """
    depth, first = 1, -1
    for bracket in _BRACKET.finditer(line, start):
        depth += 1 if bracket[0] == "[" else -1
        if bracket[0] == "]" and _AFTER.match(line, bracket.end()):
            if depth <= 0:
                return bracket.start()
            first = bracket.start() if first < 0 else first
        depth = max(depth, 1)
    return first


def _plain(item: Value) -> str:
    if isinstance(item, str):
        return item.strip()
    if item is None or isinstance(item, (list, dict)):
        return ""
    return str(item)
