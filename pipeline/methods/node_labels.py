"""Unique labels of nodes in prompts, and the nodes that the names in replies refer to (specification §5.6)."""

from __future__ import annotations

from collections.abc import Iterable

from pipeline.methods.grounded_path import GroundedPath
from pipeline.methods.parsing import match_key
from pipeline.methods.rendering import Fact, Names, node_name, one_line
from pipeline.normalisation import normalise
from pipeline.types import EntityId, Node, Relation

_UNNAMED = "<unnamed {}>"


class NodeLabels:
    """Maps nodes to labels and back. No two entities have the same label.

    The `add` methods assign labels. The method calls them before it makes a prompt, in the order in which the prompt
    shows the nodes. All other methods only read, so rendering a prompt changes nothing.
    """

    def __init__(self, names: Names) -> None:
        """Start without labels; `names` holds the names of the entities known so far."""
        self.names: dict[EntityId, str | None] = dict(names)
        self._labels: dict[Node, str] = {}
        self._by_label: dict[str, Node] = {}
        self._by_name: dict[str, Node] = {}

    def add_names(self, names: Names) -> None:
        """Add names that were looked up. An entity that already has a name keeps it."""
        for id, name in names.items():
            self.names[id] = self.names.get(id) or name

    def add(self, nodes: Iterable[Node]) -> None:
        """Label the nodes that have no label yet: the name, with `#2` and so on if another entity has that label."""
        for node in nodes:
            if node not in self._labels:
                label = self._labels[node] = self._unused_label(node)
                self._by_label.setdefault(match_key(label), node)
                self._by_name.setdefault(normalise(label), node)

    def add_facts(self, facts: Iterable[GroundedPath]) -> None:
        """Label the nodes that `fact` prints."""
        self.add(node for fact in facts for node in _printed_ends(fact))

    def name(self, node: Node) -> str | None:
        """Return the name of a node, which need not be unique; None for an unnamed one."""
        return node_name(node, self.names)

    def label(self, node: Node) -> str:
        """Return the label of a node. Raises KeyError if it has none."""
        return self._labels[node]

    def fact(self, path: GroundedPath) -> Fact:
        """Return a fact as printed: one hop in the graph's own order, a path over a mediator as `r1 / r2`."""
        subject, object = _printed_ends(path)
        relation = path.path[0] if path.length == 1 else path_label(step.relation for step in path.steps)
        return self.label(subject), relation, self.label(object)

    def node(self, text: str) -> Node | None:
        """Return the node with the label that a model wrote, else the first with that name; else None."""
        return self._by_label.get(match_key(text)) or self._by_name.get(normalise(text))

    def is_name(self, text: str) -> bool:
        """Return whether a text is, letter for letter, the label of a node that has a name."""
        node = self._by_label.get(match_key(text))
        return node is not None and self._labels[node] == text and self.name(node) is not None

    def _unused_label(self, node: Node) -> str:
        name, number = self.name(node), 2
        if name is None:
            return _UNNAMED.format(sum(self.name(other) is None for other in self._labels) + 1)
        plain = label = one_line(name)
        while match_key(label) in self._by_label and isinstance(node, str):
            label = f"{plain} #{number}"
            number += 1
        return label


def _printed_ends(path: GroundedPath) -> tuple[Node, Node]:
    """Return subject and object of a one-hop fact in the graph's own order; of a longer path, start and end."""
    if path.length > 1:
        return path.start, path.end
    subject, _, object = path.triples[0]
    return subject, object


def relation_label(relation: Relation) -> str:
    """Return a relation as prompts print it: with a caret if it is followed from object to subject."""
    return relation.name if relation.direction == "out" else f"^{relation.name}"


def path_label(path: Iterable[Relation]) -> str:
    """Return a relation path as prompts print it: `r1 / r2` for a path over a mediator."""
    return " / ".join(map(relation_label, path))
