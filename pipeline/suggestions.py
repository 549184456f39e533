"""Suggestions for misspelled words in error messages: `Did you mean 'x'?`."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from difflib import get_close_matches


def did_you_mean(word: str, known: Iterable[str], prefix: str = "") -> str:
    """Return `" Did you mean 'x'?"` for the known word closest to `word`, or an empty string.

    `prefix` is printed before the known word.
    """
    found = closest(word, known)
    return suggestion(prefix + found) if found else ""


def closest(word: str, known: Iterable[str], *, cutoff: float = 0.6) -> str | None:
    """Return the known word that is most similar, in capitals or small letters; None if none is similar.

    `cutoff` is the lowest similarity, from 0 to 1 (`difflib`).
    """
    return _closest(word, {each: each for each in known}, cutoff)


def suggestion(word: str) -> str:
    """Return the sentence that suggests a word."""
    return f" Did you mean '{word}'?"


def did_you_mean_key(name: str, keys: Sequence[str], prefix: str = "") -> str:
    """Return the sentence of `did_you_mean` for the key whose last part is most similar to a name.

    If none is similar, it is the key whose last part is similar from one of its `_` on, as `beam_width` to `widht`.
    """
    names = {key.rpartition(".")[2]: key for key in reversed(keys)}
    ends = {end: key for full, key in names.items() for end in _ends(full)}
    found = _closest(name, names) or _closest(name, ends, cutoff=0.75)
    return suggestion(prefix + found) if found else ""


def _closest(word: str, known: Mapping[str, str], cutoff: float = 0.6) -> str | None:
    """Return the value of the most similar key. One with another number means something else, however similar it is."""
    numbers = _numbers(word)
    folded = {each.casefold(): value for each, value in known.items() if not numbers or _numbers(each) == numbers}
    close = get_close_matches(word.casefold(), folded, n=1, cutoff=cutoff)
    return folded[close[0]] if close else None


def _numbers(word: str) -> list[str]:
    """Return the numbers in a word, without leading zeros."""
    return [digits.lstrip("0") for digits in re.findall(r"\d+", word)]


def _ends(name: str) -> Iterator[str]:
    """Yield `beam_width` and `width`: a short typo has little in common with a long name."""
    words = name.split("_")
    yield from ("_".join(words[first:]) for first in range(len(words)))
