"""Writes values as Hydra overrides, and reads words of the command line that Hydra's grammar has no place for."""

from __future__ import annotations

import os.path
import re
import shlex
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

from hydra.core.override_parser.overrides_parser import OverridesParser
from hydra.core.override_parser.types import Override
from hydra.errors import HydraException

from pipeline.suggestions import did_you_mean

_PLAIN = re.compile(r"[\w./:@+-]+", re.ASCII)
_WORD = re.compile(r"(\+{0,2}[\w./@-]+)=(.+)", re.ASCII | re.DOTALL)
_STRUCTURE = re.compile(r"""[\[{("'$]|.*(,|[\[\](){}\\]|\s[\w.]+=|\$\{)""", re.DOTALL)
"""A value with brackets, quotes around it, commas or a second `key=` is no plain text: a mistake in it is said."""


def override(key: str, value: object) -> str:
    """Return `key=value` as Hydra reads it."""
    return f"{key}={_text(value)}"


def shell_override(key: str, value: object) -> str:
    """Return `key=value` as a shell takes it, without quotes where it needs none."""
    return shlex.quote(override(key, value))


def readable(word: str) -> str:
    """Return an override whose value Hydra can read, where the word has a plain text as its value.

    Hydra's grammar has no letters such as ü, no second `=` and no `~` in a text without quotes, which names of files
    and notes may have. `~` at the beginning is the user's home folder.
    """
    found = _WORD.fullmatch(word)
    if not found or _STRUCTURE.match(found[2]):
        return word
    key, value = found[1], os.path.expanduser(found[2])
    return word if value == found[2] and (_PLAIN.fullmatch(value) or _parsed(word)) else f"{key}={_quoted(value)}"


def literal_value(word: str) -> str:
    """Return the value of an override as a text, also one that Hydra would read as something else."""
    text = word.partition("=")[2]
    parsed = _parsed(word)
    value = parsed.value() if parsed else None
    return value if isinstance(value, str) else text


def not_an_override(word: str, form: str = "key=value") -> str:
    """Return a sentence about a word that Hydra cannot read, with the word that it may mean."""
    found = _WORD.fullmatch(word)
    if not found:
        return f"'{word}' is not of the form {form}"
    literal = shlex.quote(f"{found[1]}={_as_texts(found[2])}")
    return f"'{word}' is not of the form {form}: check its brackets and quotes, or write {literal} for this text"


def wrong_flag(word: str, following: Sequence[str], values: Mapping[str, Any]) -> str:
    """Return a sentence about a word that is written as a flag, with the override that it may mean.

    `following` are the words after it. `values` are the keys that there are, with their values.
    """
    given, _, value = word.lstrip("-").replace("-", "_").partition("=")
    key = next((each for each in values if f".{each}".endswith(f".{given}")), None)
    if key is None:
        meant = did_you_mean(word, ["--help"])
    elif isinstance(values[key], bool):  # what follows is no value, as the run folder of `--json RUN`
        meant = f" Did you mean {key}={value or 'true'}?"
    else:
        value = value or next((each for each in following[:1] if "=" not in each), "…")
        meant = f" Did you mean {key}={value}?"
    return f"'{word}' is not of the form key=value, and kgqa has no such flag.{meant}"


def _as_texts(value: str) -> str:
    """Quote a value that Hydra cannot read. A list stays a list, and its items are quoted."""
    if value[0] + value[-1] != "[]":
        return _quoted(value)
    listed = f"[{','.join(item if _parsed(f'x={item}') else _quoted(item) for item in value[1:-1].split(','))}]"
    return listed if _parsed(f"x={listed}") else _quoted(value)


def _parsed(word: str) -> Override | None:
    """Return a word as Hydra reads it; None if it cannot."""
    try:
        return OverridesParser.create().parse_override(word)
    except HydraException:
        return None


def _text(value: object) -> str:
    """A value as it is written on the command line."""
    match value:
        case None:
            return "null"
        case bool():
            return str(value).lower()
        case Mapping():
            return f"{{{','.join(f'{_key_text(key)}:{_text(item)}' for key, item in value.items())}}}"
        case str() | Path():
            return _quoted(str(value))
        case Iterable():
            return f"[{','.join(map(_text, value))}]"
    return str(value)


def _key_text(key: object) -> str:
    """Return a key of a nested dictionary with its special characters escaped: Hydra takes no quotes around a key."""
    return re.sub(r"([\\()\[\]{}:=,\s])", r"\\\1", str(key))


def _quoted(text: str) -> str:
    """Return a text in quotes; without them if Hydra then reads the same text."""
    if _PLAIN.fullmatch(text) and isinstance(OverridesParser.create().parse_override(f"key={text}").value(), str):
        return text
    # Hydra takes a backslash as it is, except before a quote.
    return '"' + re.sub(r'(\\*)("|\Z)', lambda end: end[1] * 2 + ('\\"' if end[2] else ""), text) + '"'
