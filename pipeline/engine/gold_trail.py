"""Writes the trail of the gold answers through the lookups, calls and selections of one question (specification §2.6).

A method neither sees it nor does anything for it, except that it records what its own code drops (`cut`).
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence, Set
from functools import cached_property
from itertools import pairwise
from typing import Any

from pipeline.datasets.inverses import Inverses
from pipeline.kg.interface import Hop, Neighbours
from pipeline.normalisation import canonical_literal
from pipeline.traces.schema import Step
from pipeline.traces.trail import GoldPath, TrailEvent, TrailEventName, gold_paths_of, number_edges
from pipeline.types import EntityId, Gold, LiteralNode, Node, Relation

_MOST_NAMES = 64
"""Texts of gold answers that are searched for in prompts and completions."""
_OPPOSITE: Mapping[str, Any] = {"out": "in", "in": "out"}


class GoldTrail:
    """The trail of one question in one configuration."""

    def __init__(self, gold: Gold) -> None:
        """Prepare to follow the gold answers and the gold paths of a question."""
        self.events: list[TrailEvent] = []
        self.paths: Sequence[GoldPath] = gold_paths_of(gold)
        self._gold = frozenset(
            form
            for answer in gold.answers
            for text in (answer.id, answer.name, *answer.aliases)
            if text
            for form in (text, canonical_literal(text))
        )
        self._gold_nodes: set[EntityId] = set()
        """Nodes that have the name of a gold answer, and another id."""
        self._topics = {path.topic for path in self.paths}
        self._inverses: Inverses = {}
        self._first: set[int] = set()
        """The edges that begin at a topic entity."""
        self._edges: dict[int, Relation] = {}
        self._next: dict[int, set[int]] = {}
        """Edge → the edges that may be followed from the nodes that it leads to."""
        self._from: dict[EntityId, set[int]] = {}
        """Node → the edges that may be followed from it."""
        self._sizes: dict[int, int] = {}
        """Edge → the number of nodes from which it may be followed."""
        for path, numbers in zip(self.paths, number_edges(self.paths), strict=True):
            self._edges.update(zip(numbers, path.relations, strict=True))
            for edge, after in pairwise(numbers):
                self._next.setdefault(edge, set()).add(after)
            self._begin([path.topic], numbers[:1])
            self._first.update(numbers[:1])
        self._named_gold = tuple(sorted(self._gold))[:_MOST_NAMES]

    def use_inverses(self, inverses: Inverses) -> None:
        """Take the pairs of inverse relations of the graph: an edge may be followed by either relation of its pair."""
        if inverses is not self._inverses:
            self._inverses = inverses
            self.__dict__.pop("_by_relation", None)

    # Lookups

    def list_relations(self, step: Step, found: Mapping[EntityId, Sequence[Relation]]) -> None:
        """Note which edges the relations at their nodes include."""
        asked: dict[int, int] = {}
        listed: dict[int, int] = {}
        for id in self._from.keys() & found.keys():
            present = {edge for relation in found[id] for edge in self._by_relation.get(relation, ())}
            for edge in self._from[id]:
                asked[edge] = asked.get(edge, 0) + 1
                listed[edge] = listed.get(edge, 0) + (edge in present)
        for edge in sorted(asked):
            self._add(step, "listed", edge, listed[edge], asked[edge])

    def reach(self, step: Step, found: Mapping[Hop, Neighbours]) -> None:
        """Note which edges were followed, where they led, and whether a gold answer was found."""
        sources: dict[int, set[EntityId]] = {}
        reached: dict[int, dict[Node, None]] = {}
        passed: dict[int, set[EntityId]] = {}
        for (id, relation), neighbours in found.items():
            waiting: Set[int] = self._from.get(id, frozenset())
            here = waiting & self._by_relation.get(relation, frozenset())
            for edge in waiting - here:
                passed.setdefault(edge, set()).add(id)
            for edge in here:
                sources.setdefault(edge, set()).add(id)
                reached.setdefault(edge, {}).update(dict.fromkeys(neighbours.nodes))
        for edge in sorted(passed.keys() - sources.keys()):
            self._add(step, "passed", edge, len(passed[edge]), self._sizes[edge])
        sizes = dict(self._sizes)
        for edge in sorted(sources):
            self._begin((node for node in reached[edge] if isinstance(node, str)), self._next.get(edge, ()))
            self._add(step, "followed", edge, len(sources[edge]), sizes[edge])
            self._add(step, "reached", edge, len(reached[edge]))
        self._find(step, (node for neighbours in found.values() for node in neighbours.nodes))

    def name(self, step: Step, found: Mapping[EntityId, str | None]) -> None:
        """Note whether a node has the name of a gold answer, where ids are not names."""
        named = {id for id, name in found.items() if name in self._gold and not self._is_gold(id)} - self._topics
        if named:
            self._gold_nodes |= named
            self._add(step, "found", None, len(named))

    def read_features(self, step: Step, found: Mapping[EntityId, Mapping[str, Any] | None]) -> None:
        """Note whether a feature has the text of a gold answer."""
        values = (value for features in found.values() for value in (features or {}).values())
        each = (one for value in values for one in (value if isinstance(value, list) else [value]))
        self._find(step, (text for text in each if isinstance(text, str)))

    def _find(self, step: Step, nodes: Iterable[Node]) -> None:
        if not self._gold:
            return
        gold = {node for node in nodes if self._is_gold(node)}
        if gold:
            self._gold_nodes |= {node for node in gold if isinstance(node, str)}
            self._add(step, "found", None, len(gold))

    def _is_gold(self, node: Node) -> bool:
        if isinstance(node, LiteralNode):
            return node.value in self._gold or canonical_literal(node.value) in self._gold
        return node in self._gold or node in self._gold_nodes

    # Model calls

    def show(self, step: Step, inputs: Mapping[str, str]) -> None:
        """Note which edges within reach, and how many gold answers, a prompt names."""
        self._mention(step, "shown", "\n".join(text for slot, text in inputs.items() if slot not in _NOT_OF_THE_SEARCH))

    def write(self, step: Step, completion: str) -> None:
        """Note which edges within reach, and how many gold answers, a completion names."""
        self._mention(step, "written", completion)

    def _mention(self, step: Step, event: TrailEventName, text: str) -> None:
        for edge in sorted(self._sizes):
            if any(_stands_in(name, text) for name in self._names_of(edge)):
                self._add(step, event, edge)
        if count := sum(_stands_in(name, text) for name in self._named_gold):
            self._add(step, event, None, count)

    def answer(self, steps: Sequence[Step], raw: str) -> None:
        """Note from which call the answer was read: the last one whose completion contains `raw`, else the last one."""
        calls = [step for step in steps if step.kind == "llm" and step.completion is not None]
        raw = raw.strip()
        having = [step for step in calls if raw and raw in (step.completion or "")]
        for step in (having or calls)[-1:]:
            self._add(step, "answered")

    # Selections

    def keep(self, step: int, /, *, nodes: Iterable[Node]) -> None:
        """Note how many gold answers, and nodes of gold paths, are among the nodes that survived a selection."""
        kept = list(dict.fromkeys(nodes))
        self.events.append(TrailEvent(step, "kept", None, self._count_gold(kept)))
        waiting = self._count_waiting(kept)
        for edge in sorted(self._sizes.keys() - self._first):
            self.events.append(TrailEvent(step, "kept", edge, waiting[edge], self._sizes[edge]))

    def cut(
        self, step: int, /, *, by: str, nodes: Iterable[Node] = (), relations: Iterable[Relation | str] = ()
    ) -> None:
        """Note which edges, how many gold answers, and how many nodes of gold paths, are among what code dropped."""
        dropped = list(dict.fromkeys(nodes))
        if count := self._count_gold(dropped):
            self.events.append(TrailEvent(step, "cut", None, count, by=by))
        for edge, count in sorted(self._count_waiting(dropped).items()):
            self.events.append(TrailEvent(step, "cut", edge, count, self._sizes[edge], by))
        names = {relation if isinstance(relation, str) else relation.name for relation in relations}
        for edge in sorted(self._sizes) if names else ():
            if names & self._names_of(edge):
                self.events.append(TrailEvent(step, "cut", edge, by=by))

    def _count_gold(self, nodes: Iterable[Node]) -> int:
        return sum(map(self._is_gold, nodes))

    def _count_waiting(self, nodes: Iterable[Node]) -> Counter[int]:
        return Counter(edge for node in nodes if isinstance(node, str) for edge in self._from.get(node, ()))

    # Edges

    def _begin(self, nodes: Iterable[EntityId], edges: Iterable[int]) -> None:
        """Add nodes from which edges may be followed."""
        following = set(edges)
        if not following:
            return
        for node in nodes:
            known = self._from.setdefault(node, set())
            for edge in following - known:
                self._sizes[edge] = self._sizes.get(edge, 0) + 1
            known |= following

    @cached_property
    def _by_relation(self) -> Mapping[Relation, frozenset[int]]:
        """Relation → the edges that it follows."""
        found: dict[Relation, set[int]] = {}
        for edge, relation in self._edges.items():
            for same in self._equal(relation):
                found.setdefault(same, set()).add(edge)
        return {relation: frozenset(edges) for relation, edges in found.items()}

    def _equal(self, relation: Relation) -> Iterator[Relation]:
        yield relation
        if (inverse := self._inverses.get(relation.name)) is not None:
            yield Relation(inverse, _OPPOSITE[relation.direction])

    def _names_of(self, edge: int) -> set[str]:
        return {relation.name for relation in self._equal(self._edges[edge])}

    def _add(
        self,
        step: Step,
        event: TrailEventName,
        edge: int | None = None,
        count: int | None = None,
        of: int | None = None,
    ) -> None:
        self.events.append(TrailEvent(step.index, event, edge, count, of))


_NOT_OF_THE_SEARCH = frozenset({"references", "question"})
"""Inputs of prompts that hold solved questions, and the question itself: what they name, the search has not found."""


def _stands_in(name: str, text: str) -> bool:
    """Whether a text contains a name, and not only as part of a longer word or of a longer relation name."""
    start = text.find(name)
    while start >= 0:
        before, after = text[start - 1 : start], text[start + len(name) : start + len(name) + 2]
        if not (_continues(before) or before == ".") and not (
            _continues(after[:1]) or (after[:1] == "." and _continues(after[1:]))
        ):
            return True
        start = text.find(name, start + 1)
    return False


def _continues(character: str) -> bool:
    return character.isalnum() or character == "_"
