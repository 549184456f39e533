"""Packs texts with common prefixes into one sequence, so that each prefix is computed once.

The calls of a search form a prefix tree: the prompt of a call repeats the prompt of an earlier call and adds to it.
Text by text, most of the computation would be spent on these common prefixes.
"""

from __future__ import annotations

from bisect import bisect_left, insort
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field

import numpy as np

IGNORED = -100
"""The label of a token without loss."""

_OPEN_ROWS = 24
"""Rows that are filled at a time. With more, rows are hardly fuller."""

Row = tuple[list[int], list[int]]
"""Token ids of a text and, for each, its label: the id of the next token, or `IGNORED`."""


@dataclass(slots=True)
class _Node:
    """A token of the tree, and the tokens that follow it in the texts."""

    token: int = IGNORED
    label: int = IGNORED
    children: list[_Node] = field(default_factory=list)

    def child(self, token: int, label: int) -> _Node | None:
        """Return the child with this token and a compatible label.

        A token with two different labels occurs once for each label.
        """
        return next(
            (
                child
                for child in self.children
                if child.token == token and (IGNORED in (label, child.label) or label == child.label)
            ),
            None,
        )


def pack_prefixes(rows: Iterable[Row], max_tokens: int) -> Iterator[np.ndarray]:
    """Yield sequences of at most `max_tokens` that hold all texts, none of which is longer.

    A sequence is an int32 array of shape [4, tokens]: token ids; labels; positions, counted from the start of each
    text; and ends: the index after the last descendant of each token. A token attends to the earlier tokens whose end
    is greater than its own index: `attention_mask` gives the mask.
    """
    root, size = _Node(), 0
    for row in rows:
        path = _common_prefix(root, row)
        if size + len(row[0]) - len(path) > max_tokens:
            yield _lay_out(root)
            root, size, path = _Node(), 0, []
        _add(root, path, row)
        size += len(row[0]) - len(path)
    if size:
        yield _lay_out(root)


def join_sequences(sequences: Iterable[np.ndarray], max_tokens: int) -> list[np.ndarray]:
    """Join packed sequences into rows of at most `max_tokens`, nearly full, none of whose texts sees another.

    A GPU then gets rows of nearly equal length and computes hardly any padding. Few rows are open at a time, so that
    neighbours stay near each other; shuffle the sequences first.
    """
    rows: list[np.ndarray] = []
    opened: list[tuple[int, int, list[np.ndarray]]] = []  # free tokens, a number that breaks ties, sequences
    for number, sequence in enumerate(sequences):
        length = sequence.shape[1]
        if (place := bisect_left(opened, (length, -1))) < len(opened):
            free, _, row = opened.pop(place)
        else:
            free, row = max_tokens, []
        row.append(sequence)
        insort(opened, (free - length, number, row))
        if len(opened) > _OPEN_ROWS:
            rows.append(_joined(opened.pop(0)[2]))
    return [*rows, *(_joined(row) for _, _, row in opened)]


def attention_mask(ends: np.ndarray) -> np.ndarray:
    """Return the attention mask, a bool array of shape [attending tokens, attended tokens]."""
    indices = np.arange(len(ends))
    return (indices <= indices[:, None]) & (indices[:, None] < ends)


def _joined(sequences: Sequence[np.ndarray]) -> np.ndarray:
    """Join sequences to one. The ends count from the start of the row, so no token attends to an earlier sequence."""
    lengths = [sequence.shape[1] for sequence in sequences]
    row: np.ndarray = np.concatenate(sequences, axis=1)
    row[3] += np.repeat(np.cumsum(lengths) - lengths, lengths).astype(row.dtype)
    return row


def _common_prefix(root: _Node, row: Row) -> list[_Node]:
    """Return the nodes of the tree that the text begins with."""
    path: list[_Node] = []
    node = root
    for token, label in zip(*row, strict=True):
        if (child := node.child(token, label)) is None:
            break
        path.append(node := child)
    return path


def _add(root: _Node, path: list[_Node], row: Row) -> None:
    """Add the text's labels to the common prefix, and append the rest of the text."""
    tokens, labels = row
    for node, label in zip(path, labels, strict=False):
        if label != IGNORED:
            node.label = label
    node = path[-1] if path else root
    for token, label in zip(tokens[len(path) :], labels[len(path) :], strict=True):
        node.children.append(_Node(token, label))
        node = node.children[-1]


def _lay_out(root: _Node) -> np.ndarray:
    """Lay out the tree depth first, each token before its descendants."""
    columns: list[list[int]] = []
    ancestors: list[int] = []
    stack = [(child, 0) for child in reversed(root.children)]
    while stack:
        node, position = stack.pop()
        for index in ancestors[position:]:
            columns[index][3] = len(columns)
        del ancestors[position:]
        ancestors.append(len(columns))
        columns.append([node.token, node.label, position, 0])
        stack += [(child, position + 1) for child in reversed(node.children)]
    for index in ancestors:
        columns[index][3] = len(columns)
    return np.array(columns, dtype=np.int32).T
