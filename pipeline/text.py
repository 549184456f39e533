"""Texts for terminals and logs: printable text, and the kind of an error."""

from __future__ import annotations

import re

_COMMANDS = {code: 0xFFFD for code in (*range(0x20), *range(0x7F, 0xA0)) if chr(code) not in "\n\t"}
"""Control characters, and the character that replaces them."""

VARIABLE_PARTS = r"'[^']*'|\"[^\"]*\"|[0-9]+"
"""The parts of an error that differ from question to question: quoted text and numbers."""


def printable(text: str) -> str:
    """Return a text, which may come from a model or a server, without the characters that control a terminal."""
    return text.translate(_COMMANDS)


def error_kind(error: str) -> str:
    """Return the first line of an error without its variable parts: equal for errors with one cause."""
    return re.sub(VARIABLE_PARTS, "…", error.partition("\n")[0])
