"""Suggestions for misspelled words in error messages: `Did you mean 'x'?`."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from difflib import get_close_matches


def did_you_mean(word: str, known: Iterable[str], prefix: str = "") -> str:
    """Return `" Did you mean 'x'?"` for the known word closest to `word`, or an empty string.

    `prefix` is printed before the known word.
    """
    close = get_close_matches(word, list(known), n=1)
    return suggestion(prefix + close[0]) if close else ""


def suggestion(word: str) -> str:
    """Return the sentence that suggests a word."""
    return f" Did you mean '{word}'?"


def similar_key(name: str, keys: Sequence[str]) -> str | None:
    """Return the key whose last name is most similar to a name; if none is, the one that ends so after a `_`."""
    names = {key.rpartition(".")[2]: key for key in reversed(keys)}
    ends = {end: key for full, key in names.items() for end in _ends(full)}
    for found in (names, ends):
        if close := get_close_matches(name, found, n=1):
            return found[close[0]]
    return None


def _ends(name: str) -> Iterator[str]:
    """Yield `beam_width` and `width`: a short typo has little in common with a long name."""
    words = name.split("_")
    yield from ("_".join(words[first:]) for first in range(len(words)))
