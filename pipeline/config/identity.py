"""The identity of a configuration: the keys that decide its results, without those for place and speed.

A key that changes only the place or the speed carries the marker `RUNTIME_ONLY` in its annotation. The annotation is in
the class that the `_target_` of the section names, or in the runner's own keys.
"""

from __future__ import annotations

import hashlib
import json
import sys
from collections.abc import Iterable, Mapping
from contextlib import suppress
from functools import cache
from typing import Annotated, Any, get_origin, get_type_hints

from pipeline.config.composition import compose, searched_targets
from pipeline.config.construction import import_target
from pipeline.config.keys import QUESTION_KEYS, RUNNER_KEYS, SECTIONS, MethodKeys, flatten
from pipeline.errors import UserError
from pipeline.types import RUNTIME_ONLY


def canonical(value: object) -> str:
    """Return a value as JSON text. Equal values give the same text: 0 and 0.0, and keys in any order."""
    return _json(_with_integers(value))


def _json(value: object) -> str:
    return json.dumps(value, sort_keys=True, ensure_ascii=False)


def _with_integers(value: object) -> object:
    """Return a value with the numbers that have no fraction as integers."""
    match value:
        case float() if value.is_integer():
            return int(value)
        case Mapping():
            return {key: _with_integers(one) for key, one in value.items()}
        case list() | tuple():
            return [_with_integers(one) for one in value]
    return value


def identity_hash(*configs: Mapping[str, Any]) -> str:
    """Return a short hash of the keys that decide the results of the configurations, for the name of a run."""
    texts = "\n".join(_json(deciding_keys(config)) for config in configs)  # with 0.0: folders of old runs are found
    return hashlib.blake2b(texts.encode(), digest_size=4).hexdigest()


def key_without_name(config: Mapping[str, Any]) -> str:
    """Return a text that is equal for configurations that differ only in the name of their method."""
    axes = {"name", *MethodKeys.model_fields}  # a method's own keys interpolate from the axes
    method = {key: value for key, value in config.get("method", {}).items() if key not in axes}
    others = (config.get(section) for section in SECTIONS if section not in ("run", "engine", "method"))
    run = config.get("run", {})
    return canonical([method, *others, *(run.get(key) for key in ("seed", *QUESTION_KEYS))])


def deciding_keys(config: Mapping[str, Any]) -> dict[str, Any]:
    """Return the keys that decide the results of a configuration, dotted, with their values."""
    deciding = {
        section: _without_runtime_only(keys, section) if isinstance(keys, Mapping) else keys
        for section, keys in config.items()
        if section != "choices"  # the names of files whose contents are in the sections
    }
    return dict(flatten(deciding))


def has_one_value(key: str) -> bool:
    """Return whether all configurations of a run must have the same value of a dotted key: the runner reads it once."""
    section, _, name = key.partition(".")
    if section in ("engine", "evaluation") or key == "run.early_stopping":
        return True
    return name in _runner_only(section)


def drift(old: Mapping[str, Any], new: Mapping[str, Any]) -> list[str]:
    """Return `key: old → new` for each key that makes the results of two configurations differ.

    A key that only one of them has is no drift if it is null, zero, false or empty, nor one that only the new one has,
    with its default: the key is newer than the other configuration.
    """
    before, after = deciding_keys(old), deciding_keys(new)
    pairs = {key: (before.get(key), after.get(key)) for key in sorted(before.keys() | after.keys())}
    changed = {key: (a, b) for key, (a, b) in pairs.items() if a != b and (a or b)}
    defaults = _defaults(new, {key.partition(".")[0] for key in changed.keys() - before.keys()})
    return [
        f"{key}: {written(a)} → {written(b)}"
        for key, (a, b) in changed.items()
        if key in before or key not in defaults or defaults[key] != b
    ]


def written(value: object) -> str:
    """Return a value as the command line and the documentation write it: `null`, not `None`."""
    return value if isinstance(value, str) else canonical(value)


def _defaults(config: Mapping[str, Any], sections: Iterable[str]) -> dict[str, Any]:
    """Return the deciding keys of some sections as the chosen files of the configuration set them."""
    found: dict[str, Any] = {}
    given = dict(flatten(config))
    for section in sections:
        choice = config.get("choices", {}).get(section)
        with suppress(UserError):  # a file of another folder
            found |= deciding_keys({section: compose([f"{section}={choice}"], given=given)[section]})
    return found


def _without_runtime_only(section: Mapping[str, Any], kind: str, target: str = "") -> dict[str, Any]:
    """Return a section without its runtime-only keys; `target` is its class where the section does not name it."""
    target = str(section.get("_target_", target))
    dropped = _runtime_only(target) | _runner_only(kind)
    deciding = {key: value for key, value in section.items() if key not in dropped}
    for key, value in deciding.items():
        if isinstance(value, Mapping) and "_target_" in value:
            deciding[key] = _without_runtime_only(value, key)
    if kind == "llm" and section.get("roles"):
        deciding["roles"] = {
            role: _without_runtime_only(keys, "llm", target) for role, keys in section["roles"].items()
        }
    return deciding


@cache
def _runner_only(section: str) -> frozenset[str]:
    """Return the runtime-only keys among those that the runner itself reads from a section."""
    return _marked(RUNNER_KEYS.get(section))


def _runtime_only(target: str) -> frozenset[str]:
    """Return the runtime-only keys of a class; none for a class that cannot be imported.

    A class that only a file of others names is not imported.
    """
    known = target.rpartition(".")[0] in sys.modules or target in searched_targets()
    return _runtime_only_of(target) if known else frozenset()


@cache
def _runtime_only_of(target: str) -> frozenset[str]:
    try:
        return _marked(import_target(target))
    except (ImportError, AttributeError, SyntaxError, ValueError):
        return frozenset()


def _marked(owner: Any) -> frozenset[str]:
    """Return the fields of a class whose annotation holds `RUNTIME_ONLY`."""
    try:
        hints = get_type_hints(owner, include_extras=True).items()
    except (TypeError, NameError):  # not a class, or a user's class with annotations for type checkers alone
        return frozenset()
    return frozenset(
        name for name, hint in hints if get_origin(hint) is Annotated and RUNTIME_ONLY in hint.__metadata__
    )
