"""Configuration: composed by Hydra, checked with one clear sentence per mistake, and built into components.

A resolved configuration is a plain nested dictionary. Each section with a `_target_` builds one component; its other
keys are the component's arguments. `run.yaml` holds the resolved configuration, so a saved run is a command.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterator, Mapping, Sequence
from importlib import import_module
from pathlib import Path
from typing import Any

import hydra
from hydra.core.global_hydra import GlobalHydra
from hydra.errors import ConfigCompositionException, HydraException, MissingConfigException
from omegaconf import DictConfig, OmegaConf, open_dict
from omegaconf.errors import OmegaConfBaseException
from pydantic import ValidationError

from pipeline.errors import UserError, nearest

GENERIC_METHOD_KEYS = ("beam_width", "depth", "retries")
"""The sweep axes every method has (methods.md §1.3); its own keys interpolate from them."""

_NOT_ARGUMENTS = {"method": GENERIC_METHOD_KEYS, "dataset": ("strict",)}
"""Keys that are for the runner, not for the component that the section builds."""

_PLACES = ("choices", "run.dir", "run.reuse", "engine", "kg.endpoints", "llm.base_urls", "llm.api_key_env")
"""Keys that say where and how fast a run happens, not what it computes: a resume may change them."""

_HERE = Path(__file__).resolve().parent

OmegaConf.register_new_resolver("max", lambda *values: max(values), replace=True)


def conf_dir() -> Path:
    """The folder of configuration groups: inside an installed package, or beside it in a checkout."""
    packaged = _HERE / "conf"
    return packaged if packaged.is_dir() else _HERE.parent / "conf"


def compose(overrides: Sequence[str], *, name: str = "config") -> dict[str, Any]:
    """Compose and resolve a configuration. Raises UserError for an unknown key, a wrong choice or a missing value."""
    try:
        composed, choices = _compose(overrides, name)
        if missing := OmegaConf.missing_keys(composed):
            raise UserError(f"{', '.join(sorted(missing))} must be given, as in {min(missing)}=…")
        resolved = OmegaConf.to_container(composed, resolve=True)
    except MissingConfigException as error:
        raise UserError(_unknown_choice(error)) from None
    except ConfigCompositionException as error:
        raise UserError(_unknown_key(error, overrides, name)) from None
    except (HydraException, OmegaConfBaseException) as error:
        raise UserError(str(error).splitlines()[0]) from None
    assert isinstance(resolved, dict)
    return {**{str(key): value for key, value in resolved.items()}, "choices": choices}


def describe(name: str = "config") -> str:
    """All groups with their choices, and every key with its default, for `--help`."""
    groups = sorted(path for path in conf_dir().iterdir() if path.is_dir())
    lines = [f"  {path.name}={'|'.join(sorted(file.stem for file in path.glob('*.yaml')))}" for path in groups]
    composed, _ = _compose([], name)
    return "\n".join([*lines, "", OmegaConf.to_yaml(composed).rstrip()])


def build(section: str, config: Mapping[str, Any]) -> Any:
    """Build the component of a section. Raises UserError naming the key whose value is wrong."""
    return _construct(config[section], section, section)


def canonical(value: object) -> str:
    """One text per value, whatever the order of its keys."""
    return json.dumps(value, sort_keys=True, ensure_ascii=False)


def digest(config: Mapping[str, Any]) -> str:
    """Short hash of what a configuration computes, wherever it runs."""
    return hashlib.blake2b(canonical(_computed(config)).encode(), digest_size=4).hexdigest()


def drift(old: Mapping[str, Any], new: Mapping[str, Any]) -> list[str]:
    """`key: old → new` for each key that makes the two compute different things."""
    before, after = dict(flatten(_computed(old))), dict(flatten(_computed(new)))
    keys = sorted(key for key in before.keys() | after.keys() if before.get(key) != after.get(key))
    return [f"{key}: {before.get(key)} → {after.get(key)}" for key in keys]


def flatten(config: Mapping[str, Any], prefix: str = "") -> Iterator[tuple[str, Any]]:
    """The leaves of a nested configuration under their dotted keys."""
    for key, value in config.items():
        if isinstance(value, Mapping) and value:
            yield from flatten(value, f"{prefix}{key}.")
        else:
            yield f"{prefix}{key}", value


def _compose(overrides: Sequence[str], name: str) -> tuple[DictConfig, dict[str, str]]:
    """The composed configuration, unresolved, and the choice made in each group."""
    GlobalHydra.instance().clear()
    with hydra.initialize_config_dir(str(conf_dir()), version_base="1.3"):
        composed = hydra.compose(name, overrides=list(overrides), return_hydra_config=True)
    with open_dict(composed):
        of_hydra = composed.pop("hydra")
    choices = of_hydra.runtime.choices.items()
    return composed, {str(group): str(choice) for group, choice in choices if "/" not in str(group)}


def _construct(section: Mapping[str, Any], kind: str, path: str) -> Any:
    """Import the `_target_` and call it with the section's keys, nested components first."""
    skipped = ("_target_", *_NOT_ARGUMENTS.get(kind, ()))
    arguments = {
        key: _construct(value, key, f"{path}.{key}") if isinstance(value, Mapping) and "_target_" in value else value
        for key, value in section.items()
        if key not in skipped
    }
    module, _, name = section["_target_"].rpartition(".")
    try:
        target = getattr(import_module(module), name)
    except (ImportError, AttributeError) as error:
        raise UserError(f"{path}._target_={section['_target_']} cannot be imported: {error}") from None
    try:
        return target(**arguments)
    except ValidationError as error:
        raise UserError(_wrong_value(error, path)) from None


def _wrong_value(error: ValidationError, path: str) -> str:
    first = error.errors()[0]
    key = ".".join([path, *map(str, first["loc"])])
    return f"{key}={first['input']!r} is wrong: {first['msg'][0].lower()}{first['msg'][1:]}"


def _unknown_choice(error: MissingConfigException) -> str:
    missing = (error.missing_cfg_file or "").removesuffix(".yaml")
    group, _, choice = missing.rpartition("/")
    options = sorted(error.options or [])
    return f"there is no {group}={choice}.{nearest(choice, options)} Known: {', '.join(options)}"


def _unknown_key(error: ConfigCompositionException, overrides: Sequence[str], name: str) -> str:
    """Say which override names no key, and the nearest key there is under the same group choices."""
    groups = {path.name for path in conf_dir().iterdir() if path.is_dir()}
    choices = [word for word in overrides if word.partition("=")[0] in groups or word.startswith("hydra.")]
    composed, _ = _compose(choices, name)
    plain = OmegaConf.to_container(composed)
    assert isinstance(plain, dict)
    known = [key for key, _ in flatten({str(key): value for key, value in plain.items()})]
    sections = {".".join(key.split(".")[:depth]) for key in known for depth in range(1, key.count(".") + 1)}
    for word in overrides:
        key = word.partition("=")[0].lstrip("+~")
        if key not in groups and key not in known and key not in sections and not key.startswith("hydra."):
            return f"unknown key '{key}'.{nearest(key, known)}"
    return str(error).splitlines()[0]


def _computed(config: Mapping[str, Any]) -> dict[str, Any]:
    """The configuration without the keys that do not decide what is computed."""
    leaves = dict(flatten(config))
    shard_size = leaves.get("engine.shard_size")
    kept = {key: value for key, value in leaves.items() if not _is_place(key)}
    return {**kept, "engine.shard_size": shard_size}


def _is_place(key: str) -> bool:
    return any(key == place or key.startswith(f"{place}.") for place in _PLACES)
