"""Writes the trail of the gold answers through the lookups, calls and selections of one question (specification §2.6).

A method neither sees it nor does anything for it, except that it records what its own code drops (`cut`).
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence, Set
from dataclasses import dataclass
from functools import cached_property
from itertools import chain, pairwise
from typing import Any

from pipeline.datasets.gold_paths import SparqlPaths
from pipeline.datasets.inverses import Inverses
from pipeline.engine.leading_hops import LeadingHop, leading_hops
from pipeline.engine.named_texts import is_numbers, relations_in, stands_behind, stands_in
from pipeline.kg.interface import GraphLookups, Hop, Neighbours
from pipeline.normalisation import canonical_literal
from pipeline.traces.schema import Step
from pipeline.traces.trail import GoldPath, TrailEvent, TrailEventName, gold_paths_of, number_edges
from pipeline.types import Direction, EntityId, Gold, LiteralNode, Node, Relation

_MOST_NAMES = 64
"""Texts of gold answers that are searched for in prompts and completions."""
_MOST_AHEAD = 4
"""Gold paths of which the nodes that lead to a gold answer are looked up."""
_MOST_TOLD_APART = 200
"""Nodes of an edge that are searched for in a prompt, to find out whether it is about one of them alone."""
_OPPOSITE: Mapping[str, Any] = {"out": "in", "in": "out"}


@dataclass(frozen=True, slots=True)
class _Mark:
    """An event of the trail, with the nodes that its numbers count."""

    step: int
    event: TrailEventName
    edge: int | None = None
    nodes: Set[Node] | None = None
    of: Set[Node] | None = None
    number: int | None = None
    by: str | None = None
    about: Node | None = None
    """Of a prompt that names an edge: the node of the edge that it is about, if it names no other one."""


class GoldTrail:
    """The trail of one question in one configuration."""

    def __init__(self, gold: Gold, topics: Iterable[EntityId] = ()) -> None:
        """Prepare to follow the gold answers and the gold paths of a question from its topic entities."""
        self._unmet = set(topics)
        """The topic entities, until a lookup shows that one of them is in the graph."""
        self.paths: Sequence[GoldPath] = gold_paths_of(gold)
        self._numbers = number_edges(self.paths)
        self._undirected = frozenset(chain.from_iterable(self._without_directions(gold)))
        """Edges of paths that the dataset gives without directions: they may be followed in either one."""
        self._directions: dict[int, set[Direction]] = {}
        """Edge of such a path → the directions in which it leads to a gold answer, if the path does."""
        self._marks: list[_Mark] = []
        self._forms: dict[str, Set[str]] = _forms(gold)
        """Text of a gold answer, or node that has its name → all texts of this answer."""
        self._gold = frozenset(self._forms)
        self._named_gold: Sequence[str] = sorted(self._gold)[:_MOST_NAMES]
        self._gold_nodes: set[EntityId] = set()
        """Nodes that have the name of a gold answer, and another id; for a count, the nodes to count."""
        self._ends: set[Node] = set()
        """Nodes to which the last edge of a gold path led, and gold answers that were found off the gold paths."""
        self._ways: dict[EntityId, set[str]] = {}
        """Gold answer → the names of the relations that led to it as to an answer, and not on the way to others."""
        self._behind: dict[Node, set[Node]] = {}
        """Gold answer on the way to others → the nodes that were reached from it."""
        self._named: dict[EntityId, bool] = {}
        """Gold answer whose name was looked up → whether the graph has one."""
        self._met_names: set[str] = set()
        """Texts of gold answers that were found."""
        self._passed_names: set[str] = set()
        """Texts of gold answers that were met on the way to others: the actor of whose films the director is sought."""
        self._is_count = len(gold.answers) == 1 and gold.answers[0].name.isascii() and gold.answers[0].name.isdigit()
        self._topics = {path.topic for path in self.paths}
        self._labels: dict[EntityId, str] = {}
        """Name of each node whose name was looked up, where it is not its id."""
        self._inverses: Inverses = {}
        self._edges: dict[int, Relation] = {}
        self._next: dict[int, set[int]] = {}
        """Edge → the edges that may be followed from the nodes that it leads to."""
        self._from: dict[EntityId, set[int]] = {}
        """Node → the edges that may be followed from it."""
        self._starts: dict[int, set[Node]] = {}
        """Edge → the nodes from which it may be followed, as far as the question has reached them."""
        self._leading: dict[int, Set[Node]] = {}
        """Edge → those of all nodes from which it may be followed that lead to a gold answer, where that is known."""
        self._lacking: dict[int, set[Node]] = {}
        """Edge → the nodes from which it may be followed whose relations were listed, and do not include it."""
        self._by_number: dict[int, int] = {}
        """Edge → the last call that was shown it and replied with numbers alone."""
        self._last = {numbers[-1] for numbers in self._numbers}
        self._add_edges()
        self._first = frozenset(self._starts)

    def _without_directions(self, gold: Gold) -> Iterator[Sequence[int]]:
        """Yield the edges of each path that the dataset names outside its queries."""
        given = gold.paths.given if isinstance(gold.paths, SparqlPaths) else ()
        return (numbers for path, numbers in zip(self.paths, self._numbers, strict=True) if path.relations in given)

    def _add_edges(self) -> None:
        """Take the edges of the gold paths, which begin at the topic entities."""
        for path, numbers in zip(self.paths, self._numbers, strict=True):
            self._edges.update(zip(numbers, path.relations, strict=True))
            for edge, after in pairwise(numbers):
                self._next.setdefault(edge, set()).add(after)
            self._begin([path.topic], numbers[:1])

    def use_inverses(self, inverses: Inverses) -> None:
        """Take the pairs of inverse relations of the graph: an edge may be followed by either relation of its pair."""
        if inverses is not self._inverses:
            self._inverses = inverses
            self.__dict__.pop("_by_relation", None)

    # Lookups

    def list_relations(self, step: Step, found: Mapping[EntityId, Sequence[Relation]]) -> None:
        """Note which edges the relations at their nodes include."""
        self._meet_topics(id for id, relations in found.items() if relations)
        asked: dict[int, set[Node]] = {}
        listed: dict[int, set[Node]] = {}
        for id in self._from.keys() & found.keys():
            present = {edge for relation in found[id] for edge in self._by_relation.get(relation, ())}
            for edge in self._from[id]:
                asked.setdefault(edge, set()).add(id)
                lists = listed if edge in present else self._lacking
                lists.setdefault(edge, set()).add(id)
        for edge in sorted(asked):
            self._marks.append(_Mark(step.index, "listed", edge, listed.get(edge, set()), asked[edge]))

    def reach(self, step: Step, found: Mapping[Hop, Neighbours]) -> None:
        """Note which edges were followed, where they led, and whether a gold answer was found."""
        self._meet_topics(id for (id, _), neighbours in found.items() if neighbours.nodes)
        followed: dict[int, set[Node]] = {}
        passed: dict[int, set[Node]] = {}
        reached: dict[int, set[Node]] = {}
        for (id, relation), neighbours in found.items():
            waiting: Set[int] = self._from.get(id, frozenset())
            here = waiting & self._by_relation.get(relation, frozenset())
            for edge in waiting - here:
                passed.setdefault(edge, set()).add(id)
            for edge in here:
                followed.setdefault(edge, set()).add(id)
                reached.setdefault(edge, set()).update(neighbours.nodes)
        for edge in sorted(passed):
            if others := passed[edge] - followed.get(edge, set()) - self._lacking.get(edge, set()):
                self._marks.append(_Mark(step.index, "passed", edge, others, set(self._starts[edge])))
        for edge in sorted(followed):
            if (call := self._by_number.pop(edge, None)) is not None:
                self._marks.append(_Mark(call, "written", edge))
            self._marks.append(_Mark(step.index, "followed", edge, followed[edge], set(self._starts[edge])))
            self._marks.append(_Mark(step.index, "reached", edge, reached[edge]))
        if self._is_count:
            ends = (reached[edge] for edge in followed if not self._next.get(edge))
            self._gold_nodes.update(node for nodes in ends for node in nodes if isinstance(node, str))
        for edge in followed:
            self._go_on(edge, reached[edge])
        self._meet_off_the_paths(found)
        self._find(step, (node for neighbours in found.values() for node in neighbours.nodes))

    def _meet_topics(self, ids: Iterable[EntityId]) -> None:
        """Take note that the topic entities are in the graph if one of them is among these nodes, which it has."""
        if self._unmet and not self._unmet.isdisjoint(ids):
            self._unmet.clear()

    def _meet_off_the_paths(self, found: Mapping[Hop, Neighbours]) -> None:
        """Take the gold answers for ends that other relations than those of the gold paths led to, but not back to."""
        for (id, _), neighbours in found.items():
            if id in self._from and self._is_gold(id):
                self._behind.setdefault(id, set()).update(neighbours.nodes)
        for (id, relation), neighbours in found.items():
            if not self._from.get(id, frozenset()) & self._by_relation.get(relation, frozenset()):
                gold = (node for node in neighbours.nodes if node in self._from and self._is_gold(node))
                self._end([node for node in gold if id not in self._behind.get(node, ())], {relation.name})

    def _go_on(self, edge: int, nodes: Set[Node]) -> None:
        """Take the nodes to which an edge led for starts of the edges after it, or for answers."""
        self._begin((node for node in nodes if isinstance(node, str)), self._next.get(edge, ()))
        if edge in self._last:
            self._end(nodes, self._names_of(edge))

    def _end(self, nodes: Iterable[Node], ways: Set[str]) -> None:
        """Take the gold answers among nodes for answers, to which relations of these names led."""
        self._ends.update(nodes)
        for node in nodes:
            if isinstance(node, str) and node in self._forms:
                self._ways.setdefault(node, set()).update(ways)

    def name(self, step: Step, found: Mapping[EntityId, str | None]) -> None:
        """Note whether a node has the name of a gold answer, where ids are not names, and a gold answer any name."""
        self._labels.update((id, name) for id, name in found.items() if name and name != id)
        others = found.keys() - self._topics
        named = {id for id in others if found[id] in self._gold and not self._is_gold(id)}
        self._forms.update((id, self._forms[name]) for id in named if (name := found[id]) is not None)
        self._add_found(step, named)
        self._note_names(step, {id: name is not None for id, name in found.items() if self._is_gold(id)})

    def _note_names(self, step: Step, found: Mapping[EntityId, bool]) -> None:
        """Note whether no gold answer has a name: then none can be shown to a model. Nodes to count need no name."""
        if self._is_count:
            return
        were_unnamed = bool(self._named) and not any(self._named.values())
        self._named.update(found)
        is_named = any(self._named.values())
        if found and (were_unnamed or not is_named):
            self._marks.append(_Mark(step.index, "unnamed", number=0 if is_named else len(self._named)))

    def read_features(self, step: Step, found: Mapping[EntityId, Mapping[str, Any] | None]) -> None:
        """Note whether a feature has the text of a gold answer."""
        values = (value for features in found.values() for value in (features or {}).values())
        each = (one for value in values for one in (value if isinstance(value, list) else [value]))
        self._find(step, (text for text in each if isinstance(text, str)))

    def _find(self, step: Step, nodes: Iterable[Node]) -> None:
        self._add_found(step, {node for node in nodes if self._is_gold(node)} if self._gold else frozenset())

    def _add_found(self, step: Step, gold: Set[Node]) -> None:
        self._gold_nodes.update(node for node in gold if isinstance(node, str))
        met = {node for node in gold if not self._is_on_the_way(node)}
        self._ends |= met
        for nodes, names in ((met, self._met_names), (gold - met, self._passed_names)):
            names.update(self._names(nodes))
        if met:
            self._marks.append(_Mark(step.index, "found", number=len(met)))

    def _count_gold(self, nodes: Iterable[Node]) -> int:
        """Count the gold answers among nodes, without those that were met only on the way to others."""
        return sum(self._is_gold(node) and not self._is_on_the_way(node) for node in nodes)

    def _is_on_the_way(self, node: Node) -> bool:
        return node in self._from and node not in self._ends

    def _is_end(self, node: Node) -> bool:
        return self._is_count or self._is_gold(node)

    def _is_gold(self, node: Node) -> bool:
        if isinstance(node, LiteralNode):
            return node.value in self._gold or canonical_literal(node.value) in self._gold
        return node in self._gold or node in self._gold_nodes

    # Model calls

    def show(self, step: Step, inputs: Mapping[str, str]) -> None:
        """Note which edges within reach, and how many gold answers, a prompt names."""
        searched = (text for slot, text in inputs.items() if slot not in _NOT_OF_THE_SEARCH)
        self._mention(step, "shown", "\n".join(searched))

    def write(self, step: Step, completion: str) -> None:
        """Note which edges within reach, and how many gold answers, a completion names."""
        self._mention(step, "written", completion)

    def understand(self, step: Step, value: object) -> None:
        """Note which edges within reach the value read from a completion holds: a reply may give mere numbers.

        If the value has only numbers, too, the reply names the edges that were shown and are followed next.
        """
        if not self._edges:
            return
        if is_numbers(value):
            shown = (mark.edge for mark in self._marks if mark.step == step.index and mark.event == "shown")
            self._by_number.update((edge, step.index) for edge in shown if edge is not None)
        read = {edge for relation in relations_in(value) for edge in self._by_relation.get(relation, ())}
        if within_reach := read & self._starts.keys():
            noted = {mark.edge for mark in self._marks if mark.step == step.index and mark.event == "written"}
            for edge in sorted(within_reach - noted):
                self._marks.append(_Mark(step.index, "written", edge))

    def _mention(self, step: Step, event: TrailEventName, text: str) -> None:
        for edge in sorted(self._starts):
            if any(stands_in(name, text) for name in self._names_of(edge)):
                about = self._only_node_in(text, edge) if event == "shown" else None
                self._marks.append(_Mark(step.index, event, edge, about=about))
        named = {name for name in self._named_gold if name in text and stands_in(name, text)}
        named -= self._passed_names - self._met_names
        if event == "shown":
            named = {name for name in named if not self._is_named_on_the_way(name, text)}
        if named:
            self._marks.append(_Mark(step.index, event, number=len(named)))

    def _is_named_on_the_way(self, name: str, text: str) -> bool:
        """Whether a prompt shows a gold answer, which has been found, only on the way to others, by its relations."""
        found = [(node, ways) for node, ways in self._ways.items() if name in self._forms[node]]
        if not any(node in self._from for node, _ in found):
            return False
        ways = {way for _, ways in found for way in ways}
        others = {other for edge in self._edges for other in self._names_of(edge)} - ways
        return stands_behind(name, text, others, but_not=ways)

    def _names(self, nodes: Iterable[Node]) -> set[str]:
        return {form for node in nodes if isinstance(node, str) for form in self._forms.get(node, ())}

    def _only_node_in(self, text: str, edge: int) -> Node | None:
        """Return the node at which an edge may begin that a text names; None if it names several, or none."""
        starts = self._starts[edge]
        if not 1 < len(starts) <= _MOST_TOLD_APART:
            return None
        named = (node for node in starts if isinstance(node, str) and stands_in(self._labels.get(node, node), text))
        first = next(named, None)
        return first if next(named, None) is None else None

    def answer(self, steps: Sequence[Step], raw: str) -> None:
        """Note from which call the answer was read: the last one whose completion is `raw`.

        Without one, it is the last one whose completion contains `raw`, or else the last one of all.
        """
        calls = [step for step in steps if step.kind == "llm" and step.completion is not None]
        raw = raw.strip()
        equal = [step for step in calls if raw and raw == (step.completion or "").strip()]
        containing = [step for step in calls if raw and raw in (step.completion or "")]
        for step in (equal or containing or calls)[-1:]:
            self._marks.append(_Mark(step.index, "answered", number=int(bool(equal or containing))))

    # Selections

    def keep(self, step: int, /, *, nodes: Iterable[Node]) -> None:
        """Note how many gold answers, and nodes of gold paths, are among the nodes that survived a selection."""
        kept = set(nodes)
        self._marks.append(_Mark(step, "kept", number=self._count_gold(kept)))
        for edge in sorted(self._starts.keys() - self._first):
            self._marks.append(_Mark(step, "kept", edge, kept & self._starts[edge], set(self._starts[edge])))

    def cut(
        self,
        step: int,
        /,
        *,
        by: str,
        nodes: Iterable[Node] = (),
        relations: Iterable[Relation | str] = (),
        at: Iterable[EntityId] = (),
    ) -> None:
        """Note gold answers, nodes of gold paths, and edges among what code dropped: nodes, or relations `at` nodes.

        A cut by a depth limit is noted even if no gold answer is among them, because it may have ended the search.
        """
        dropped = set(nodes)
        count = self._count_gold(dropped)
        if count or (dropped and by == "depth"):
            self._marks.append(_Mark(step, "cut", number=count, by=by))
        for edge in sorted(self._starts):
            if here := dropped & self._starts[edge]:
                self._marks.append(_Mark(step, "cut", edge, here, set(self._starts[edge]), by=by))
        edges = {edge for relation in relations for edge in self._edges_of(relation)} if self._edges else set()
        within_reach = {edge for node in at for edge in self._from.get(node, ())}
        for edge in sorted(edges & within_reach):
            self._marks.append(_Mark(step, "cut", edge, by=by))

    # What the method did not look up

    async def find_directions(self, graph: GraphLookups) -> None:
        """Look up in which directions the paths without directions lead to a gold answer. Raises ServiceError.

        Where none does, both stay. To be called before the question begins.
        """
        for path, numbers in zip(self.paths[:_MOST_AHEAD], self._numbers, strict=False):
            if self._undirected.issuperset(numbers):
                for edge, hop in zip(numbers, await self._hops_ahead(path, numbers, graph) or (), strict=False):
                    name = self._edges[edge].name
                    own = (relation.direction for relation in hop.relations if relation.name == name)
                    self._directions.setdefault(edge, set()).update(own)
        self.__dict__.pop("_by_relation", None)

    @property
    def has_directions(self) -> bool:
        """Whether the dataset gives the directions of the gold paths."""
        return not self._undirected

    async def look_topics_up(self, step: int, graph: GraphLookups) -> None:
        """Look up how many topic entities the graph has, if no lookup of the method shows one. Raises ServiceError."""
        if topics := sorted(self._unmet):
            known = sum(map(bool, (await graph.relations(topics)).values()))
            self._marks.append(_Mark(step, "topics", number=known))

    async def look_ahead(self, step: int, graph: GraphLookups) -> None:
        """Look up which nodes of gold paths lead to a gold answer, if the question reached some and walked no path.

        Of a wrong question, this tells a node that was dropped from a node on which the wrong relation was chosen, and
        both from a graph in which the path leads nowhere. It makes one batched lookup per hop of a path. The paths that
        were begun come first. Raises ServiceError.
        """
        if not self._starts.keys() - self._first or self._was_path_walked():
            return
        paths = zip(self.paths, self._numbers, strict=True)
        begun_first = sorted(paths, key=lambda each: self._starts.keys().isdisjoint(each[1][1:]))
        for path, numbers in begun_first[:_MOST_AHEAD]:
            leading = await self._hops_ahead(path, numbers, graph)
            if leading == []:
                self._marks.append(_Mark(step, "no_way", numbers[-1]))
            for edge, hop in zip(numbers, leading or (), strict=False):
                self._leading[edge] = self._leading.get(edge, frozenset()) | hop.nodes

    async def _hops_ahead(self, path: GoldPath, numbers: Sequence[int], graph: GraphLookups) -> list[LeadingHop] | None:
        """Return the hops of a path that lead to a gold answer, as `leading_hops` does."""
        hops = [tuple(self._along(edge)) for edge in numbers]
        return await leading_hops(graph, path.topic, hops, self._is_end, names=self._gold)

    def _was_path_walked(self) -> bool:
        """Whether the last edge of a gold path led to a gold answer."""
        reached = [mark for mark in self._marks if mark.event == "reached" and mark.edge not in self._next]
        return any(self._is_gold(node) for mark in reached for node in mark.nodes or ())

    @property
    def events(self) -> list[TrailEvent]:
        """The trail, in order. Where it is known which nodes lead to a gold answer, only these are counted.

        An edge that was followed from other nodes alone has reached nothing.
        """
        counted = [(mark, self._count(mark)) for mark in self._marks]
        astray = {(mark.step, mark.edge) for mark, event in counted if mark.event == "followed" and event is None}
        return [
            event
            for _, event in counted
            if event is not None and not (event.event == "reached" and (event.step, event.edge) in astray)
        ]

    def _count(self, mark: _Mark) -> TrailEvent | None:
        nodes, of = mark.nodes, mark.of
        if nodes is None:
            if mark.about is not None and mark.about not in self._leading.get(mark.edge or 0, {mark.about}):
                return None  # the prompt is about another node, with an equal relation
            return TrailEvent(mark.step, mark.event, mark.edge, mark.number, by=mark.by)
        assert mark.edge is not None
        if mark.event == "reached" and mark.edge in self._leading and not self._next.get(mark.edge):
            nodes = {node for node in nodes if self._is_gold(node)}
            return TrailEvent(mark.step, mark.event, mark.edge, len(nodes)) if nodes else None
        following = self._next.get(mark.edge, ()) if mark.event == "reached" else (mark.edge,)
        known = [self._leading[edge] for edge in following if edge in self._leading]
        if known:
            leading = frozenset().union(*known)
            nodes, of = nodes & leading, None if of is None else of & leading
            if not (of if mark.event in {"listed", "kept"} else nodes):
                return None  # only of nodes that lead nowhere
        return TrailEvent(mark.step, mark.event, mark.edge, len(nodes), None if of is None else len(of), mark.by)

    # Edges

    def _begin(self, nodes: Iterable[EntityId], edges: Collection[int]) -> None:
        """Add nodes from which edges may be followed."""
        for node in nodes if edges else ():
            self._from.setdefault(node, set()).update(edges)
            for edge in edges:
                self._starts.setdefault(edge, set()).add(node)

    @cached_property
    def _by_relation(self) -> Mapping[Relation, frozenset[int]]:
        """Relation → the edges that it follows."""
        found: dict[Relation, set[int]] = {}
        for edge in self._edges:
            for same in self._along(edge):
                found.setdefault(same, set()).add(edge)
        return {relation: frozenset(edges) for relation, edges in found.items()}

    def _edges_of(self, relation: Relation | str) -> Collection[int]:
        """Return the edges that a relation follows; of a name alone, in either direction."""
        if isinstance(relation, Relation):
            return self._by_relation.get(relation, frozenset())
        return [edge for edge in self._edges if relation in self._names_of(edge)]

    def _along(self, edge: int) -> Iterator[Relation]:
        """Yield the relations that follow an edge."""
        name, direction = self._edges[edge]
        inverse = self._inverses.get(name)
        both = (direction, _OPPOSITE[direction]) if edge in self._undirected else (direction,)
        for along in self._directions.get(edge, both):
            yield Relation(name, along)
            if inverse is not None:
                yield Relation(inverse, _OPPOSITE[along])

    def _names_of(self, edge: int) -> set[str]:
        return {relation.name for relation in self._along(edge)}


def _forms(gold: Gold) -> dict[str, Set[str]]:
    """Return the texts of gold answers, each with all texts of its answer."""
    found: dict[str, Set[str]] = {}
    for answer in gold.answers:
        texts = [text for text in (answer.id, answer.name, *answer.aliases) if text]
        forms = frozenset(form for text in texts for form in (text, canonical_literal(text)))
        found.update(dict.fromkeys(forms, forms))
    return found


_NOT_OF_THE_SEARCH = frozenset({"references", "question"})
"""Inputs of prompts that hold solved questions, and the question itself: what they name, the search has not found."""
