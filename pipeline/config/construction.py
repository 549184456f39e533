"""Builds the components of a configuration, and names the key of each wrong value."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import fields
from inspect import Parameter, signature
from typing import Any, TypeVar

from pydantic import ValidationError
from pydantic_core import ErrorDetails

from pipeline.config.composition import keys_of_choices
from pipeline.config.defaults import runner_keys, section_of, with_defaults
from pipeline.config.keys import RUNNER_KEYS, SECTIONS, check_sections
from pipeline.config.models import llm_by_role
from pipeline.config.secrets import refuse_secrets
from pipeline.errors import UserError
from pipeline.imports import import_named
from pipeline.renames import current_target
from pipeline.suggestions import did_you_mean_key

T = TypeVar("T")

_PERCENT = re.compile(r"\s*(\d+(?:\.\d+)?)\s*%\s*")


def build(section: str, config: Mapping[str, Any]) -> Any:
    """Build the component of a section. Raises UserError naming the key whose value is wrong."""
    return _construct(config[section], section, section)


def build_whole(config: Mapping[str, Any]) -> Any:
    """Build the component of a configuration without sections. Raises UserError like `build`."""
    return _construct({key: value for key, value in config.items() if key != "choices"}, "", "")


def build_plain(component: type[T], section: str, config: Mapping[str, Any]) -> T:
    """Build a component from the plain values of a section, whatever class the section names. Raises UserError.

    It is for the configurations in `run.yaml`, which may come from anybody.
    """
    keys = {key: value for key, value in config[section].items() if key != "_target_"}
    try:
        return component(**with_defaults(keys, component))
    except ValidationError as error:
        raise UserError(_wrong_value(error, section, keys)) from None


def build_own(component: type[T], config: Mapping[str, Any]) -> T:
    """Build a dataclass from the keys of a configuration that are in no section. Raises UserError for a wrong value."""
    keys = {field.name: config[field.name] for field in fields(component)}  # type: ignore[arg-type]
    try:
        return component(**keys)
    except ValidationError as error:
        raise UserError(_wrong_value(error, "", keys)) from None


def default(component: type[T], /, **changes: Any) -> T:
    """Build a component with `changes`, and for all other keys the defaults of its file in `conf/`.

    Raises UserError like `build`.
    """
    section = section_of(component)
    path = section.path if section else ""
    return _call(component, changes, path.rpartition(".")[2], path)


def check(config: Mapping[str, Any], sections: Sequence[str] = SECTIONS) -> dict[str, Any]:
    """Try every value before anything is opened or written, and refuse keys and passwords among them.

    Returns the components by section. Raises UserError naming the first key that is wrong.
    """
    built = {}
    refuse_secrets({section: config.get(section) for section in sections})
    check_sections(config, sections)
    for section in sections:
        keys = config[section]
        if section in RUNNER_KEYS:
            try:
                runner_keys(section, keys)
            except ValidationError as error:
                raise UserError(_wrong_value(error, section, keys)) from None
        if section not in ("run", "engine"):
            built[section] = build(section, config)
            if section in ("method", "dataset"):
                _check_name(section, built[section])
    if "llm" in sections:
        _check_roles(config["llm"])
    return built


def _check_name(section: str, component: object) -> None:
    """Raise UserError if the name of a method or dataset is no text. A class of the user's own may accept others."""
    name = getattr(component, "name", "")
    if not isinstance(name, str):
        raise UserError(f"{section}.name={name!r} is wrong: input should be a text")


def import_target(name: str) -> Any:
    """Import what a `_target_` names, by its current name.

    Raises ImportError, AttributeError, SyntaxError or ValueError.
    """
    module, _, attribute = current_target(name).rpartition(".")
    return getattr(import_named(module), attribute)


def _check_roles(llm: Mapping[str, Any]) -> None:
    """Raise UserError naming the first key of a role that is wrong."""
    for role, keys in llm_by_role(llm).items():
        if role is None:
            continue
        path = f"llm.roles.{role}"
        try:
            runner_keys("llm", keys)
        except ValidationError as error:
            raise UserError(_wrong_value(error, path, keys)) from None
        _construct(keys, "llm", path)


def _construct(section: Mapping[str, Any], kind: str, path: str) -> Any:
    """Import the `_target_` and call it with the section's keys."""
    if "_target_" not in section:
        raise UserError(f"{path}._target_ must be given: the class that the section configures")
    name = str(section["_target_"])
    try:
        component = import_target(name)
    except (ImportError, AttributeError, SyntaxError, ValueError) as error:
        raise UserError(f"{path}._target_={name} cannot be imported: {error}{_import_remedy(error, name)}") from None
    try:
        return _call(component, {key: value for key, value in section.items() if key != "_target_"}, kind, path)
    except TypeError as error:
        raise UserError(f"the keys of {path} are not those of its _target_ {name}: {error}") from None


def _call(component: Callable[..., T], keys: Mapping[str, Any], kind: str, path: str) -> T:
    """Call a component with the keys of its section and the defaults of the others; build nested components first."""
    skipped = RUNNER_KEYS[kind].model_fields if kind in RUNNER_KEYS else ()
    arguments = {
        key: _construct(value, key, f"{path}.{key}") if isinstance(value, Mapping) and "_target_" in value else value
        for key, value in with_defaults(keys, component).items()
        if key not in skipped
    }
    _refuse_unknown(arguments, component, skipped, path)
    try:
        return component(**arguments)
    except ValidationError as error:
        cause = _cause(error, component, keys, path)
        raise UserError(f"{cause}{_wrong_value(error, path, arguments)}") from None


def _refuse_unknown(
    arguments: Mapping[str, Any], component: Callable[..., Any], skipped: Iterable[str], path: str
) -> None:
    """Raise UserError naming the first argument that a component does not take, and the nearest key that it has.

    A validated dataclass of a user would ignore it, unless it forbids others. `skipped` are the runner's keys.
    """
    try:
        parameters = signature(component).parameters.values()
    except ValueError:  # a built-in
        return
    if any(each.kind is Parameter.VAR_KEYWORD for each in parameters):
        return
    known = [each.name for each in parameters if each.kind is not Parameter.POSITIONAL_ONLY]
    if unknown := [key for key in arguments if key not in known]:
        key = f"{path}.{unknown[0]}" if path else unknown[0]
        raise UserError(_unknown_key(key, [*known, *skipped], _users_own(component)))


def _users_own(component: Callable[..., Any]) -> str:
    """Return the name of a class of the user's own, whose file of keys is theirs too; empty for one of the project."""
    name = f"{component.__module__}.{getattr(component, '__qualname__', component)}"
    return "" if name.startswith("pipeline.") else name


def _unknown_key(key: str, known: Sequence[str], owner: str = "") -> str:
    """Return the sentence about a dotted key whose section, or `owner`, has other keys, with the nearest of them."""
    section, dot, name = key.rpartition(".")
    missing = f": {owner} has no parameter '{name}'" if owner else ""
    return f"unknown key '{key}'{missing}.{did_you_mean_key(name, known, section + dot)}"


def _import_remedy(error: Exception, target: str) -> str:
    """Say what to do about a module that Python does not find; an empty string for any other error."""
    if isinstance(error, ModuleNotFoundError) and error.name == target.partition(".")[0]:
        return f"; put the folder of {error.name} on PYTHONPATH"
    return ""


def _wrong_value(error: ValidationError, path: str, given: Mapping[str, Any]) -> str:
    """Return the sentence about the first wrong key."""
    first = error.errors()[0]
    key = _dotted_key(first, path, given)
    match first["type"]:
        case "value_error" if not first["loc"]:  # about several keys together
            return f"{path}: {first['ctx']['error']}"
        case "unexpected_keyword_argument" | "extra_forbidden":
            return _unknown_key(key, _siblings(first, given))
        case "missing" | "missing_argument" | "missing_keyword_only_argument":
            key = ".".join(filter(None, [path, *map(str, first["loc"])]))
            return f"{key} must be given, as in {key}=…"
    expected = [_expected(each, key) for each in error.errors() if _dotted_key(each, path, given) == key]
    either = " or ".join([expected[0], *(each.removeprefix("input should be ") for each in expected[1:])])
    return f"{key}={first['input']!r} is wrong: {either}{_text_elsewhere(first, path, key)}"


def _text_elsewhere(error: ErrorDetails, path: str, key: str) -> str:
    """Where a text was given for a number, name the choices of the group that have a text under the same key."""
    if not path or not isinstance(error["input"], str) or error["type"] not in ("int_parsing", "float_parsing"):
        return ""
    values = {choice: keys.get(key.removeprefix(f"{path}.")) for choice, keys in keys_of_choices(path).items()}
    texts = [f"{path}={choice}" for choice, value in values.items() if isinstance(value, str) and "$" not in value]
    return f". It is a text with {' or '.join(texts)}" if texts else ""


def _cause(error: ValidationError, component: Callable[..., Any], keys: Mapping[str, Any], path: str) -> str:
    """Name the key whose value the first wrong key follows, as the beginning of a sentence; empty if it has its own."""
    key = str(next(iter(error.errors()[0]["loc"]), ""))
    section = section_of(component)
    followed = section.followed(key) if section else None
    if followed is None or key not in keys or keys.get(followed) != keys[key]:
        return ""
    return f"{path}.{followed}={keys[key]!r} sets {path}.{key} of {keys.get('name', component.__name__)}, and "


def _dotted_key(error: ErrorDetails, path: str, given: Any) -> str:
    """Return the key of a wrong value. Parts of its location that are not in `given` name members of unions."""
    parts = [path] if path else []
    for part in error["loc"]:
        try:
            given = given[part]
        except (LookupError, TypeError):
            continue
        parts.append(str(part))
    return ".".join(parts)


def _siblings(error: ErrorDetails, given: Any) -> list[str]:
    """Return the other keys of the mapping that holds a wrong key."""
    *sections, name = error["loc"]
    for part in sections:
        with suppress(LookupError, TypeError):  # the part names a member of a union
            given = given[part]
    return [str(key) for key in given if key != name]


_INPUTS = {
    "bool_type": "true or false",
    "bool_parsing": "true or false",
    "string_type": "a text",
    "too_short": "a list with at least one value",
}


def _expected(error: ErrorDetails, key: str) -> str:
    match error["type"]:
        case "bool_type" | "bool_parsing" | "string_type" | "too_short" as kind:
            return f"input should be {_INPUTS[kind]}"
        case "list_type" | "tuple_type":
            return f"input should be a list, written {key}=[a,b]"
        case "int_type" | "int_from_float" if isinstance(value := error["input"], float) and value.is_integer():
            return f"input should be a valid integer, written {key}={int(value)}"
        case "float_parsing" if percent := _PERCENT.fullmatch(error["input"]):
            return f"input should be a valid number, written {key}={float(percent[1]) / 100:g}"
    return error["msg"][0].lower() + error["msg"][1:]
