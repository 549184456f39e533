"""The agent's graph tools, for graphs of nodes with attributes and graphs of triples (specification §6.2, §6.10).

The actions of a line do not depend on each other, so each kind of lookup is made once for all of them: at most three
batched lookups per line, and one more if `RetrieveNode` looks up a name.
"""

from __future__ import annotations

import json
from abc import ABC, abstractmethod
from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import Any, TypeAlias, TypeVar

from pipeline.kg.interface import AttributeLookups, Hop, Neighbours
from pipeline.methods.interface import Tools
from pipeline.methods.parsing import QUOTES, match_key, truncate
from pipeline.methods.r3.actions import Action, one_argument, split_two
from pipeline.methods.r3.memory import Item, Listing, Observation, arrow
from pipeline.methods.rendering import Names, node_name, quoted
from pipeline.retrieval.relations import as_text
from pipeline.types import Direction, EntityId, LiteralNode, Node, Question, Relation, Triple

T = TypeVar("T")

Near: TypeAlias = Mapping[Hop, Neighbours]
"""The looked-up neighbours by each hop."""

NAME = "name"
"""In a graph of triples, the feature that is a node's name."""

_NAMESAKES = 5
"""Nodes shown of those with the name that was searched for."""
_MAX_SIMILAR = 5
"""Topic entities shown if no node has the name that was searched for."""
_TWO_ARGUMENTS = {"NodeFeature", "NeighbourCheck", "NodeDegree"}
"""The tools that take a node and an edge or feature."""
_DIRECTIONS: tuple[Direction, Direction] = ("out", "in")
_SYNTAX = f",[]{QUOTES}\r\n"
"""Characters that an action cannot contain outside quotes."""


class Environment(ABC):
    """Executes action lines. Every error is an observation. It says as much as Graph-CoT's, unless `hints` is true."""

    hints: bool
    """Whether an error says which argument is wrong, and what there is."""
    tools: Collection[str]
    """The names of the available tools."""
    domain: str
    """The key of the graph's description in `domains`."""

    async def execute(self, actions: Sequence[Action], cap: int) -> tuple[Observation, ...]:
        """Return one observation per action, in order, each of about `cap` characters. Raises BudgetExhausted."""
        if not actions:
            not_an_action = (
                "This is no action. Write a tool and its arguments in brackets, as in RetrieveNode[keyword]."
            )
            return (Observation.failed(Action(None, ""), not_an_action),)
        known = [action for action in actions if action.tool in self.tools]
        observations = iter(await self._execute(known, cap))
        return tuple(next(observations) if action.tool in self.tools else self._unknown(action) for action in actions)

    @abstractmethod
    async def _execute(self, actions: Sequence[Action], cap: int) -> list[Observation]:
        """Return one observation per action. All actions have a known tool."""

    def _unknown(self, action: Action) -> Observation:
        name = action.tool or action.content
        return Observation.failed(action, f"There is no tool {truncate(name)}. The tools are {', '.join(self.tools)}.")


class AttributedEnvironment(Environment):
    """The tools on a GRBench graph: nodes are found by search, have features, and list neighbours by type."""

    tools = ("RetrieveNode", "NodeFeature", "NeighbourCheck", "NodeDegree", "Finish")

    def __init__(self, question: Question, tools: Tools, attributes: AttributeLookups, *, hints: bool) -> None:
        self.hints = hints
        self.domain = str(question.meta.get("domain") or "").partition("/")[0]
        self._tools = tools
        self._attributes = attributes

    async def _execute(self, actions: Sequence[Action], cap: int) -> list[Observation]:
        pairs = {action: split_two(action.content, at="first") for action in actions if action.tool in _TWO_ARGUMENTS}
        lookups = [(action.tool, pair) for action, pair in pairs.items() if pair]
        features = await self._attributes.features(_distinct(id for tool, (id, _) in lookups if tool == "NodeFeature"))
        degrees = await self._attributes.degrees(_distinct(id for tool, (id, _) in lookups if tool != "NodeFeature"))
        hops = _distinct((id, Relation(edge, "out")) for tool, (id, edge) in lookups if tool == "NeighbourCheck")
        existing = [(id, relation) for id, relation in hops if relation.name in (degrees[id] or {})]
        near = await self._tools.kg.neighbours(existing, self._tools.caps.max_frontier)
        observed = []
        for action in actions:
            if action.tool == "RetrieveNode":
                observed.append(await self._retrieve(action, cap))
            elif (pair := pairs[action]) is None:
                observed.append(_wrong_arguments(action))
            elif action.tool == "NodeFeature":
                observed.append(_feature(action, *pair, features[pair[0]], cap, hints=self.hints))
            else:
                observed.append(_neighbourhood(action, pair, degrees[pair[0]], near, cap, hints=self.hints))
        return observed

    async def _retrieve(self, action: Action, cap: int) -> Observation:
        keyword = one_argument(action.content)
        ids = await self._tools.retrieval.nodes(keyword, 1) if keyword else []
        return _retrieved(action, keyword, [Item(id, print_id(id)) for id in ids], cap)


def _neighbourhood(
    action: Action, pair: tuple[EntityId, str], degrees: Mapping[str, int] | None, near: Near, cap: int, *, hints: bool
) -> Observation:
    """Return the neighbours of a node by an edge type, or their number."""
    id, edge = pair
    if degrees is None or edge not in degrees:
        return _nothing(action, id, edge, "neighbour type", degrees, hints=hints)
    if action.tool == "NodeDegree":
        return _degree(action, id, edge, degrees[edge], cap)
    found = near[id, Relation(edge, "out")]
    items = tuple(Item(node, print_id(str(node)), Triple(id, edge, node)) for node in found.nodes)
    total = degrees[edge] if found.truncated else len(items)
    listing = Listing(_heading(id, edge), id, edge, items, total=total)
    return Observation.of(action, [listing], cap)


class TripleEnvironment(Environment):
    """The tools on a graph of triples (specification §6.10): relations lead in both directions, and names are shown."""

    tools = ("RetrieveNode", "Relations", "NodeFeature", "NeighbourCheck", "NodeDegree", "Finish")
    domain = "triples"

    def __init__(self, question: Question, tools: Tools, *, hints: bool) -> None:
        self.hints = hints
        self._question = question
        self._kg = tools.kg
        self._rank = tools.retrieval.rank
        self._limit = tools.caps.max_frontier
        # Remove quotes on both sides: a name may be in quotes, and a model may add some.
        self._topics = {
            match_key(one_argument(text)): topic for topic in question.topic_entities for text in (topic.id, topic.name)
        }

    async def _execute(self, actions: Sequence[Action], cap: int) -> list[Observation]:
        arguments = {action: one_argument(action.content) for action in actions if action.tool not in _TWO_ARGUMENTS}
        pairs = {action: split_two(action.content, at="last") for action in actions if action.tool in _TWO_ARGUMENTS}
        relations = await self._kg.relations(
            _distinct(id for action, id in arguments.items() if action.tool == "Relations" and id)
        )
        named, hops = [], []
        for action, pair in pairs.items():
            if pair and action.tool == "NodeFeature" and pair[1] == NAME:
                named.append(pair[0])  # the graph interface serves names as labels, not as edges
            elif pair:
                hops += [(pair[0], Relation(pair[1], direction)) for direction in _DIRECTIONS]
        near = await self._kg.neighbours(_distinct(hops), self._limit)
        reached = {node for found in near.values() for node in found.nodes if isinstance(node, str)}
        names = await self._kg.labels(sorted(reached.union(named)))
        retrieved = await self._search(text for action, text in arguments.items() if action.tool == "RetrieveNode")
        observed = []
        for action in actions:
            if action.tool == "RetrieveNode":
                observed.append(await self._retrieved(action, retrieved.get(arguments[action], []), cap))
            elif action.tool == "Relations":
                id = arguments[action]
                observed.append(_relations(action, id, await self._by_similarity(relations.get(id, [])), cap))
            elif (pair := pairs[action]) is None:
                observed.append(_wrong_arguments(action))
            elif pair[0] in named and action.tool == "NodeFeature" and pair[1] == NAME:
                known = {NAME: names[pair[0]]} if names[pair[0]] else {}
                observed.append(_feature(action, *pair, known, cap, hints=False))
            else:
                observed.append(_followed(action, pair, near, names, cap, hints=self.hints))
        return observed

    async def _by_similarity(self, relations: Sequence[Relation]) -> list[Relation]:
        """Return the relations, those most like the question first."""
        ranking = await self._rank(self._question.text, [as_text(relation.name) for relation in relations])
        return [relations[index] for index in ranking]

    async def _retrieved(self, action: Action, items: Sequence[Item], cap: int) -> Observation:
        """Return the nodes found, or else the topic entities whose names are most similar."""
        keyword, topics = one_argument(action.content), self._question.topic_entities
        if items or not (keyword and topics):
            return _retrieved(action, keyword, items, cap)
        ranking = await self._rank(keyword, [topic.name for topic in topics])
        similar = [_found(topics[index].id, topics[index].name) for index in ranking[:_MAX_SIMILAR]]
        heading = f"No node is called {quoted(truncate(keyword))}. The most similar:"
        return Observation.of(action, [Listing(heading, keyword, "search", tuple(similar), total=len(similar))], cap)

    async def _search(self, keywords: Iterable[str]) -> dict[str, list[Item]]:
        """Find topic entities by name or id; for other keywords, the entities with exactly that name."""
        distinct = _distinct(keyword for keyword in keywords if keyword)
        topics = {keyword: self._topics[key] for keyword in distinct if (key := match_key(keyword)) in self._topics}
        others = [keyword for keyword in distinct if keyword not in topics]
        found = await self._kg.find_by_name(others, _NAMESAKES)
        items = {keyword: [_found(id, keyword) for id in ids] for keyword, ids in found.items()}
        return items | {keyword: [_found(topic.id, topic.name)] for keyword, topic in topics.items()}


def _found(id: EntityId, name: str) -> Item:
    return Item(id, _printed(id, {id: name}), name=name)


def _followed(
    action: Action, pair: tuple[EntityId, str], near: Near, names: Names, cap: int, *, hints: bool
) -> Observation:
    """Return the neighbours of a node by a relation in both directions, or their number.

    Of the neighbours by `NodeFeature`, only the values are returned, or all if none of them is a value.
    """
    id, name = pair
    both = [_list(id, Relation(name, direction), near, names) for direction in _DIRECTIONS]
    filled = [listing for listing in both if listing.items]
    if not filled:
        hint = " Relations[id] lists what a node has." if hints else ""
        return Observation.failed(
            action, f"There is no node {print_id(id)}, or it has no relation {truncate(name)}.{hint}"
        )
    values = tuple(item for item in both[0].items if isinstance(item.node, LiteralNode))
    if action.tool == "NodeFeature" and values:
        filled = [Listing(_heading(id, name), id, name, values, total=len(values))]
    if action.tool == "NodeDegree":
        known = all(listing.total is not None for listing in filled)
        count = len({item.node for listing in filled for item in listing.items})
        return _degree(action, id, name, count if known else None, cap)
    return Observation.of(action, filled, cap)


def _list(id: EntityId, relation: Relation, near: Near, names: Names) -> Listing:
    found, (name, direction) = near[id, relation], relation
    items = tuple(
        Item(
            node,
            _printed(node, names),
            Triple(id, name, node) if direction == "out" else Triple(node, name, id),
            node_name(node, names),
        )
        for node in found.nodes
    )
    total = None if found.truncated else len(items)
    return Listing(_heading(id, name, direction), id, name, items, direction, total)


def environment(question: Question, tools: Tools, *, error_hints: bool) -> Environment:
    """Build the environment for the graph of a question."""
    if tools.attributes is not None:
        return AttributedEnvironment(question, tools, tools.attributes, hints=error_hints)
    return TripleEnvironment(question, tools, hints=error_hints)


def _heading(id: EntityId, name: str, direction: Direction = "out") -> str:
    """Return the beginning of `id -> name: [neighbours]`, with the arrow in the direction of the edges."""
    return f"{print_id(id)} {arrow(direction)} {print_relation(name)}:"


def _retrieved(action: Action, keyword: str, items: Sequence[Item], cap: int) -> Observation:
    if not items:
        return Observation.failed(action, f"No node is found for {quoted(truncate(keyword))}. Try another text.")
    listing = Listing("Found:", keyword, "search", tuple(items), total=len(items), bare=len(items) == 1)
    return Observation.of(action, [listing], cap)


def _feature(
    action: Action, id: EntityId, name: str, features: dict[str, Any] | None, cap: int, *, hints: bool
) -> Observation:
    if features is None or name not in features:
        return _nothing(action, id, name, "feature", features, hints=hints)
    value = features[name]
    values = value if isinstance(value, list) else [value]
    texts = [text if isinstance(text, str) else json.dumps(text, ensure_ascii=False) for text in values]
    bare = not isinstance(value, list)
    items = tuple(
        Item(LiteralNode(text), text if bare else quoted(text), Triple(id, name, LiteralNode(text))) for text in texts
    )
    return Observation.of(action, [Listing(_heading(id, name), id, name, items, total=len(items), bare=bare)], cap)


def _degree(action: Action, id: EntityId, name: str, count: int | None, cap: int) -> Observation:
    text = "more than can be counted" if count is None else str(count)
    degree = f"degree of {name}"
    listing = Listing(_heading(id, degree), id, degree, (Item(LiteralNode(text), text),), total=1, bare=True)
    return Observation.of(action, [listing], cap)


def _relations(action: Action, id: str, relations: Sequence[Relation], cap: int) -> Observation:
    if not relations:
        return Observation.failed(action, f"There is no node {quoted(truncate(id))}, or it has no relations.")
    both = []
    for direction in _DIRECTIONS:
        names = [relation.name for relation in relations if relation.direction == direction]
        items = tuple(Item(LiteralNode(name), print_relation(name)) for name in names)
        both.append(Listing(f"{print_id(id)} {arrow(direction)}", id, "relations", items, direction, total=len(items)))
    return Observation.of(action, [listing for listing in both if listing.items], cap)


def _nothing(
    action: Action, id: str, name: str, what: str, known: Collection[str] | None, *, hints: bool
) -> Observation:
    """Say that a lookup found nothing and, as a hint, whether the node or the name is wrong, and what there is."""
    if not hints:
        return Observation.failed(
            action, f"There is no node {quoted(truncate(id))}, or it has no {what} {quoted(truncate(name))}."
        )
    if known is None:
        return Observation.failed(
            action, f"There is no node {quoted(truncate(id))}. Its id comes from RetrieveNode or a neighbour list."
        )
    has = ", ".join(sorted(known)) or "none"
    return Observation.failed(
        action, f"The node {id} has no {what} {quoted(truncate(name))}. It has: {truncate(has, 400)}."
    )


def _wrong_arguments(action: Action) -> Observation:
    what = "a feature" if action.tool == "NodeFeature" else "a neighbour type"
    return Observation.failed(action, f"{action.tool} takes two arguments: a node id, a comma and {what}.")


def print_relation(name: str) -> str:
    """Print a relation so that an action can repeat it: quoted if it contains a comma, a bracket or a quote."""
    return quoted(name) if any(character in name for character in _SYNTAX) else name


def print_id(id: EntityId) -> str:
    """Print an id so that an action can repeat it: as a relation, and quoted if it contains a space, too."""
    return quoted(id) if " " in id else print_relation(id)


def _printed(node: Node, names: Names) -> str:
    """Print a literal in quotes, and an id followed by its name if that differs from the id."""
    name = node_name(node, names)
    if isinstance(node, LiteralNode):
        return quoted(name or "")
    return print_id(node) if name is None or name == node else f"{print_id(node)} {quoted(name)}"


def _distinct(items: Iterable[T]) -> list[T]:
    return list(dict.fromkeys(items))
