"""The memory of one attempt: its log and its knowledge path, kept outside the prompt (specification §6.5)."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any, NamedTuple

from pipeline.methods.r3.actions import Action
from pipeline.methods.rendering import quoted
from pipeline.types import Direction, EntityId, LiteralNode, Node, Triple

NAME_FEATURES = frozenset({"name", "title"})
"""Features that name a node."""
_MARGIN = 24
"""Characters reserved for the true count."""
_MAX_NODES = 100
"""Nodes listed in one entry of the knowledge path. The log lists all."""
_MAX_OLD_RELATIONS = 10
"""Relations shown of a list of relations that is not the latest observation."""


class Item(NamedTuple):
    """One node of an observation."""

    node: Node
    text: str
    """The printed form."""
    triple: Triple | None = None
    """The fact that was observed; None for a search result."""
    name: str | None = None


@dataclass(frozen=True, slots=True)
class Listing:
    """Nodes or values under one heading of an observation."""

    heading: str
    source: str
    """The node that was looked up, or the text that was searched for."""
    via: str
    """The edge type, relation or feature; `search`, `relations`, or `degree of` an edge type."""
    items: tuple[Item, ...]
    direction: Direction = "out"
    total: int | None = None
    """How many there are; None if the graph holds more than were fetched."""
    bare: bool = False
    """Whether it is a single value, printed without brackets."""

    def cut(self, limit: int) -> Listing:
        """Return the listing with as many items as fit into `limit` characters; cut a single long value."""
        limit = max(0, limit - len(self.heading) - _MARGIN)
        if self.bare:
            (item,) = self.items
            cut = f"{item.text[:limit]}… ({len(item.text)} characters in all)"
            return self if len(item.text) <= limit else replace(self, items=(item._replace(text=cut),))
        length = 0
        for index, item in enumerate(self.items):
            length += len(item.text) + 2
            if length > limit:
                return replace(self, items=self.items[:index])
        return self

    def __str__(self) -> str:
        texts = ", ".join(item.text for item in self.items)
        if self.bare:
            return f"{self.heading} {texts}."
        if self.total == len(self.items):
            return f"{self.heading} [{texts}]."
        return f"{self.heading} [{texts}, …] ({_count(self.total, len(self.items))} in all)."


@dataclass(frozen=True, slots=True)
class Observation:
    """The result of one action."""

    action: Action
    text: str
    """The text in the scratchpad."""
    full: str
    """The uncut text, for the log."""
    ok: bool = True
    listings: tuple[Listing, ...] = ()
    """Exactly what `text` shows."""

    def with_few_relations(self) -> Observation:
        """Return the observation with only the first of its relations, if it lists a node's relations."""
        if self.action.tool != "Relations":
            return self
        shown = (replace(listing, items=listing.items[:_MAX_OLD_RELATIONS]) for listing in self.listings)
        return replace(self, listings=tuple(shown))

    @classmethod
    def failed(cls, action: Action, text: str) -> Observation:
        """Build the observation of an error."""
        return cls(action, text, text, ok=False)

    @classmethod
    def of(cls, action: Action, listings: Iterable[Listing], cap: int) -> Observation:
        """Build an observation from listings, cut to about `cap` characters in total, with the true counts."""
        whole = tuple(listings)
        shown = tuple(listing.cut(cap // len(whole)) for listing in whole)
        return cls(action, " ".join(map(str, shown)), " ".join(map(str, whole)), listings=shown)


@dataclass(frozen=True, slots=True)
class Step:
    """One thought, action line and its observations."""

    number: int
    thought: str
    action: str
    observations: tuple[Observation, ...]

    @property
    def observation(self) -> str:
        """All observations of the action line, as the scratchpad shows them."""
        return _print_observations(self.observations)

    @property
    def old_observation(self) -> str:
        """The same once another step has followed: of a long list of relations, only the first are shown."""
        return _print_observations(observation.with_few_relations() for observation in self.observations)


@dataclass
class Memory:
    """The trajectory of one attempt."""

    steps: list[Step] = field(default_factory=list)

    @property
    def log(self) -> list[str]:
        """Every thought, action and uncut observation, in order."""
        return [
            f"Thought {step.number}: {step.thought}\nAction {step.number}: {step.action}\n"
            f"Observation {step.number}: {' '.join(observation.full for observation in step.observations)}"
            for step in self.steps
        ]

    @property
    def path(self) -> list[dict[str, Any]]:
        """The knowledge path: one entry per lookup, with its source, the edge, feature or search, and the result."""
        return [
            entry for step in self.steps for observed in step.observations for entry in _entries(step.number, observed)
        ]

    @property
    def lines(self) -> tuple[str, ...]:
        """The whole knowledge path as lines for a prompt, with the lookups that found nothing."""
        return tuple(_print_entry(entry) for entry in self.path if entry["via"] != "relations")

    @property
    def triples(self) -> list[Triple]:
        """The distinct facts observed, in order."""
        facts = (item.triple for item in self._items if item.triple is not None)
        return list(dict.fromkeys(facts))

    @property
    def names(self) -> Mapping[EntityId, str]:
        """The names of nodes, as far as listings or name features showed them."""
        listed = {item.node: item.name for item in self._items if isinstance(item.node, str) and item.name is not None}
        looked_up = {
            str(head): tail.value
            for head, relation, tail in self.triples
            if relation in NAME_FEATURES and isinstance(tail, LiteralNode)
        }
        return {**listed, **looked_up}

    @property
    def has_facts(self) -> bool:
        """Whether a lookup other than a search or a list of relations had a result."""
        return any(listing.via not in {"search", "relations"} for listing in listings(self.steps))

    @property
    def _items(self) -> Iterable[Item]:
        return (item for listing in listings(self.steps) for item in listing.items)


def _print_observations(observations: Iterable[Observation]) -> str:
    """Print observations one after the other. A listing by the same edge as the one before does not repeat the edge."""
    texts = []
    edge_before = None
    for observation in observations:
        if not observation.listings:
            texts.append(observation.text)
            edge_before = None
        for listing in observation.listings:
            edge = f" {arrow(listing.direction)} {listing.via}:"
            is_repeated = edge == edge_before and listing.heading.endswith(edge)
            shown = replace(listing, heading=f"{listing.heading.removesuffix(edge)}:") if is_repeated else listing
            texts.append(str(shown))
            edge_before = edge
    return " ".join(texts)


def listings(steps: Iterable[Step]) -> Iterable[Listing]:
    """Yield all listings of the steps, in order."""
    return (listing for step in steps for observation in step.observations for listing in observation.listings)


def digest(path: Iterable[Mapping[str, Any]], lines: int) -> list[str]:
    """Return the last `lines` facts and search results as lines for a prompt, after the number of those left out."""
    printed = [_print_entry(entry) for entry in path if entry["ok"] and entry["via"] != "relations"]
    if not lines:
        return []
    left_out = len(printed) - lines
    return [*([f"({left_out} earlier lookups are left out)"] if left_out > 0 else []), *printed[-lines:]]


def elide(lines: Iterable[str], limit: int) -> str:
    """Join the lines, and cut the middle out of a text longer than `limit` characters."""
    text = "\n".join(lines)
    if len(text) <= limit:
        return text
    half = limit // 2
    return f"{text[:half]}\n[… {len(text) - 2 * half} characters left out …]\n{text[len(text) - half :]}"


def _entries(number: int, observation: Observation) -> Iterable[dict[str, Any]]:
    """Yield the entries of the knowledge path that one observation of step `number` adds."""
    action, ok = observation.action, observation.ok
    if not ok or not observation.listings:
        yield {"step": number, "from": action.content[:200], "via": action.tool, "to": [], "ok": ok}
    for listing in observation.listings:
        to = [item.text for item in listing.items[:_MAX_NODES]]
        yield {
            "step": number,
            "from": listing.source,
            "via": listing.via,
            **({"direction": "in"} if listing.direction == "in" else {}),
            "to": to[0] if listing.bare else to,
            **({} if listing.bare or listing.total == len(to) else {"total": listing.total}),
            "ok": True,
        }


def _print_entry(entry: Mapping[str, Any]) -> str:
    """Print an entry. A list of relations is no fact, and is never printed: the lookup that followed one is."""
    if not entry["ok"]:
        return f"{entry['via'] or 'unknown tool'} {quoted(entry['from'])}: nothing"
    to = entry["to"] if isinstance(entry["to"], str) else ", ".join(entry["to"])
    if "total" in entry:
        to += f", … ({_count(entry['total'], len(entry['to']))} in all)"
    return f"{quoted(entry['from'])} {arrow(entry.get('direction', 'out'))} {entry['via']}: {to}"


def _count(total: int | None, shown: int) -> str:
    return f"more than {shown}" if total is None else str(total)


def arrow(direction: Direction) -> str:
    """Return the sign between a node and a relation: `a -> r: [b]` and `b <- r: [a]` are the same fact."""
    return "->" if direction == "out" else "<-"
