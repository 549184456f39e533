"""Composes a configuration with Hydra, describes it for `--help`, and explains what is wrong with an override."""

from __future__ import annotations

import os
import re
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, nullcontext
from copy import deepcopy
from functools import cache, lru_cache
from pathlib import Path
from types import MappingProxyType
from typing import Any, get_args, get_origin, get_type_hints

import hydra
import hydra.utils
from hydra._internal.config_loader_impl import ConfigLoaderImpl
from hydra._internal.hydra import Hydra
from hydra.core.global_hydra import GlobalHydra
from hydra.core.override_parser.overrides_parser import OverridesParser
from hydra.errors import ConfigCompositionException, HydraException, MissingConfigException, OverrideParseException
from hydra.types import RunMode
from omegaconf import DictConfig, ListConfig, OmegaConf, open_dict
from omegaconf.errors import InterpolationResolutionError, OmegaConfBaseException
from yaml import YAMLError

from pipeline.config import key_docs
from pipeline.config.kept_files import keep_files
from pipeline.config.keys import SECTIONS, check_sections, flatten
from pipeline.config.overrides import not_an_override, wrong_flag
from pipeline.config.unread_keys import refuse_unread
from pipeline.config.yaml_files import check_yaml
from pipeline.errors import UserError
from pipeline.renames import current_config, current_override
from pipeline.suggestions import did_you_mean, did_you_mean_key, suggestion
from pipeline.text import load_yaml
from pipeline.types import DatasetKind

HYDRA_ERRORS = (HydraException, OmegaConfBaseException, ValueError, YAMLError, OSError)
"""What Hydra raises for a wrong override or file; ValueError for a group whose choice is not a word."""

_VALUE = re.compile(r"\+{0,2}(?!hydra)[a-z_]+\.[^/@=]+=")
"""The key of an override that sets a value: the name of a group has no dot."""
_SEVERAL = re.compile(r"\+{0,2}(?P<group>[a-z_]+(?:/[a-z_]+)*)=(?P<choices>\[[^\[\]]*\]|[\w-]+(?:\s*,\s*[\w-]+)+)")
"""An override with several choices: as a list, or as `kgqa sweep` takes them."""
_TARGET = re.compile(r"^\s*_target_:\s*['\"]?([\w.]+)", re.MULTILINE)
_SEARCH = "hydra.searchpath"
_LISTED = 20
"""The most keys that a message lists."""
_RUN = "config"
"""The configuration of a run."""
_PACKAGE = Path(__file__).resolve().parents[1]

OmegaConf.register_new_resolver("max", lambda *values: max(values), replace=True)
OmegaConf.register_new_resolver("if_null", lambda value, then, other: then if value is None else other, replace=True)


def _dataset_kind(*names: object) -> str | None:
    """Return the published dataset that a name, or one of the last two parts of a path, contains."""
    parts = (part.lower() for name in names if name for part in str(name).rstrip("/").split("/")[-2:])
    return next((kind for part in parts for kind in get_args(DatasetKind) if kind in part), None)


def _for_kind(kind: str | None, values: Mapping[str, Any], other: object) -> object:
    """Return the value for a kind of dataset."""
    return values.get(kind, other) if kind else other


OmegaConf.register_new_resolver("dataset_kind", _dataset_kind, replace=True)
OmegaConf.register_new_resolver("for_kind", _for_kind, replace=True)


def conf_dir() -> Path:
    """Return the folder of configuration groups: inside an installed package, or next to it in a checkout."""
    packaged = _PACKAGE / "conf"
    return packaged if packaged.is_dir() else _PACKAGE.parent / "conf"


def user_conf_dirs() -> list[Path]:
    """Return the folders with the user's own choices: those in `KGQA_CONF`, by default `./conf`.

    Raises UserError if `KGQA_CONF` names a folder that does not exist.
    """
    named = os.environ.get("KGQA_CONF")
    folders = [Path(folder).absolute() for folder in (named or "conf").split(os.pathsep)]
    missing = [folder for folder in folders if not folder.is_dir()]
    if named and missing:
        raise UserError(f"KGQA_CONF names {missing[0]}, which is not a folder")
    return [folder for folder in folders if folder not in missing and not folder.samefile(conf_dir())]


def searched_targets() -> frozenset[str]:
    """Return the classes that the files of the project and of the user's own choices name."""
    return _targets_in((conf_dir(), *user_conf_dirs()))


@cache
def _targets_in(folders: tuple[Path, ...]) -> frozenset[str]:
    texts = (file.read_text("utf-8", "replace") for folder in folders for file in folder.rglob("*.yaml"))
    return frozenset(target for text in texts for target in _TARGET.findall(text))


def compose(
    overrides: Sequence[str], *, name: str = _RUN, given: Mapping[str, Any] = MappingProxyType({})
) -> dict[str, Any]:
    """Compose and resolve a configuration. `given` has values for keys without a default, by dotted name.

    Raises UserError for an unknown key, a wrong choice, a missing value and a section of a run that is not one.
    """
    composed, choices = _composed(overrides, name)
    if name == _RUN:
        check_sections(composed, SECTIONS)
    missing = _missing(composed)
    for key in given.keys() & set(missing):
        OmegaConf.update(composed, key, given[key])
    if missing := [key for key in missing if key not in given]:
        folders = key_docs.search_path([conf_dir(), *user_conf_dirs()], overrides)
        meaning = key_docs.first_sentence(key_docs.meanings(choices, name, folders).get(missing[0], ""))
        raise UserError(f"{', '.join(missing)} must be given, as in {missing[0]}=…. {meaning}".rstrip(". "))
    # Without those of a part of a section, such as `kg/vocabulary`.
    of_sections = {group: choice for group, choice in choices.items() if "/" not in group}
    try:
        resolved = current_config(plain(composed, resolve=True))
    except OmegaConfBaseException as error:
        raise UserError(_explain(error, overrides, name)) from None
    refuse_unread(resolved, _sections(name), choices, composed, lambda: _user_files(overrides))
    return {**resolved, "choices": of_sections}


@cache
def _sections(name: str) -> tuple[str, ...]:
    """Return the sections, and the keys outside of them, that a command has."""
    composed, _ = _compose_defaults([], name)
    return tuple(map(str, composed))


def required(overrides: Sequence[str]) -> list[str]:
    """Return the keys of a run that have no default under the overrides. Raises UserError for a wrong one."""
    composed, _ = _composed(overrides, _RUN)
    return _missing(composed)


def _missing(composed: DictConfig) -> list[str]:
    return sorted(key for key, value in flatten(plain(composed)) if value == "???")


def complete(saved: Mapping[str, Any]) -> dict[str, Any]:
    """Return a saved configuration with the keys of `run` and `engine` that did not exist when it was saved."""
    newer = compose([f"engine={saved['engine'].get('name', 'local')}"])
    return {**saved, **{section: {**newer[section], **saved[section]} for section in ("run", "engine")}}


def describe(overrides: Sequence[str] = (), *, name: str = _RUN) -> str:
    """Return the text of `--help`: groups with their choices, and keys with their values and meanings."""
    composed, chosen = _composed(overrides, name)
    folders = key_docs.search_path([conf_dir(), *user_conf_dirs()], overrides)
    return key_docs.help_text(plain(composed), chosen, name, folders, overrides)


def show(
    overrides: Sequence[str], name: str, *, cfg: str | None, package: str | None, resolve: bool, info: str
) -> None:
    """Print what Hydra's flags `--cfg`, `--package` and `--resolve`, or `--info`, print. Raises UserError."""
    try:
        with running_hydra() as running:
            for override in OverridesParser.create().parse_overrides(list(overrides)):
                if override.is_sweep_override():
                    raise UserError(f"{override.input_line}: --cfg and --info print one configuration: give one value")
            _compose_known(overrides, name)
            if cfg:
                running.show_cfg(name, list(overrides), cfg, package, resolve)
            else:
                running.show_info(info, name, list(overrides))
    except HYDRA_ERRORS as error:
        raise UserError(_explain(error, overrides, name)) from None


@contextmanager
def running_hydra() -> Iterator[Hydra]:
    """Yield Hydra with the project's configuration files, as it runs in a program of its own."""
    with hydra.initialize_config_dir(str(conf_dir()), version_base="1.3"):
        running = GlobalHydra.instance().hydra
        assert running is not None
        keep_files(_loader())
        yield running


def _composed(overrides: Sequence[str], name: str) -> tuple[DictConfig, dict[str, str]]:
    """Compose without resolving, and return the choice of each group too. Raises UserError."""
    overrides = [current_override(word)[0] for word in overrides]
    try:
        return _compose_known(overrides, name)
    except HYDRA_ERRORS as error:
        raise UserError(_explain(error, overrides, name)) from None


def _compose_known(overrides: Sequence[str], name: str) -> tuple[DictConfig, dict[str, str]]:
    """Compose as `_composed` does. Raises UserError for what Hydra takes and the project does not, `HYDRA_ERRORS`."""
    _refuse_several_choices(overrides, name)
    _refuse_hidden(overrides, name)
    composed, choices = _compose_by_hydra(overrides, name)
    _refuse_added(overrides, name, choices)
    return composed, choices


def _refuse_several_choices(overrides: Sequence[str], name: str) -> None:
    """Raise UserError for a group of the project with a list of choices, such as `method=[srp,arg]`.

    Hydra would merge the files of a list into one section.
    """
    for word in overrides:
        found = _SEVERAL.fullmatch(word)
        if found and (conf_dir() / found["group"]).is_dir():
            group, choices = found["group"], [each.strip() for each in found["choices"].strip("[]").split(",")]
            swept = f"; kgqa sweep {group}={','.join(choices)} takes several" if name == _RUN and choices[1:] else ""
            raise UserError(f"{word}: {group} takes one choice, as in {group}={choices[0] or '…'}{swept}")


def _refuse_added(overrides: Sequence[str], name: str, choices: Collection[str]) -> None:
    """Raise UserError for a `+` that adds what no section reads, such as `+methd=arg`: Hydra would store it.

    A group of the user's own, whose keys other files of the user may read, is no such word.
    """
    added = {key: re.split("[./@]", key)[0] for key in (key_of(word) for word in overrides if word.startswith("+"))}
    if not added:
        return
    composed, groups = _compose_defaults(overrides, name)
    known = {*map(str, composed), *groups, "hydra"}
    own = {re.split("[/@]", group)[0] for group in choices}
    for key, first in added.items():
        missing = None if first in known else _missing_group(first, groups)
        if missing or first not in known | own:
            raise UserError(missing or _unknown(key, composed, groups))


def _refuse_hidden(overrides: Sequence[str], name: str) -> None:
    """Raise UserError for a choice of the user that cannot be chosen, because one of the project has its name.

    The files of the project come first, so that nobody's folder changes what `method=srp` means. Commands without the
    group, such as `kgqa ls`, do not mind.
    """
    for folder in key_docs.search_path(user_conf_dirs(), overrides):
        for file in sorted(folder.glob("*/**/*.yaml")):
            path = file.relative_to(folder)
            used = conf_dir() / path
            if used.is_file() and file.read_bytes() != used.read_bytes() and _has_group(path.parts[0], overrides, name):
                raise UserError(
                    f"{file} cannot be chosen, because a file of the project has its name: rename it, as to "
                    f"my_{path.name}, and choose {path.parent}=my_{path.stem}. KGQA_CONF names the folder of your own "
                    "files, by default ./conf"
                )


def _has_group(group: str, overrides: Sequence[str], name: str) -> bool:
    """Whether the configuration `name` makes a choice in a group or below it. Raises `HYDRA_ERRORS`."""
    return group in {each.partition("/")[0] for each in _compose_defaults(overrides, name)[1]}


def _compose_defaults(overrides: Sequence[str], name: str) -> tuple[DictConfig, dict[str, str]]:
    """Compose without any override but the search path. Raises `HYDRA_ERRORS`."""
    return _compose_by_hydra([word for word in overrides if word.startswith(_SEARCH)], name)


def _compose_by_hydra(overrides: Sequence[str], name: str) -> tuple[DictConfig, dict[str, str]]:
    """Compose as `_composed` does. Raises `HYDRA_ERRORS`.

    Choosing groups takes Hydra ten times as long as setting values, and the configurations of a sweep often differ only
    in values. So choices among the project's own files are composed once.
    """
    values = [word for word in overrides if _VALUE.match(word)]
    choices = [word for word in overrides if not _VALUE.match(word)]
    with _initialized_hydra() as loader:
        files = tuple((each.provider, each.path) for each in loader.get_search_path().get_path())
        has_user_files = any(provider == "user" for provider, _ in files)  # which may change while we run
        if has_user_files or any("hydra" in word or "={" in word for word in choices):
            return _compose_anew(overrides, name)
        try:
            composed, chosen = _composed_choices(tuple(choices), name, files)
            composed = deepcopy(composed)
            parsed = OverridesParser.create().parse_overrides(values)
            loader.validate_sweep_overrides_legal(parsed, RunMode.RUN, from_shell=False)
            loader._apply_overrides_to_config(parsed, composed)
        except HYDRA_ERRORS:
            return _compose_anew(overrides, name)  # which raises the error of all overrides in their order
        return composed, dict(chosen)


@lru_cache(maxsize=256)
def _composed_choices(
    choices: tuple[str, ...], name: str, _files: tuple[tuple[str, str], ...]
) -> tuple[DictConfig, dict[str, str]]:
    """Compose choices of groups. The files are those that they come from: other ones give another configuration."""
    return _compose_anew(choices, name)


def _compose_anew(overrides: Sequence[str], name: str) -> tuple[DictConfig, dict[str, str]]:
    """Compose from the files, with the initialized Hydra. Raises `HYDRA_ERRORS`."""
    composed = hydra.compose(name, overrides=list(overrides), return_hydra_config=True)
    with open_dict(composed):
        choices = composed.pop("hydra").runtime.choices.items()
    if any(OmegaConf.is_list(composed.get(group)) for group, _ in choices):
        check_yaml(_user_files(overrides))
    return composed, {str(group): str(choice) for group, choice in choices if not str(group).startswith("hydra/")}


@contextmanager
def _initialized_hydra() -> Iterator[ConfigLoaderImpl]:
    """Initialize Hydra with our configuration files, unless a sweeper that calls us has done so. Yields its loader."""
    initialized = nullcontext() if GlobalHydra.instance().is_initialized() else running_hydra()
    with initialized:
        yield _loader()


def _loader() -> ConfigLoaderImpl:
    loader = GlobalHydra.instance().config_loader()
    assert isinstance(loader, ConfigLoaderImpl)
    return loader


def plain(composed: DictConfig | ListConfig, *, resolve: bool = False) -> dict[str, Any]:
    """Return a mapping of OmegaConf as a dictionary."""
    contents = OmegaConf.to_container(composed, resolve=resolve)
    assert isinstance(contents, dict)
    return {str(key): value for key, value in contents.items()}


def _explain(error: Exception, overrides: Sequence[str], name: str) -> str:
    reason = str(error).splitlines()[0]
    if isinstance(error, (YAMLError, ValueError, OSError)) or "ConfigTypeError" in reason:
        check_yaml(_user_files(overrides))
    match error:
        case MissingConfigException():
            return _unknown_choice(error)
        case OverrideParseException():
            return _unparsed(error.override, overrides, name)
        case ConfigCompositionException() if "Ambiguous value" in reason:
            fix = "write a list as key=[1,2], and a text with a comma in further quotes, as in 'key=\"a, b\"'"
            return f"{reason}: {fix}; kgqa sweep takes several values"
        case ConfigCompositionException():
            return _no_choice(overrides) or _unknown_key(overrides, name) or _without_sign(reason)
        case InterpolationResolutionError() if error.full_key:
            value = str(error.child_node)
            literal = value.replace("${", r"\${")
            fix = f"set {error.full_key}, or write {literal} for these characters"
            if removed := [word for word in overrides if word.startswith("~")]:
                fix = f"leave out {removed[0]}, as other keys need that one, or set {error.full_key}"
            return f"{error.full_key}={value} cannot be resolved ({reason}): {fix}"
        case ValueError():
            reason = _no_choice(overrides) or reason
    return reason


def _without_sign(reason: str) -> str:
    """Return a sentence about a `+` before a key that exists, or a `~` before one that is null, for such reasons."""
    if found := re.search(r"An item is already at '(.+)'", reason):
        return f"the key {found[1]} exists already: leave out the + and write {found[1]}=…"
    if found := re.search(r"Could not delete from config\. '(.+)' does not exist", reason):
        return f"~{found[1]}: the key has no value to remove, as it is null: leave this word out"
    return reason


def _user_files(overrides: Sequence[str]) -> list[Path]:
    """Return the user's own configuration files, the chosen ones first."""
    chosen = {word.partition("=")[2] for word in overrides}
    folders = key_docs.search_path(user_conf_dirs(), overrides)
    files = [file for folder in folders for file in folder.rglob("*.yaml")]
    return sorted(files, key=lambda file: file.stem not in chosen)


def _unparsed(word: str, overrides: Sequence[str], name: str) -> str:
    """Return a sentence about a word that is no override; for one written as a flag, with the key that it may mean."""
    if not word.startswith("-"):
        return not_an_override(word)
    return wrong_flag(word, overrides[overrides.index(word) + 1 :], keys_of(name, overrides))


def keys_of(name: str, overrides: Sequence[str] = ()) -> dict[str, Any]:
    """Return the groups of a command and its dotted keys, each with its value unless another one is given."""
    composed, groups = _compose_defaults(overrides, name)
    return {**groups, **dict(flatten(plain(composed)))}


def _unknown_choice(error: MissingConfigException) -> str:
    missing = (error.missing_cfg_file or "").removesuffix(".yaml")
    group, _, choice = missing.rpartition("/")
    outer, _, inner = group.rpartition("/")
    if outer and not error.options and (conf_dir() / inner).is_dir():
        chosen = f"`override /{inner}: {choice}` in the defaults of a file chooses {inner}={choice}"
        return f"there is no group {group}: {chosen}"
    return _wrong_choice(group, choice, sorted(error.options or []))


def _no_choice(overrides: Sequence[str]) -> str | None:
    """Return a sentence about the first choice that is not a word, such as `llm=null`; None if all are words."""
    with _initialized_hydra() as loader:
        for override in OverridesParser.create().parse_overrides(list(overrides)):
            options = loader.get_group_options(override.key_or_group)
            if options and not override.is_delete() and not isinstance(override.value(), str | list):
                return _wrong_choice(override.key_or_group, override.get_value_string(), options)
    return None


def _wrong_choice(group: str, choice: str, options: Sequence[str]) -> str:
    return (
        f"there is no {group}={choice}.{did_you_mean(choice, options)} Known: {', '.join(options)}; "
        "choices of your own are searched in KGQA_CONF, by default ./conf, and in hydra.searchpath=[file://FOLDER]"
    )


def _unknown_key(overrides: Sequence[str], name: str) -> str | None:
    """Return a sentence about the first override without a key under the same group choices; None if all have one."""
    try:
        _, groups = _compose_defaults(overrides, name)
        composed, _ = _compose_by_hydra(
            [word for word in overrides if word.startswith(_SEARCH) or word.partition("=")[0] in groups], name
        )
    except HYDRA_ERRORS:  # a choice or the search path is wrong, not a key
        return None
    known = [key for key, _ in flatten(plain(composed))]
    sections = {".".join(key.split(".")[:depth]) for key in known for depth in range(1, key.count(".") + 1)}
    for word in overrides:
        key = key_of(word)
        if word.startswith("+") and key.split(".")[0] in {*composed, *groups}:  # it adds a key to a section
            continue
        if key not in groups and key not in known and key not in sections and not key.startswith("hydra."):
            return _missing_group(key, groups) or _unknown(key, composed, groups)
    return None


def _unknown(key: str, composed: DictConfig, groups: Iterable[str]) -> str:
    """Return the sentence about an unknown key. Where a group and a key are equally similar, it suggests the group."""
    keys = [full for full, _ in flatten(plain(composed)) if not full.rpartition(".")[2].startswith("_")]
    meant = _suggestion(key, [*groups, *keys])
    if not meant and _takes_further_keys(key, composed):
        meant = f" +{key}=… adds it."
    return f"unknown key '{key}'.{meant or _listing([*groups, *keys])}"


def _listing(known: Sequence[str]) -> str:
    """Return a sentence with the keys that there are, or with what lists them if they are many."""
    return f" Known: {', '.join(known)}" if len(known) <= _LISTED else " --help lists the keys."


def _takes_further_keys(key: str, composed: DictConfig) -> bool:
    """Whether the class that a configuration builds maps any keys to values there, as to the number of questions."""
    section, _, field = key.rpartition(".")[0].rpartition(".")
    holder = OmegaConf.select(composed, section) if section else composed
    target = holder.get("_target_") if OmegaConf.is_dict(holder) else None
    if not field or target is None or not target.startswith("pipeline."):
        return False
    return get_origin(get_type_hints(hydra.utils.get_object(target)).get(field)) is Mapping


def key_of(override: str) -> str:
    """Return the key that an override sets, adds or removes."""
    return override.partition("=")[0].lstrip("+~")


def _missing_group(key: str, groups: Collection[str]) -> str | None:
    """Return a sentence for a key whose group only other commands have; None for any other key."""
    group = key.partition(".")[0]
    if group in groups or not (conf_dir() / group).is_dir():
        return None
    own = f"It has {', '.join(sorted(groups))}." if groups else "--help lists its keys."
    return f"this command has no group '{group}'. {own}"


def keys_of_choices(group: str) -> dict[str, dict[str, Any]]:
    """Return the dotted keys of each choice of a group of the project, with their values as the file writes them."""
    files = sorted((conf_dir() / group).glob("*.yaml"))
    return {file.stem: dict(flatten(load_yaml(file.read_text("utf-8")) or {})) for file in files}


def _suggestion(key: str, known: Sequence[str]) -> str:
    """Say where a key is: in another choice of its group, in a section that was not named, or spelled differently."""
    group, _, rest = key.partition(".")
    owners = [f"{group}={choice}" for choice, keys in keys_of_choices(group).items() if rest in keys] if rest else []
    if owners:
        return f" It is a key of {', '.join(owners)}."
    name = key.rpartition(".")[2]
    of_section = [full for full in known if full.startswith(f"{group}.")] if rest else known
    elsewhere = sorted(
        (full for full in known if full.endswith(f".{name}")), key=lambda full: not full.startswith("run.")
    )
    of_other_section = suggestion(elsewhere[0]) if elsewhere else ""
    similar = did_you_mean_key(name, of_section)
    return similar or of_other_section if rest else of_other_section or similar
