"""Refuses keys and passwords in a configuration, which `run.yaml` and `summary.json` would store."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from typing import Any

from pipeline.errors import UserError

_NAME_OF_SECRET = re.compile(
    r"(.*[_-])?(api[_-]?key|authorization|bearer|credentials?|passw(or)?d|secret([_-]key)?|(access|auth|hf|api)[_-]token)",
    re.IGNORECASE,
)
_SECRET = re.compile(
    r"\b(sk|pk|rk|gsk)[-_]\w[\w-]{14,}|\bhf_\w{20,}|\bgh[pousr]_\w{20,}|\bgithub_pat_|\bxox[abpr]-|\bAKIA[0-9A-Z]{16}\b"
    r"|\bBearer \S{8,}|\beyJ[\w-]{20,}\."
)
_VARIABLE = re.compile(r"[A-Z_][A-Z0-9_]*")


def refuse_secrets(config: Mapping[str, Any]) -> None:
    """Raise UserError naming the first key whose value is a key or a password. The message never shows the value."""
    for path, name, value in _texts(config, "", ""):
        if name == "api_key_env" and (not _VARIABLE.fullmatch(value) or _SECRET.search(value)):
            raise UserError(
                f"{path} must be the name of a variable of the environment, in capitals, and not the key itself: "
                f"export MY_KEY=…, and {path}=MY_KEY"
            )
        if name != "api_key_env" and value and (_NAME_OF_SECRET.fullmatch(name) or _SECRET.search(value)):
            raise UserError(
                f"{path} holds a key or a password, which run.yaml would store: put it into the variable of the "
                "environment that llm.api_key_env names"
            )


def _texts(value: Any, path: str, name: str) -> Iterator[tuple[str, str, str]]:
    """Yield the dotted key, its last part, and each text in a configuration."""
    match value:
        case str():
            yield path, name, value
        case Mapping():
            for key, inner in value.items():
                yield from _texts(inner, f"{path}.{key}" if path else str(key), str(key))
        case list() | tuple():
            for inner in value:
                yield from _texts(inner, path, name)
