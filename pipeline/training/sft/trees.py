"""Texts that begin alike, laid out as one sequence: what they have in common is computed once.

The calls of a search are a tree: each was sent what an earlier one was sent, and more. Text by text, most of what is
computed would be their common beginnings.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field

import numpy as np

IGNORED = -100
"""The label of a token that nothing is learned from."""

Row = tuple[list[int], list[int]]
"""Token ids of a text, and for each the label: the id that is to follow, or `IGNORED`."""


@dataclass(slots=True)
class _Node:
    """A token, and what follows it in some text."""

    token: int = IGNORED
    label: int = IGNORED
    children: list[_Node] = field(default_factory=list)

    def child(self, token: int, label: int) -> _Node | None:
        """The one that a text can go on by. A token that two different ones are to follow is there for each."""
        return next(
            (
                child
                for child in self.children
                if child.token == token and (IGNORED in (label, child.label) or label == child.label)
            ),
            None,
        )


def trees(rows: Iterable[Row], max_tokens: int) -> Iterator[np.ndarray]:
    """Sequences of at most `max_tokens` that hold all of the texts, which are no longer each.

    A sequence is an array of int32 of shape [4, tokens]: token ids; labels; positions, counted from the beginning of
    each text; and ends, the place behind the last token of those that go on from a token. A token sees those before
    it in the sequence whose end lies behind it: `visible` gives the mask.
    """
    root, size = _Node(), 0
    for row in rows:
        path = _follow(root, row)
        if size + len(row[0]) - len(path) > max_tokens:
            yield _lay_out(root)
            root, size, path = _Node(), 0, []
        _grow(root, path, row)
        size += len(row[0]) - len(path)
    if size:
        yield _lay_out(root)


def visible(ends: np.ndarray) -> np.ndarray:
    """Which tokens each token sees: an array of bool of shape [tokens, tokens], those that look in rows."""
    places = np.arange(len(ends))
    return (places <= places[:, None]) & (places[:, None] < ends)


def _follow(root: _Node, row: Row) -> list[_Node]:
    """The tokens that a text has in common with those of a tree."""
    path: list[_Node] = []
    node = root
    for token, label in zip(*row, strict=True):
        if (child := node.child(token, label)) is None:
            break
        path.append(node := child)
    return path


def _grow(root: _Node, path: list[_Node], row: Row) -> None:
    """Add a text's labels to what it has in common, and behind that the rest of it."""
    tokens, labels = row
    for node, label in zip(path, labels, strict=False):
        if label != IGNORED:
            node.label = label
    node = path[-1] if path else root
    for token, label in zip(tokens[len(path) :], labels[len(path) :], strict=True):
        node.children.append(_Node(token, label))
        node = node.children[-1]


def _lay_out(root: _Node) -> np.ndarray:
    """The tokens of a tree, each before those that go on from it."""
    columns: list[list[int]] = []
    open_places: list[int] = []
    waiting = [(child, 0) for child in reversed(root.children)]
    while waiting:
        node, position = waiting.pop()
        for place in open_places[position:]:
            columns[place][3] = len(columns)
        del open_places[position:]
        open_places.append(len(columns))
        columns.append([node.token, node.label, position, 0])
        waiting += [(child, position + 1) for child in reversed(node.children)]
    for place in open_places:
        columns[place][3] = len(columns)
    return np.array(columns, dtype=np.int32).T
