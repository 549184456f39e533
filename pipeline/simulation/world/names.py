"""Invents ids and labels: Freebase-like machine ids, and names with the irregularities of real ones."""

from __future__ import annotations

from pathlib import Path
from random import Random
from typing import Any

from pipeline.text import load_yaml
from pipeline.types import EntityId

IDS_PER_PART = 1 << 12
"""Ids reserved for one part of the graph (the hubs or a region); parts never share an id."""

_ID_BITS = 30
_DIGITS = "0123456789bcdfghjklmnpqrstvwxyz_"
_PAIRS = tuple(high + low for high in _DIGITS for low in _DIGITS)

WORDS: dict[str, Any] = load_yaml(Path(__file__).with_name("names.yaml").read_text(encoding="utf-8"))
"""The words of all names, described in `names.yaml`."""
WORDS["family_names"] = [front + end for front in WORDS["family_fronts"] for end in WORDS["family_ends"]]
WORDS["family_names"] += WORDS["rare_family_names"]


class Ids:
    """The ids of one part of the graph: unique in the whole world, in an uninformative order."""

    def __init__(self, seed: int, part: int) -> None:
        self._next = part * IDS_PER_PART
        self._end = self._next + IDS_PER_PART
        self._shift = seed * 362_437_009

    def new(self, prefix: str = "m.0") -> EntityId:
        number = self._next
        assert number < self._end, "a part of the synthetic world needs more ids than IDS_PER_PART"
        self._next = number + 1
        # An odd factor permutes the numbers below 2^30, so ids created one after the other are not adjacent.
        mixed = (number * 663_608_941 + self._shift) & ((1 << _ID_BITS) - 1)
        return prefix + _PAIRS[mixed >> 20] + _PAIRS[mixed >> 10 & 1023] + _PAIRS[mixed & 1023]


class Labels:
    """Draws labels. People, works and places may share a label, as in real graphs."""

    def __init__(self, rng: Random) -> None:
        self._rng = rng
        self._used: list[str] = []

    def person(self) -> str:
        rng = self._rng
        odd = rng.random()
        if odd < 0.03 and self._used:
            return rng.choice(self._used)
        first, last = self._draw("first_names"), self._draw("family_names")
        name = f"{first} {last}"
        if odd > 0.98:
            name = f'{first} "{self._draw("nouns")}" {last}'
        elif odd > 0.965:
            name = f"{name}, Jr."
        elif odd > 0.94:
            name = f"{first} {self._draw('first_names')[0]}. {last}"
        self._used.append(name)
        return name

    def title(self) -> str:
        odd = self._rng.random()
        if odd < 0.03 and self._used:
            return self._rng.choice(self._used)
        words = {"adjective": self._draw("adjectives"), "noun": self._draw("nouns"), "other": self._draw("nouns")}
        title = self._draw("titles").format(**words, place=self._draw("family_names"))
        if odd > 0.94:
            title = self._draw("odd_titles").replace("TITLE", title).replace("WORD", self._draw("nouns"))
        self._used.append(title)
        return title

    def place(self) -> str:
        name = self._draw("family_names") + self._draw("place_ends")
        return f"{self._draw('place_fronts')} {name}" if self._rng.random() < 0.15 else name

    def character(self) -> str:
        if self._rng.random() < 0.6:
            return f"{self._draw('ranks')} {self._draw('family_names')}"
        return self._draw("first_names")

    def sentence(self) -> str:
        """Return free text with punctuation and letters that break careless parsers."""
        words = {"adjective": self._draw("adjectives").lower(), "noun": self._draw("nouns").lower()}
        return self._draw("sentences").format(place=self._draw("family_names"), **words)

    def _draw(self, words: str) -> str:
        """Draw one of the words of `names.yaml` with this key."""
        drawn: str = self._rng.choice(WORDS[words])
        return drawn
