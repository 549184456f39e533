"""Nodes under texts of their own: what prompts print, and what answers are linked back through (methods.md §5.6)."""

from __future__ import annotations

from collections.abc import Iterable

from pipeline.methods.instance import Instance
from pipeline.methods.parog.outcome import Found
from pipeline.methods.parsing import loose
from pipeline.methods.rendering import Fact, Names, node_name, one_line
from pipeline.text import normalise
from pipeline.types import EntityId, Node, Relation

_UNNAMED = "<unnamed {}>"


class Showing:
    """Prints nodes in one place of the search, each entity under a text that no other has."""

    def __init__(self, names: Names) -> None:
        """Print by `names`; further names are learned as they are looked up."""
        self.names: dict[EntityId, str | None] = dict(names)
        self._texts: dict[Node, str] = {}
        self._nodes: dict[str, Node] = {}
        self._by_name: dict[str, Node] = {}

    def learn(self, names: Names) -> None:
        """Add names; an entity that has one already keeps it."""
        for id, name in names.items():
            self.names[id] = self.names.get(id) or name

    def name(self, node: Node) -> str | None:
        """What a node is called, which other nodes may be called too; None for an unnamed one."""
        return node_name(node, self.names)

    def text(self, node: Node) -> str:
        """The text for a node: its name, with `#2` and so on from the second node of that name on."""
        known = self._texts.get(node)
        if known is None:
            known = self._texts[node] = self._free_text(node)
            self._nodes.setdefault(loose(known), node)
            self._by_name.setdefault(normalise(known), node)
        return known

    def found(self, text: str) -> Found:
        """An answer as a model wrote it, linked to the printed node that it names: by its text, else by its name."""
        node = self._nodes.get(loose(text)) or self._by_name.get(normalise(text))
        return Found(text) if node is None else self.of(node)

    def answer(self, found: Found) -> str:
        """The text for an answer."""
        return found.text if found.node is None else self.text(found.node)

    def of(self, node: Node) -> Found:
        """An answer that is a node."""
        return Found(self.name(node) or self.text(node), node)

    def fact(self, instance: Instance) -> Fact:
        """A fact in the graph's own order; one through a mediator as `h -[r1 / r2]-> t`, in the order of the walk."""
        if instance.length == 1:
            head, relation, tail = instance.triples[0]
            return self.text(head), relation, self.text(tail)
        return self.text(instance.start), path_label(step.relation for step in instance.steps), self.text(instance.end)

    def _free_text(self, node: Node) -> str:
        name, number = self.name(node), 2
        if name is None:
            return _UNNAMED.format(sum(self.name(shown) is None for shown in self._texts) + 1)
        plain = text = one_line(name)
        while loose(text) in self._nodes and isinstance(node, str):
            text = f"{plain} #{number}"
            number += 1
        return text


def label(relation: Relation) -> str:
    """A relation as prompts print it: with a caret where it is followed from object to subject."""
    return relation.name if relation.direction == "out" else f"^{relation.name}"


def path_label(path: Iterable[Relation]) -> str:
    """One relation, or several through mediators: `r1 / r2`."""
    return " / ".join(map(label, path))
