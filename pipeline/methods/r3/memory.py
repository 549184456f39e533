"""What an attempt has seen and learnt, kept outside the prompt (methods.md §6.5)."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from pipeline.methods.r3.actions import Action
from pipeline.methods.rendering import quoted
from pipeline.types import Direction, EntityId, LiteralNode, Node, Triple

NAMING = frozenset({"name", "title"})
"""Features that name a node."""
_MARGIN = 24
"""Characters kept free for the true count."""
_LEARNT = 20
"""Nodes of one entry of the knowledge path that are spelt out; the log has them all."""


class Item(NamedTuple):
    """One node of an observation."""

    node: Node
    text: str
    """As printed."""
    triple: Triple | None = None
    """The fact that it stands for; None for what a search found."""
    name: str | None = None


@dataclass(frozen=True, slots=True)
class Listing:
    """Nodes or values under one heading of an observation."""

    heading: str
    source: str
    """The node that was asked about, or the text that was searched for."""
    via: str
    """Edge type, relation, feature, or `search`."""
    items: tuple[Item, ...]
    direction: Direction = "out"
    total: int | None = None
    """How many there are; None when the graph holds more than were fetched."""
    bare: bool = False
    """A single value, printed without brackets."""

    def cut(self, room: int) -> Listing:
        """The listing with as many items as `room` characters hold; a single long value is cut itself."""
        room = max(0, room - len(self.heading) - _MARGIN)
        if self.bare:
            (item,) = self.items
            kept = item if len(item.text) <= room else item._replace(text=_cut(item.text, room))
            return _with(self, (kept,))
        lengths = 0
        for place, item in enumerate(self.items):
            lengths += len(item.text) + 2
            if lengths > room:
                return _with(self, self.items[:place])
        return self

    def __str__(self) -> str:
        texts = ", ".join(item.text for item in self.items)
        if self.bare:
            return f"{self.heading} {texts}."
        if self.total == len(self.items):
            return f"{self.heading} [{texts}]."
        count = f"more than {len(self.items)}" if self.total is None else str(self.total)
        return f"{self.heading} [{texts}, …] ({count} in all)."


@dataclass(frozen=True, slots=True)
class Observation:
    """What one action brought."""

    action: Action
    text: str
    """As the scratchpad shows it."""
    full: str
    """Uncut, for the memory's log."""
    ok: bool = True
    listings: tuple[Listing, ...] = ()
    """What `text` shows, no more."""

    @classmethod
    def failed(cls, action: Action, text: str) -> Observation:
        """An error: an observation like any other."""
        return cls(action, text, text, ok=False)

    @classmethod
    def of(cls, action: Action, listings: Iterable[Listing], cap: int) -> Observation:
        """Listings, cut to about `cap` characters in all, with the true counts."""
        whole = tuple(listings)
        shown = tuple(listing.cut(cap // len(whole)) for listing in whole)
        return cls(action, " ".join(map(str, shown)), " ".join(map(str, whole)), listings=shown)


@dataclass(frozen=True, slots=True)
class Step:
    """One thought, action and observation."""

    number: int
    thought: str
    action: str
    observations: tuple[Observation, ...]

    @property
    def observation(self) -> str:
        """All observations of the action line, as shown."""
        return " ".join(observation.text for observation in self.observations)


@dataclass
class Memory:
    """The trajectory of one attempt."""

    steps: list[Step] = field(default_factory=list)

    @property
    def log(self) -> list[str]:
        """Every thought, action and observation in order, observations uncut."""
        return [
            f"Thought {step.number}: {step.thought}\nAction {step.number}: {step.action}\n"
            f"Observation {step.number}: {' '.join(observation.full for observation in step.observations)}"
            for step in self.steps
        ]

    @property
    def path(self) -> list[dict[str, Any]]:
        """What was learnt, in normal form: from where, by which edge, feature or search, to what."""
        return [entry for step in self.steps for seen in step.observations for entry in _entries(step.number, seen)]

    @property
    def lines(self) -> tuple[str, ...]:
        """The knowledge path as a prompt shows it, all of it."""
        path = self.path
        return tuple(digest(path, len(path)))

    @property
    def triples(self) -> list[Triple]:
        """The distinct facts that were shown, in order."""
        facts = (item.triple for item in self._items if item.triple is not None)
        return list(dict.fromkeys(facts))

    @property
    def names(self) -> Mapping[EntityId, str]:
        """The names of nodes as far as they were shown, in lists or as features."""
        shown = {item.node: item.name for item in self._items if isinstance(item.node, str) and item.name is not None}
        asked = (fact for fact in self.triples if fact.relation in NAMING and isinstance(fact.tail, LiteralNode))
        return {**shown, **{str(fact.head): fact.tail.value for fact in asked if isinstance(fact.tail, LiteralNode)}}

    @property
    def learnt(self) -> bool:
        """Whether anything was found but nodes by their text."""
        return any(listing.via not in {"search", "relations"} for listing in listings(self.steps))

    @property
    def _items(self) -> Iterable[Item]:
        return (item for listing in listings(self.steps) for item in listing.items)


def listings(steps: Iterable[Step]) -> Iterable[Listing]:
    """All that was shown, in order."""
    return (listing for step in steps for seen in step.observations for listing in seen.listings)


def digest(path: Iterable[Mapping[str, Any]], lines: int) -> list[str]:
    """The knowledge path as lines for a prompt, the newest ones when there are too many."""
    printed = [_print_entry(entry) for entry in path if entry["ok"]]
    return printed[-lines:] if lines else []


def elide(lines: Iterable[str], room: int) -> str:
    """The lines, or the two ends of their text with a mark between them, in about `room` characters."""
    text = "\n".join(lines)
    if len(text) <= room:
        return text
    half = room // 2
    return f"{text[:half]}\n[… {len(text) - 2 * half} characters left out …]\n{text[len(text) - half :]}"


def _entries(number: int, seen: Observation) -> Iterable[dict[str, Any]]:
    if not seen.ok or not seen.listings:
        yield {"step": number, "from": seen.action.content[:200], "via": seen.action.tool, "to": [], "ok": seen.ok}
    for listing in seen.listings:
        to = [item.text for item in listing.items[:_LEARNT]]
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
    arrow = "<-" if entry.get("direction") == "in" else "->"
    to = entry["to"] if isinstance(entry["to"], str) else ", ".join(entry["to"])
    return f"{quoted(entry['from'])} {arrow} {entry['via']}: {to}"


def _cut(text: str, room: int) -> str:
    return f"{text[:room]}… ({len(text)} characters in all)"


def _with(listing: Listing, items: tuple[Item, ...]) -> Listing:
    return Listing(
        listing.heading, listing.source, listing.via, items, listing.direction, listing.total, bare=listing.bare
    )
