"""Texts for terminals and logs: printable text, numbers with their noun, short keys, kinds of errors. Reads YAML."""

from __future__ import annotations

import re
import shlex
from collections import Counter
from collections.abc import Collection, Iterable
from math import floor, log10
from typing import Any

import yaml

_DIRECTIONS = (*range(0x202A, 0x202F), *range(0x2066, 0x206A))
"""Characters that turn the direction of the text after them, so that it reads as another text."""
_COMMANDS = {
    code: 0xFFFD for code in (*range(0x20), *range(0x7F, 0xA0), 0x2028, 0x2029, *_DIRECTIONS) if chr(code) not in "\n\t"
}
"""Control characters, and the character that replaces them."""
_ESCAPED = {code: f"\\u{code:04x}" for code in _COMMANDS if code >= 0x7F}

_YAML_LOADER = getattr(yaml, "CSafeLoader", yaml.SafeLoader)  # ten times faster, where libyaml is installed

_SINGULAR = {"are": "is", "have": "has", "were": "was", "they": "it"}

_RAISED = re.compile(r"(\w+)(?:: .*)? (\([^()]*\.py:[0-9]+\))")
"""The class of an error, and the source line that raised it."""
_VARIABLE_PARTS = re.compile(r"'[^']*'|\"[^\"]*\"|https?://\S+|[0-9]+(?: times?\b)?")
"""The parts of an error that differ from question to question: quoted text, URLs and numbers, as of `3 times`."""


def counted(number: int, noun: str) -> str:
    """Return a number with its noun, as in "1 question" and "2,000 questions"."""
    return f"{number:,} {plural(noun, number)}"


def counted_questions(number: int, configurations: int) -> str:
    """Return a number of questions that counts each question once for every configuration that was asked."""
    return counted(number, "question") + (" (each configuration counts its own)" if configurations > 1 else "")


def plural(noun: str, number: int) -> str:
    """Return a noun, or some words that end in one, as it stands after a number."""
    if number == 1:
        return noun
    return f"{noun[:-1]}ies" if re.search("[^aeiou]y$", noun) else f"{noun}s"


def amount(value: float) -> str:
    """Return an amount of dollars or hours with two decimals, and with two significant digits if it is below 0.1."""
    decimals = 2 if value <= 0 else max(2, 1 - floor(log10(value)))
    return f"{value:,.{decimals}f}"


def counted_range(numbers: Collection[int], noun: str) -> str:
    """Return the lowest and the highest number with their noun, as in "54 to 174 questions"."""
    low, high = min(numbers), max(numbers)
    return f"{'' if low == high else f'{low:,} to '}{counted(high, noun)}"


def agreeing(verb: str, number: int) -> str:
    """Return a verb as it stands after a number with its noun, as in "1 question counts" and "2 questions count"."""
    return verb if number != 1 else _SINGULAR.get(verb, f"{verb}s")


def kgqa(*words: object) -> str:
    """Return a command of the project as a shell takes it: a word with a space is quoted."""
    return shlex.join(["kgqa", *map(str, words)])


def show_command(run: object, question_id: str, configuration: int, configurations: int) -> str:
    """Return the command that shows a question. It names the configuration if the run has more than one."""
    chosen = [f"configuration={configuration}"] if configurations > 1 else []
    looks_like_a_key = "=" in question_id or question_id.startswith(("-", "+", "~"))
    words = [*chosen, "--", question_id] if looks_like_a_key else [question_id, *chosen]
    return kgqa("show", run, *words)


def printable(text: str) -> str:
    """Return a text, which may come from a model or a server, without the characters that control a terminal."""
    return text.translate(_COMMANDS)


def printable_json(document: str) -> str:
    """Return a JSON document with the characters that control a terminal in their escaped form."""
    return document.translate(_ESCAPED)


def valid_unicode(text: str) -> str:
    """Return a text that can be stored: two surrogates are joined into one character, a lone one becomes U+FFFD."""
    return text if text.isascii() else text.encode("utf-16", "surrogatepass").decode("utf-16", "replace")


def short_keys(keys: Iterable[str]) -> dict[str, str]:
    """Return each key without its section, such as `width`. Keys that would then be equal stay whole.

    All further parts stay: a reader takes `model` for the model of the run, and not for `roles.srp.judge.model`.
    """
    without = {key: key.partition(".")[2] or key for key in keys}
    counts = Counter(without.values())
    return {key: short if counts[short] == 1 else key for key, short in without.items()}


def error_kind(error: str) -> str:
    """Return what errors with one cause have in common: their class and source line, or else all but variable parts."""
    line = error.partition("\n")[0]
    raised = _RAISED.fullmatch(line)
    return f"{raised[1]} {raised[2]}" if raised else _VARIABLE_PARTS.sub("…", line)


def load_yaml(text: str | bytes) -> Any:
    """Return the plain data of a YAML text. Raises yaml.YAMLError."""
    return yaml.load(text, Loader=_YAML_LOADER)  # noqa: S506 - a safe loader
