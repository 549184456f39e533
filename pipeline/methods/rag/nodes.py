"""Collects the nodes around the node that is found for a question, on graphs with features (specification §16.1)."""

from __future__ import annotations

import json
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from typing import Any, Literal, TypeAlias

from pipeline.errors import BudgetExhausted
from pipeline.kg.interface import AttributeLookups
from pipeline.methods.interface import Tools
from pipeline.methods.rendering import one_line
from pipeline.text import load_yaml
from pipeline.types import EntityId, LiteralNode, Relation, Triple

Order: TypeAlias = Literal["nested", "breadth"]
"""`nested` shows a neighbour's own neighbours directly behind it, `breadth` shows the first ring before the second."""
_Features = Mapping[str, Any]
_Edges = Mapping[str, Sequence[EntityId]]
"""Connection → the nodes that it leads to."""


@dataclass(frozen=True, slots=True)
class NodeText:
    """A node as a prompt shows it."""

    id: EntityId
    name: str | None
    lines: tuple[str, ...]
    """Its own line; before it, the line that names the connection if this node is the first one on it."""
    values: tuple[str, ...]
    """The texts of its features, for simulated models."""
    facts: tuple[Triple, ...]
    """The connection that led to it, and its features."""


@dataclass(slots=True)
class Nodes:
    """The nodes found so far."""

    centres: list[EntityId]
    shown: Sequence[str] | None
    """Names of the features that are shown, in order; None for all."""
    as_published: bool
    """Whether a connection without nodes is shown too."""
    features: dict[EntityId, _Features] = field(default_factory=dict)
    """Of each id that is a node."""
    edges: dict[EntityId, _Edges] = field(default_factory=dict)
    exhausted: bool = False
    """Whether a limit of lookups ended the collection."""

    def in_order(self, order: Order) -> tuple[NodeText, ...]:
        """Return the nodes as a prompt shows them."""
        texts: list[NodeText] = []
        for centre in self.centres:
            if centre not in self.features:
                continue
            texts.append(self._text(centre, "The node found: "))
            near = self._near(centre, depth=1)
            beyond = [self._near(text.id, depth=1 if order == "breadth" else 2, name=text.name) for text in near]
            if order == "breadth":
                texts += [*near, *(after for ring in beyond for after in ring)]
            else:
                texts += [one for text, ring in zip(near, beyond, strict=True) for one in (text, *ring)]
        return tuple(texts)

    def _near(self, id: EntityId, *, depth: int, name: str | None = None) -> list[NodeText]:
        """Return the neighbours of a node. The first one over each connection has the line that names it."""
        indent = "  " * (depth - 1)
        source = f" of {name}" if depth == 1 and name else ""
        found = []
        for connection, ids in self.edges.get(id, {}).items():
            heading = [f"{indent}{connection}{source}:"]
            for other in ids:
                if other in self.features:
                    found.append(self._text(other, f"{indent}- ", heading, Triple(id, connection, other)))
                    heading = []
            if heading and self.as_published:
                found.append(NodeText("", None, tuple(heading), (), ()))
        return found

    def _text(self, id: EntityId, start: str, heading: Sequence[str] = (), edge: Triple | None = None) -> NodeText:
        texts = _texts(self.features[id], self.shown)
        facts = [Triple(id, name, LiteralNode(text)) for name, text in texts.items()]
        return NodeText(
            id=id,
            name=next(iter(texts.values()), None),
            lines=(*heading, start + (" ".join(f"{name}: {text}." for name, text in texts.items()) or id)),
            values=tuple(value for name in texts for value in _values(self.features[id][name])),
            facts=(*([edge] if edge else ()), *facts),
        )


async def collect(
    centres: Sequence[EntityId],
    domain: str,
    tools: Tools,
    attributes: AttributeLookups,
    *,
    hops: int,
    per_edge: int,
    as_published: bool,
) -> Nodes:
    """Look up the features of the centres and of the nodes within `hops` of them, `per_edge` for each connection.

    `as_published` looks up a neighbour in two hops only if its type has the name of the connection, as the published
    code does (specification §16.1). A limit of lookups ends the collection early.
    """
    nodes = Nodes(list(centres), _shown_features().get(domain), as_published=as_published and hops == 2)
    ring = list(dict.fromkeys(centres))
    try:
        await _add_features(nodes, ring, attributes)
        for _ in range(hops):
            await _add_edges(nodes, ring, tools, attributes, per_edge)
            reached = [other for id in ring for ids in nodes.edges.get(id, {}).values() for other in ids]
            ring = [id for id in dict.fromkeys(reached) if id not in nodes.features]
            ring = _capped(ring, tools)
            await _add_features(nodes, ring, attributes)
        if nodes.as_published:
            await _drop_other_types(nodes, tools)
    except BudgetExhausted:
        nodes.exhausted = True
    return nodes


async def _add_features(nodes: Nodes, ids: Sequence[EntityId], attributes: AttributeLookups) -> None:
    found = await attributes.features(ids)
    nodes.features |= {id: features for id, features in found.items() if features is not None}


async def _add_edges(
    nodes: Nodes, ring: Sequence[EntityId], tools: Tools, attributes: AttributeLookups, per_edge: int
) -> None:
    degrees = await attributes.degrees([id for id in ring if id in nodes.features])
    hops = [(id, Relation(name, "out")) for id, counted in degrees.items() for name in counted or ()]
    near = await tools.kg.neighbours(hops, per_edge)
    for (id, relation), found in near.items():
        nodes.edges[id] = {**nodes.edges.get(id, {}), relation.name: [str(node) for node in found.nodes]}
    cut = any(found.truncated for found in near.values())
    tools.record("expanded", entities=len(ring), found=sum(len(found.nodes) for found in near.values()), truncated=cut)


async def _drop_other_types(nodes: Nodes, tools: Tools) -> None:
    """Keep only neighbours whose type has the name of their connection."""
    ids = list(dict.fromkeys(id for edges in nodes.edges.values() for near in edges.values() for id in near))
    types = await tools.kg.types(ids)
    nodes.edges = {
        id: {name: [other for other in near if name in types[other]] for name, near in edges.items()}
        for id, edges in nodes.edges.items()
    }


def _capped(ring: list[EntityId], tools: Tools) -> list[EntityId]:
    if len(ring) <= tools.caps.max_frontier:
        return ring
    tools.record("cap_hit", cap="max_frontier")
    return ring[: tools.caps.max_frontier]


def _texts(features: _Features, shown: Sequence[str] | None) -> dict[str, str]:
    """Return the text of each shown feature that has a value. A list is joined by commas."""
    names: Collection[str] = features if shown is None else shown
    written = {name: ", ".join(_values(features.get(name))) for name in names}
    return {name: text for name, text in written.items() if text}


def _values(value: object) -> list[str]:
    values = value if isinstance(value, list) else [value]
    texts = (one if isinstance(one, str) else json.dumps(one, ensure_ascii=False) for one in values if one is not None)
    return [text for one in texts if (text := one_line(one))]


@cache
def _shown_features() -> dict[str, list[str]]:
    features: dict[str, list[str]] = load_yaml(Path(__file__).with_name("features.yaml").read_text("utf-8"))
    return features
