"""Reads which of the offered names a reply picks, in one list or in several (specification §16.3)."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import NamedTuple

from pipeline.errors import ParseError
from pipeline.methods.parsing import LenientPrompt, Value, match_key, read_list, read_records


@dataclass(frozen=True, slots=True)
class Selection:
    """What a reply picks of one list."""

    picked: tuple[int, ...] = ()
    """Positions in the list, in the order of the reply."""
    unknown: tuple[str, ...] = ()
    """Names in the reply that were not offered."""


class Listed(NamedTuple):
    """A list of names to pick from."""

    heading: str
    names: tuple[str, ...]
    """At least one."""


class SelectionPrompt(LenientPrompt[tuple[Selection, ...] | None], ABC):
    """A choice from lists of names: a selection per list; None when no reply can be read."""

    batched: bool
    """Whether the reply is an object with a list for each number; else it is one list, for the only list offered."""

    @property
    @abstractmethod
    def lists(self) -> tuple[Listed, ...]:
        """The lists to pick from."""

    def fallback(self, text: str) -> tuple[Selection, ...] | None:
        """Return None: the method then ranks the names by similarity."""
        return None

    def read(self, text: str) -> tuple[Selection, ...]:
        if self.batched:
            return _read_lists(text, self.lists)
        (listed,) = self.lists
        return (checked([select(read_list(text), listed.names)]),)


def select(values: Iterable[Value], names: Sequence[str]) -> Selection:
    """Return the positions of the values among the names; typographic quotes, spaces and case make no difference."""
    positions = {match_key(name): position for position, name in reversed(list(enumerate(names)))}
    texts = [str(value) for value in values if value is not None]
    picked = dict.fromkeys(positions[key] for key in map(match_key, texts) if key in positions)
    return Selection(tuple(picked), tuple(text for text in texts if match_key(text) not in positions))


def checked(selections: Sequence[Selection]) -> Selection:
    """Return the first selection. Raises ParseError if all names in the selections are unknown, and there are some."""
    if not any(each.picked for each in selections) and any(each.unknown for each in selections):
        raise ParseError("none of the names is one of those offered")
    return selections[0]


def _read_lists(text: str, lists: Sequence[Listed]) -> tuple[Selection, ...]:
    records = read_records(text)
    if not records:
        raise ParseError("there is no JSON object")
    reply = by_number(records[-1], len(lists))
    if records[-1] and not reply:
        raise ParseError("the JSON object has none of the numbers of the lists")
    selections = []
    for number, listed in enumerate(lists, start=1):
        value = reply.get(number, [])
        selections.append(select(value if isinstance(value, list) else [value], listed.names))
    if selections:
        checked(selections)
    return tuple(selections)


def by_number(record: dict[str, Value], count: int) -> dict[int, Value]:
    """Return the values of an object by their keys, as far as these are numbers from 1 to `count`."""
    items = ((key.strip(" ."), value) for key, value in record.items())
    numbered = {int(key): value for key, value in items if key.isascii() and key.isdigit() and len(key) < 6}
    return {number: value for number, value in numbered.items() if 1 <= number <= count}
