"""Configuration: composed by Hydra, checked with one clear sentence per mistake, and built into components.

A resolved configuration is a plain nested dictionary. Each section with a `_target_` builds one component; its other
keys are the component's arguments. `run.yaml` holds the resolved configuration, so a saved run is a command.
"""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager
from importlib import import_module
from pathlib import Path
from typing import Annotated, Any, Literal

import hydra
import yaml
from hydra.core.global_hydra import GlobalHydra
from hydra.errors import (
    ConfigCompositionException,
    HydraException,
    MissingConfigException,
    OverrideParseException,
)
from omegaconf import DictConfig, OmegaConf, open_dict
from omegaconf.errors import InterpolationResolutionError, OmegaConfBaseException
from pydantic import BaseModel, ConfigDict, Field, NonNegativeInt, PositiveFloat, PositiveInt, ValidationError
from pydantic_core import ErrorDetails

from pipeline.errors import UserError, nearest

SECTIONS = ("run", "budget", "dataset", "kg", "method", "llm", "retrieval", "engine", "evaluation")
"""What a run is configured by."""


class _Keys(BaseModel):
    """Keys that the runner reads itself. A component never sees them."""

    model_config = ConfigDict(strict=True, extra="forbid")


class _Run(_Keys):
    dir: str | None
    limit: PositiveInt | None
    seed: int
    reuse: list[str]
    retry_failed: bool
    halving: PositiveInt | None


class _Engine(_Keys):
    name: Literal["local", "ray"]
    concurrency: PositiveInt
    shard_size: PositiveInt
    share: bool
    log: Literal["text", "json"] = "text"
    metrics_port: Annotated[int, Field(ge=1, le=65535)] | None = None
    workers: PositiveInt = 1
    address: str | None = None
    cpus_per_worker: PositiveFloat = 1
    resources: dict[str, PositiveFloat] | None = None
    max_replacements: NonNegativeInt = 0


class _OfDataset(_Keys):
    model_config = ConfigDict(extra="ignore")

    strict: bool = False


class _OfMethod(_Keys):
    """The sweep axes that every method has (methods.md §1.3); its own keys interpolate from them."""

    model_config = ConfigDict(extra="ignore")

    beam_width: NonNegativeInt = 1
    """0 keeps everything, in the methods that can."""
    depth: PositiveInt = 1
    retries: NonNegativeInt = 0


class _OfModel(_Keys):
    model_config = ConfigDict(extra="ignore")

    roles: dict[str, dict[str, Any]] | None = None
    """Role → the keys by which its model differs from that of all other roles."""
    prompts: Literal["full", "compact"] = "full"
    """Whether prompts come with their instructions and worked examples (`compact` of pipeline/llm/prompt.py)."""


_RUNNER_KEYS: Mapping[str, type[_Keys]] = {
    "run": _Run,
    "engine": _Engine,
    "dataset": _OfDataset,
    "method": _OfMethod,
    "llm": _OfModel,
}

_PLACES = (
    *("choices", "run.dir", "run.reuse", "run.retry_failed", "dataset.strict", "kg.dataset.strict", "engine"),
    *("retrieval.cache_dir", "retrieval.encoder.device", "retrieval.relation_encoder.device"),
    *("kg.endpoints", "kg.values_style", "kg.values_chunk", "kg.max_inflight", "kg.max_neighbours", "kg.coalesce_ms"),
    *("kg.memo_entries", "kg.open_graphs", "kg.timeout_s", "kg.retries", "kg.hedge"),
    *("llm.base_urls", "llm.api_key_env", "llm.connect_timeout_s", "llm.timeout_s", "llm.max_retries", "llm.backoff_s"),
    *("llm.max_backoff_s", "llm.breaker_failures", "llm.breaker_reset_s", "llm.latency_s"),
    *("llm.replicas", "llm.autoscale", "llm.tensor_parallel", "llm.prefix_routing", "llm.resources", "llm.placement"),
    *("llm.accelerator", "llm.host", "llm.port", "llm.start_timeout_s", "llm.threads"),
)
"""Keys that say where and how fast a run happens, not what it computes: a resume may change them."""

_OF_A_ROLE = re.compile(r"^llm\.roles\.\w+\.\w+\.")

_COMPOSING = (HydraException, OmegaConfBaseException, ValueError)
"""What Hydra raises for a wrong word; ValueError for a group that is given something else than a word."""

_HERE = Path(__file__).resolve().parent

OmegaConf.register_new_resolver("max", lambda *values: max(values), replace=True)
OmegaConf.register_new_resolver("if_null", lambda value, then, other: then if value is None else other, replace=True)


def conf_dir() -> Path:
    """The folder of configuration groups: inside an installed package, or beside it in a checkout."""
    packaged = _HERE / "conf"
    return packaged if packaged.is_dir() else _HERE.parent / "conf"


def compose(overrides: Sequence[str], *, name: str = "config") -> dict[str, Any]:
    """Compose and resolve a configuration. Raises UserError for an unknown key, a wrong choice or a missing value."""
    composed, choices = _compose(overrides, name)
    if missing := sorted(key for key, value in flatten(_plain(composed)) if value == "???"):
        raise UserError(f"{', '.join(missing)} must be given, as in {missing[0]}=…")
    try:
        return {**_plain(composed, resolve=True), "choices": choices}
    except OmegaConfBaseException as error:
        raise UserError(_mistake(error, overrides, name)) from None


def describe(overrides: Sequence[str] = (), *, name: str = "config") -> str:
    """The groups of a command with their choices, and every key with its default under the overrides, for `--help`."""
    composed, chosen = _compose(overrides, name)
    groups = [conf_dir() / group for group in sorted(chosen)]
    lines = [f"  {path.name}={'|'.join(sorted(file.stem for file in path.glob('*.yaml')))}\n" for path in groups]
    return "".join([*lines, "\n" if lines else "", OmegaConf.to_yaml(composed).rstrip()])


def build(section: str, config: Mapping[str, Any]) -> Any:
    """Build the component of a section. Raises UserError naming the key whose value is wrong."""
    return _construct(config[section], section, section)


def build_whole(config: Mapping[str, Any]) -> Any:
    """Build what a configuration without sections describes. Raises UserError as `build`."""
    return _construct({key: value for key, value in config.items() if key != "choices"}, "", "")


def check(config: Mapping[str, Any], sections: Sequence[str] = SECTIONS) -> None:
    """Try every value before anything is opened or written. Raises UserError naming the first key that is wrong."""
    for section in sections:
        keys = config.get(section)
        if not isinstance(keys, Mapping):
            raise UserError(f"{section}={keys} is wrong: it should be a section with keys of its own")
        if section in _RUNNER_KEYS:
            try:
                _RUNNER_KEYS[section].model_validate(dict(keys))
            except ValidationError as error:
                raise UserError(_wrong_value(error, section, keys)) from None
        if section not in ("run", "engine"):
            build(section, config)
    if "llm" in sections:
        _check_roles(config["llm"])


def models(llm: Mapping[str, Any]) -> dict[str | None, dict[str, Any]]:
    """The section that builds the model of each role that has one of its own (`llm.roles`), and of None for all others.

    The runner's own keys are left out: roles that differ in these alone share a model.
    """
    own = _OfModel.model_fields
    return {role: {key: keys[key] for key in keys if key not in own} for role, keys in _by_role(llm).items()}


def prompts(llm: Mapping[str, Any]) -> dict[str | None, str]:
    """`full` or `compact` for each of the roles of `models`."""
    return {role: _OfModel.model_validate(keys).prompts for role, keys in _by_role(llm).items()}


def canonical(value: object) -> str:
    """One text per value, whatever the order of its keys."""
    return json.dumps(value, sort_keys=True, ensure_ascii=False)


def digest(*configs: Mapping[str, Any]) -> str:
    """Short hash of what configurations compute together, wherever they run."""
    texts = "\n".join(canonical(computed(config)) for config in configs)
    return hashlib.blake2b(texts.encode(), digest_size=4).hexdigest()


def computation(config: Mapping[str, Any]) -> str:
    """One text for all points that ask the same questions in the same way, whatever their method is called."""
    axes = {"name", *_OfMethod.model_fields}  # a method's own keys interpolate from the axes
    method = {key: value for key, value in config["method"].items() if key not in axes}
    others = (config[section] for section in SECTIONS if section not in ("run", "engine", "method"))
    return canonical([method, *others, config["run"]["seed"], config["run"]["limit"]])


def computed(config: Mapping[str, Any]) -> dict[str, Any]:
    """The leaves that decide what a configuration computes, under their dotted keys; not where or how fast."""
    leaves = dict(flatten(config))
    shard_size = leaves.get("engine.shard_size")
    kept = {key: value for key, value in leaves.items() if not _is_place(key)}
    return {**kept, "engine.shard_size": shard_size}


def drift(old: Mapping[str, Any], new: Mapping[str, Any]) -> list[str]:
    """`key: old → new` for each key that makes the two compute different things."""
    before, after = computed(old), computed(new)
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
    """As `_composed`. Raises UserError."""
    try:
        return _composed(overrides, name)
    except _COMPOSING as error:
        raise UserError(_mistake(error, overrides, name)) from None


def _composed(overrides: Sequence[str], name: str) -> tuple[DictConfig, dict[str, str]]:
    """The composed configuration, unresolved, and the choice made in each group that it has. Raises `_COMPOSING`."""
    with _hydra():
        composed = hydra.compose(name, overrides=list(overrides), return_hydra_config=True)
    with open_dict(composed):
        of_hydra = composed.pop("hydra")
    choices = of_hydra.runtime.choices.items()
    return composed, {str(group): str(choice) for group, choice in choices if "/" not in str(group)}


@contextmanager
def _hydra() -> Iterator[None]:
    """Hydra over our configuration files, or the one that is running already: a sweeper's, whose points we compose."""
    if GlobalHydra.instance().is_initialized():
        yield
        return
    with hydra.initialize_config_dir(str(conf_dir()), version_base="1.3"):
        yield


def _plain(composed: DictConfig, *, resolve: bool = False) -> dict[str, Any]:
    plain = OmegaConf.to_container(composed, resolve=resolve)
    assert isinstance(plain, dict)
    return {str(key): value for key, value in plain.items()}


def _by_role(llm: Mapping[str, Any]) -> dict[str | None, dict[str, Any]]:
    """The whole `llm` section of each role that has one of its own, and of None for all others."""
    sections: dict[str | None, dict[str, Any]] = {None: {**llm, "roles": None}}
    for role, keys in (llm.get("roles") or {}).items():
        inherited = {} if "_target_" in keys else llm  # another kind of model has other keys
        sections[role] = {**inherited, **keys, "roles": None}
    return sections


def _check_roles(llm: Mapping[str, Any]) -> None:
    """Raise UserError naming the first key of a role that is wrong."""
    for role, keys in _by_role(llm).items():
        if role is None:
            continue
        path = f"llm.roles.{role}"
        try:
            _OfModel.model_validate(keys)
        except ValidationError as error:
            raise UserError(_wrong_value(error, path, keys)) from None
        _construct(keys, "llm", path)


def _construct(section: Mapping[str, Any], kind: str, path: str) -> Any:
    """Import the `_target_` and call it with the section's keys, nested components first."""
    if "_target_" not in section:
        raise UserError(f"{path}._target_ must be given: the class that the section configures")
    skipped = ("_target_", *(_RUNNER_KEYS[kind].model_fields if kind in _RUNNER_KEYS else ()))
    arguments = {
        key: _construct(value, key, f"{path}.{key}") if isinstance(value, Mapping) and "_target_" in value else value
        for key, value in section.items()
        if key not in skipped
    }
    target = _import(section["_target_"], path)
    try:
        return target(**arguments)
    except ValidationError as error:
        raise UserError(_wrong_value(error, path, arguments)) from None
    except TypeError as error:
        raise UserError(f"the keys of {path} are not those of its _target_ {section['_target_']}: {error}") from None


def _import(name: str, path: str) -> Any:
    module, _, attribute = str(name).rpartition(".")
    try:
        return getattr(import_module(module), attribute)
    except (ImportError, AttributeError, SyntaxError, ValueError) as error:
        raise UserError(f"{path}._target_={name} cannot be imported: {error}") from None


def _wrong_value(error: ValidationError, path: str, given: Mapping[str, Any]) -> str:
    first = error.errors()[0]
    key = _key(first, path, given)
    match first["type"]:
        case "unexpected_keyword_argument" | "extra_forbidden":
            return f"unknown key '{key}'."
        case "missing" | "missing_argument" | "missing_keyword_only_argument":
            key = ".".join(filter(None, [path, *map(str, first["loc"])]))
            return f"{key} must be given, as in {key}=…"
    wishes = [_wish(each, key) for each in error.errors() if _key(each, path, given) == key]
    either = " or ".join([wishes[0], *(wish.removeprefix("input should be ") for wish in wishes[1:])])
    return f"{key}={first['input']!r} is wrong: {either}"


def _key(error: ErrorDetails, path: str, given: Any) -> str:
    """The dotted key of a wrong value. Its location also names the members of unions, which lead nowhere in `given`."""
    parts = [path] if path else []
    for part in error["loc"]:
        try:
            given = given[part]
        except (LookupError, TypeError):
            continue
        parts.append(str(part))
    return ".".join(parts)


def _wish(error: ErrorDetails, key: str) -> str:
    match error["type"]:
        case "bool_type" | "bool_parsing":
            return "input should be true or false"
        case "list_type" | "tuple_type":
            return f"input should be a list, written {key}=[a,b]"
    return error["msg"][0].lower() + error["msg"][1:]


def _mistake(error: Exception, overrides: Sequence[str], name: str) -> str:
    reason = str(error).splitlines()[0]
    match error:
        case MissingConfigException():
            return _unknown_choice(error)
        case OverrideParseException():
            return f"'{error.override}' is not of the form key=value (with special characters, 'key=\"value\"')"
        case ConfigCompositionException() if "Ambiguous value" in reason:
            return f"{reason}: a list is written key=[1,2]; one value after the other is for kgqa sweep"
        case ConfigCompositionException():
            return _unknown_key(overrides, name) or reason
        case InterpolationResolutionError():
            return f"{error.full_key}={error.child_node} cannot be resolved ({reason}): set {error.full_key}"
    return reason


def _unknown_choice(error: MissingConfigException) -> str:
    missing = (error.missing_cfg_file or "").removesuffix(".yaml")
    group, _, choice = missing.rpartition("/")
    options = sorted(error.options or [])
    return f"there is no {group}={choice}.{nearest(choice, options)} Known: {', '.join(options)}"


def _unknown_key(overrides: Sequence[str], name: str) -> str | None:
    """Say which override names no key under the same group choices; None when each does."""
    search = [word for word in overrides if word.startswith("hydra.searchpath")]
    try:
        _, groups = _composed(search, name)
        composed, _ = _composed([*search, *(word for word in overrides if word.partition("=")[0] in groups)], name)
    except _COMPOSING:  # then it is a choice that is wrong, or the search path, and no key
        return None
    known = [key for key, _ in flatten(_plain(composed))]
    sections = {".".join(key.split(".")[:depth]) for key in known for depth in range(1, key.count(".") + 1)}
    for word in overrides:
        key = word.partition("=")[0].lstrip("+~")
        if key not in groups and key not in known and key not in sections and not key.startswith("hydra."):
            return _lacks_group(key, groups) or f"unknown key '{key}'.{_suggestion(key, [*known, *groups])}"
    return None


def _lacks_group(key: str, groups: Collection[str]) -> str | None:
    """Say that other commands have the group of this key; None when they do not, or when this one has it too."""
    group = key.partition(".")[0]
    if group in groups or not (conf_dir() / group).is_dir():
        return None
    return f"this command has no group '{group}'. It has {', '.join(sorted(groups)) or 'none'}."


def _suggestion(key: str, known: Sequence[str]) -> str:
    """Where the key is: in another choice of its group, in a section that was not named, or spelled another way."""
    group, _, rest = key.partition(".")
    others = sorted((conf_dir() / group).glob("*.yaml")) if rest else []
    owners = [f"{group}={file.stem}" for file in others if rest in dict(flatten(yaml.safe_load(file.read_text())))]
    if owners:
        return f" It is a key of {' and of '.join(owners)}."
    endings = [full for full in known if full.endswith(f".{key}")]
    return f" Did you mean '{endings[0]}'?" if endings else nearest(key, known)


def _is_place(key: str) -> bool:
    key = _OF_A_ROLE.sub("llm.", key)
    return any(key == place or key.startswith(f"{place}.") for place in _PLACES)
